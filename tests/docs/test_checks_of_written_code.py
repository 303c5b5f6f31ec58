"""The checks of written commands and settings refuse what is wrong, and say what."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest
from written_commands import commands_in, trouble
from written_pages import Snippet, blocks, spans
from written_settings import trouble_of_block, trouble_of_setting


@pytest.mark.parametrize(("text", "said"), [
    ("vsetune study start my.yaml", "start: no command of study"),
    ("vsetune study", "nothing: no command of study"),
    ("vsetune study run", "Missing argument"),
    ("vsetune study run my.yaml other.yaml", "unexpected extra argument"),
    ("vsetune study run my.yaml --go-on", "No such option: --go-on"),
    ("vsetune trial ensemble a/b --device", "--device"),
    ("vsetune study run studies/no_such_study.yaml", "not in this repository"),
    ("VSETUNE_HOUSE=/tmp vsetune study run my.yaml", "VSETUNE_HOUSE: no file of ours reads this variable"),
    ("export VSETUNE_HOUSE=/tmp", "VSETUNE_HOUSE"),
    ("make coffee", "make coffee: no such target"),
    ("pip install 'vsetune[coffee]'", "no extra coffee"),
    ("pip install -e '.[jobs,coffee]'", "no extra coffee"),
    ("pip install --constraint pins.txt .", "pins.txt: no such file"),
    ("pip remove vsetune", "need download, install or wheel"),
    ("python jobs/no_such_job.py", "not in this repository"),
    ("python no_such_job.py", "no such script"),
    ("ray up machines.yaml", "ray up machines.yaml: no such file"),
    ("ray job submit -- python jobs/no_such_job.py", "not in this repository"),
    ("ray job submit -- vsetune study start my.yaml", "start: no command of study"),
    ("git rebase main", "git rebase main: need one of"),
    ("pre-commit autoupdate", "pre-commit autoupdate: need"),
    ("brew install vsetune", "brew: a program that no test knows"),
])
def test_a_command_that_would_be_refused_is_told(text: str, said: str) -> None:
    assert said in str(trouble(shlex.split(text)))


@pytest.mark.parametrize("text", [
    "vsetune --version", "vsetune study run --help", "vsetune study run studies/quickstart.yaml --resume",
    "vsetune trial ensemble a/b c/d", "VSETUNE_LOG=INFO vsetune study run my.yaml", "CHAOS_SEED=1 make chaos",
    "ray job submit --working-dir . -- python jobs/sweep.py studies/quickstart.yaml", ".venv/bin/python jobs/sweep.py",
])
def test_a_command_that_would_be_accepted_passes(text: str) -> None:
    assert trouble(shlex.split(text)) is None


def test_only_in_a_sentence_may_a_command_be_named_without_its_arguments() -> None:
    assert trouble(["vsetune", "study", "run"], may_be_a_name=True) is None
    assert "start" in str(trouble(["vsetune", "study", "start"], may_be_a_name=True))


def test_a_shell_block_is_cut_into_commands() -> None:
    text = "make test  # 'minutes'\n\n# a comment\nvsetune study schema > a.json && cd ..; git \\\n  tag 'a; b' | cat\n"
    assert list(commands_in(text)) == [
        ["make", "test"], ["vsetune", "study", "schema"], ["cd", ".."], ["git", "tag", "a; b"], ["cat"],
    ]


@pytest.mark.parametrize(("text", "said"), [
    ("study: a", "missing, need a value"),
    ("networks: [{name: no_such_network}]", "no_such_network"),
    ("losses: [{name: lmh, fixed: {margin: -1}}]", "margin"),
    ("training: {epochs: 10, epoch: 10}", "epoch"),
    ("parses: {pipelines: en}", "pipelines"),
    ("parses: {pipeline: en}\nlosses: [{name: lmh}]", "say how they are checked"),
    ("head_node_type: a", "say how they are checked"),
    ("training: {epochs: 10}\n# losses: [{name: no_such_loss}]", "no_such_loss"),
    ("- a list", "need a mapping"),
    ("losses: [", "not valid YAML"),
])
def test_a_block_of_yaml_that_would_be_refused_is_told(text: str, said: str, tmp_path: Path) -> None:
    assert said in str(trouble_of_block(text, tmp_path))


@pytest.mark.parametrize(("text", "said"), [
    ("no_such_field: 1", "no spec has this field"), ("batch_unit: videos", "takes this value"),
    ("training.epochs: many", "takes this value"),
])
def test_a_setting_that_no_spec_takes_is_told(text: str, said: str) -> None:
    assert said in str(trouble_of_setting(text))


def test_code_of_a_page_is_found_in_fences_paragraphs_lists_and_tables(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("`a\nb`\n\n- `c`\n\n| `d` | e |\n| --- | --- |\n| f | `g h` |\n\n```sh\ni\n```\n\n    j\n")
    assert [span.text for span in spans(page)] == ["a b", "c", "d", "g h"]
    assert [(block.line, block.language, block.text) for block in blocks(page)] == [
        (10, "sh", "i\n"), (14, "indented", "j\n"),
    ]
    assert isinstance(spans(page)[0], Snippet)
