"""Commands and settings in blocks of our pages are parsed by what would run them. The changelog is left out."""

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
    trouble,
    without_variables,
)
from written_pages import Snippet, blocks, pages
from written_settings import trouble_of_block

PAGES = pages("CHANGELOG.md")
BLOCKS = [block for page in PAGES for block in blocks(page)]
COMMANDS = [(block, words) for block in BLOCKS if block.language == "sh" for words in commands_in(block.text)]


def named(value: object) -> str:
    return f"{value.where} {value.text[:60]}" if isinstance(value, Snippet) else shlex.join(value)  # type: ignore


@pytest.mark.parametrize(("block", "words"), COMMANDS, ids=named)
def test_a_command_of_a_shell_block_would_be_accepted(block: Snippet, words: list[str]) -> None:
    assert trouble(words) is None, block.where


@pytest.mark.parametrize("block", BLOCKS, ids=named)
def test_a_block_is_valid(block: Snippet, tmp_path: Path) -> None:
    match block.language:
        case "python":
            compile(textwrap.dedent(block.text), block.where, "exec")
        case "toml":
            assert tomllib.loads(block.text)
        case "yaml":
            assert trouble_of_block(block.text, tmp_path) is None, block.where
        case _:
            assert block.language in ("sh", "text"), block.where


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
