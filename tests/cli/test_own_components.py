"""Components of your own: `new` and `check` of both groups, and the catalogue with plugins."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator

import pytest
import yaml
from plugin_folders import write_loss, write_network

from vsetune.config.plugins import forget_plugins

_PATH = ":".join(sys.path)


def output(vsetune, *words: str) -> str:
    said = vsetune(*words)
    assert said.code == 0, said
    return said.out


@pytest.fixture(autouse=True)
def _forgotten() -> Iterator[None]:
    yield
    forget_plugins()


def test_new_components_pass_their_own_checks_and_their_tests_as_they_are_written(vsetune, tmp_path) -> None:
    for noun, code in (("losses", "loss.py"), ("networks", "network.py")):
        name = f"my_{noun}"
        said = vsetune(noun, "new", name, "--folder", str(tmp_path))
        assert said.code == 0, said.err
        folder = tmp_path / name
        assert said.out.split() == [str(folder / file) for file in ("spec.py", code, f"test_{name}.py")]
        assert f"vsetune {noun} check {folder}" in said.err
        checked = vsetune(noun, "check", str(folder), "--json")
        assert checked.code == 0, checked.out
        plain = json.loads(checked.out)
        assert plain["name"] == name
        assert {each["result"] for each in plain["checks"]} == {"holds", "not applicable"}
        assert noun == "networks" or plain["step"]["times_lmh"] > 0
    ran = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "my_losses", "my_networks"], cwd=tmp_path, capture_output=True,
        text=True, env=os.environ | {"PYTHONPATH": _PATH},
    )
    assert ran.returncode == 0, ran.stdout
    assert re.search(r"\d+ passed", ran.stdout)


def test_a_check_that_fails_is_exit_code_1(vsetune, tmp_path) -> None:
    vsetune("losses", "new", "mine", "--folder", str(tmp_path))
    loss = tmp_path / "mine" / "loss.py"
    loss.write_text(loss.read_text().replace("at_least_float32(inputs.similarity)", "-inputs.similarity"))
    said = vsetune("losses", "check", str(tmp_path / "mine"))
    assert said.code == 1
    assert "larger similarity is closer" in " ".join(said.out.split())
    assert "mine: 11 of 13 checks" in said.err


def test_a_loss_with_a_declared_stop_gradient_is_checked_with_exit_code_0(vsetune, tmp_path) -> None:
    vsetune("losses", "new", "mine", "--folder", str(tmp_path))
    loss, spec = (tmp_path / "mine" / file for file in ("loss.py", "spec.py"))
    loss.write_text(loss.read_text().replace("matched[None, :]", "matched.detach()[None, :]"))
    spec.write_text(spec.read_text().replace(
        "    name: Literal", '    stop_gradient: ClassVar[str] = "the pair is a constant"\n    name: Literal'
    ))
    said = vsetune("losses", "check", str(tmp_path / "mine"))
    assert said.code == 0, said.out
    assert "x LMH in this run" in said.err
    assert "as spec.py declares: the pair is a constant" in " ".join(said.out.split())
    shown = vsetune("losses", "show", "mine", "--plugins", str(tmp_path / "mine"))
    assert "without gradient: the pair is a constant" in shown.out


@pytest.mark.parametrize(("words", "said"), [
    (["losses", "check", "lsehh"], ["lsehh", "lseh"]),
    (["losses", "check", "./nowhere"], ["nowhere: "]),
    (["networks", "check", "."], ["spec.py"]),
    (["losses", "new", "lmh"], ["loss lmh: "]),
    (["losses", "new", "My-Loss"], ["loss My-Loss: "]),
    (["networks", "new", "class"], ["network class: "]),
    (["networks", "new", "there"], ["there: "]),
    (["networks", "check", "mine"], ["mine: ", "network", "loss"]),
])
def test_what_cannot_be_checked_or_made_is_refused(words, said, vsetune, tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "there").mkdir()
    if "mine" in words:
        vsetune("losses", "new", "mine")
    assert vsetune(*words).refused(*said)


def test_losses_and_networks_of_a_folder_are_listed_and_shown(vsetune, tmp_path) -> None:
    write_loss(tmp_path / "mine" / "half_hinge")
    write_network(tmp_path / "mine" / "bag")
    found = json.loads(output(vsetune, "losses", "list", "--json", "--plugins", str(tmp_path / "mine")))
    listed = {each["name"]: each for each in found}
    assert listed["half_hinge"]["networks"][:1] == ["cgmn"]
    assert "bag" in listed["lmh"]["networks"]
    shown = output(vsetune, "losses", "show", "half_hinge", "--plugins", str(tmp_path / "mine"))
    assert "searched [0.1, 0.4]" in shown
    network = json.loads(output(vsetune, "networks", "show", "bag", "--json", "--plugins", str(tmp_path / "mine")))
    assert network["parameters"] > 0
    assert "half_hinge" in network["losses"]
    assert network["published"] == []


def test_the_plugins_of_a_study_file_are_shown(vsetune, tmp_path) -> None:
    write_loss(tmp_path / "half_hinge")
    path = tmp_path / "study.yaml"
    path.write_text(yaml.safe_dump({
        "study": "mine", "data": {"path": "x"}, "plugins": ["half_hinge"], "networks": [{"name": "vsepp"}],
        "losses": [{"name": "half_hinge"}, {"name": "lmh"}],
    }))
    assert "half_hinge" in output(vsetune, "losses", "list", "--plugins", str(path))
    forget_plugins()
    assert "vsepp.half_hinge" in output(vsetune, "study", "validate", str(path))
