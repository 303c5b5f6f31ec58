"""`losses new`, `losses check`, `networks new`, `networks check`."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from vsetune.config.plugins import forget_plugins

_PATH = ":".join(sys.path)


@pytest.fixture(autouse=True)
def _forgotten() -> Iterator[None]:
    yield
    forget_plugins()


@pytest.mark.parametrize(("noun", "code"), [("losses", "loss.py"), ("networks", "network.py")])
def test_a_new_component_passes_its_own_check_as_it_is_written(noun, code, vsetune, tmp_path: Path) -> None:
    said = vsetune(noun, "new", "mine", "--folder", str(tmp_path))
    assert said.code == 0, said.err
    folder = tmp_path / "mine"
    assert said.out.split() == [str(folder / file) for file in ("spec.py", code, "test_mine.py")]
    assert f"vsetune {noun} check {folder}" in said.err
    checked = vsetune(noun, "check", str(folder), "--json")
    assert checked.code == 0, checked.out
    plain = json.loads(checked.out)
    assert plain["name"] == "mine"
    assert {each["result"] for each in plain["checks"]} == {"holds", "not applicable"}
    if noun == "losses":
        assert plain["step"]["times_lmh"] > 0


@pytest.mark.parametrize("noun", ["losses", "networks"])
def test_the_test_that_is_written_with_a_new_component_passes(noun, vsetune, tmp_path: Path) -> None:
    vsetune(noun, "new", "mine", "--folder", str(tmp_path))
    ran = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "mine"], cwd=tmp_path, env=os.environ | {"PYTHONPATH": _PATH},
        capture_output=True, text=True,
    )
    assert ran.returncode == 0, ran.stdout
    assert re.search(r"\d+ passed", ran.stdout)


def test_what_does_not_hold_is_told_with_exit_code_1(vsetune, tmp_path: Path) -> None:
    vsetune("losses", "new", "mine", "--folder", str(tmp_path))
    loss = tmp_path / "mine" / "loss.py"
    loss.write_text(loss.read_text().replace("at_least_float32(inputs.similarity)", "-inputs.similarity"))
    said = vsetune("losses", "check", str(tmp_path / "mine"))
    assert said.code == 1
    assert "larger similarity is closer" in " ".join(said.out.split())
    assert "mine: 11 of 13 checks" in said.err


def test_a_loss_with_a_declared_stop_gradient_is_checked_with_exit_code_0(vsetune, tmp_path: Path) -> None:
    vsetune("losses", "new", "mine", "--folder", str(tmp_path))
    loss, spec = (tmp_path / "mine" / file for file in ("loss.py", "spec.py"))
    loss.write_text(loss.read_text().replace("matched[None, :]", "matched.detach()[None, :]"))
    spec.write_text(spec.read_text().replace(
        "    name: Literal", '    stop_gradient: ClassVar[str] = "the pair is a constant"\n    name: Literal'
    ))
    said = vsetune("losses", "check", str(tmp_path / "mine"))
    assert said.code == 0, said.out
    assert "as spec.py declares: the pair is a constant" in " ".join(said.out.split())
    shown = vsetune("losses", "show", "mine", "--plugins", str(tmp_path / "mine"))
    assert "without gradient: the pair is a constant" in shown.out


def test_a_built_in_loss_is_checked_by_its_name(vsetune) -> None:
    said = vsetune("losses", "check", "lsh")
    assert said.code == 0, said.out
    assert "x LMH in this run" in said.err


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["losses", "check", "lsehh"], "no loss is called lsehh; did you mean lseh?"),
        (["losses", "check", "./nowhere"], "no such folder"),
        (["networks", "check", "."], "no spec.py in it"),
        (["losses", "new", "lmh"], "vsetune has a loss of this name"),
        (["losses", "new", "My-Loss"], "need a name of lower-case letters"),
        (["networks", "new", "class"], "no word of Python"),
        (["networks", "new", "there"], "is there already"),
    ],
)
def test_what_cannot_be_checked_or_made_is_one_line(words, told, vsetune, tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "there").mkdir()
    said = vsetune(*words)
    assert said.code == 2
    assert len(said.lines) == 1, said.err
    assert told in said.err


def test_a_loss_is_no_network(vsetune, tmp_path: Path) -> None:
    vsetune("losses", "new", "mine", "--folder", str(tmp_path))
    said = vsetune("networks", "check", str(tmp_path / "mine"))
    assert said.code == 2
    assert "need the folder of one network, got loss mine" in said.err


def test_commands_that_need_no_torch_start_without_it() -> None:
    code = "import sys, vsetune.cli.main; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True, env={"PYTHONPATH": _PATH})
