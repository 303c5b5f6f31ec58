"""No command and no setting on our pages can rot: each is parsed by what would run it.

Everything is classified. A block in a language that is not in LANGUAGES fails, and so does code with spaces in a
sentence that is no command, no option, no setting and not in TEXTS. The changelog tells of what was and is left out.
"""

from __future__ import annotations

import importlib
import shlex
import textwrap
import tomllib
from pathlib import Path

import pytest
from written_commands import (
    click_trouble,
    commands_in,
    is_command,
    options_of,
    options_of_vsetune,
    trouble,
    without_variables,
)
from written_pages import Snippet, blocks, pages, spans
from written_settings import is_setting, trouble_of_block, trouble_of_setting

LANGUAGES = {"sh", "yaml", "text", "python", "toml"}
TEXTS = {
    "t - shirt", "Mean (± x)", "## X.Y.Z - YYYY-MM-DD", "from .negatives import hardest", "several_positives = True",
    'kinds = frozenset({"embedding"})', "scores = COSINES", "pytest my_loss",
}
"""Code in sentences that is a literal text: of a caption, of a column, of a heading, of a plugin's file."""

OPTIONS_OF_OTHERS = {"--dashboard-host", "--feature-gates=RayCronJob=true", "--runtime-env-json", "--temp-dir"}

PAGES = pages("CHANGELOG.md")
BLOCKS = [block for page in PAGES for block in blocks(page)]
SPANS = {(span.page, span.text): span for page in PAGES for span in spans(page)}.values()
COMMANDS = [(block, words) for block in BLOCKS if block.language == "sh" for words in commands_in(block.text)]


def named(value: object) -> str:
    return f"{value.where} {value.text[:60]}" if isinstance(value, Snippet) else shlex.join(value)  # type: ignore


def trouble_of_span(text: str) -> str | None:
    """What is wrong with code in a sentence; None where nothing is. A word alone is a name, if it is no option."""
    if is_command(text):
        return trouble(shlex.split(text), may_be_a_name=True)
    if text.startswith("-"):
        unknown = {word for word in text.split() if word.startswith("--")} - options_of_vsetune() - OPTIONS_OF_OTHERS
        return f"{', '.join(sorted(unknown))}: an option of no command" if unknown else None
    if is_setting(text):
        return trouble_of_setting(text)
    if " " in text and text not in TEXTS:
        return f"{text}: no command, option or setting; if it is a literal text, add it to TEXTS"
    return None


@pytest.mark.parametrize("block", BLOCKS, ids=named)
def test_a_block_is_in_a_language_that_we_check(block: Snippet) -> None:
    assert block.language in LANGUAGES, f"{block.where}: {block.language!r}: need one of {sorted(LANGUAGES)}"


@pytest.mark.parametrize(("block", "words"), COMMANDS, ids=named)
def test_a_command_of_a_shell_block_would_be_accepted(block: Snippet, words: list[str]) -> None:
    assert trouble(words) is None, block.where


@pytest.mark.parametrize("block", [block for block in BLOCKS if block.language == "python"], ids=named)
def test_a_block_of_python_is_python(block: Snippet) -> None:
    lines = textwrap.dedent(block.text)
    compile(lines, block.where, "exec")


@pytest.mark.parametrize("block", [block for block in BLOCKS if block.language == "toml"], ids=named)
def test_a_block_of_toml_is_toml(block: Snippet) -> None:
    assert tomllib.loads(block.text)


@pytest.mark.parametrize("block", [block for block in BLOCKS if block.language == "yaml"], ids=named)
def test_a_block_of_yaml_is_valid(block: Snippet, tmp_path: Path) -> None:
    assert trouble_of_block(block.text, tmp_path) is None, block.where


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_code_in_the_sentences_of_a_page_is_true(page: Path) -> None:
    problems = [f"{span.where}: {trouble_of_span(span.text)}" for span in SPANS
                if span.page == page and trouble_of_span(span.text)]
    assert not problems, "\n".join(problems)


@pytest.mark.slow  # imports of seconds
@pytest.mark.filterwarnings("ignore")  # what they import warns
@pytest.mark.parametrize(("program", "module", "tree"), [
    ("ray", "ray.scripts.scripts", "cli"), ("mlflow", "mlflow.cli", "cli"),
])
def test_a_command_of_ray_and_mlflow_would_be_accepted_by_them(program: str, module: str, tree: str) -> None:
    command = getattr(importlib.import_module(module), tree)
    written = [words for _, given in COMMANDS if (words := without_variables(given))[:1] == [program]]
    assert written
    assert [problem for words in written if (problem := click_trouble(command, words[1:]))] == []
    named = [shlex.split(span.text) for span in SPANS if span.text.startswith(f"{program} ")]
    assert {word for words in named for word in words if word.startswith("--")} <= options_of(command)
