"""What the command line says of other people's components."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from plugin_folders import write_loss, write_network
from typer.testing import CliRunner

from vsetune.cli.main import app
from vsetune.config.plugins import forget_plugins


@pytest.fixture(autouse=True)
def _own_components_only() -> Iterator[None]:
    yield
    forget_plugins()


def output(*words: str) -> str:
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 0, done.output
    return done.stdout


def test_losses_and_networks_of_a_folder_are_listed_and_shown(tmp_path: Path) -> None:
    write_loss(tmp_path / "mine" / "half_hinge")
    write_network(tmp_path / "mine" / "bag")
    found = json.loads(output("losses", "list", "--json", "--plugins", str(tmp_path / "mine")))
    listed = {each["name"]: each for each in found}
    assert listed["half_hinge"]["networks"][:1] == ["cgmn"]
    assert "bag" in listed["lmh"]["networks"]
    shown = output("losses", "show", "half_hinge", "--plugins", str(tmp_path / "mine"))
    assert "searched [0.1, 0.4]" in shown
    network = json.loads(output("networks", "show", "bag", "--json", "--plugins", str(tmp_path / "mine")))
    assert network["parameters"] > 0
    assert "half_hinge" in network["losses"]
    assert network["published"] == []


def test_the_plugins_of_a_study_file_are_shown(tmp_path: Path) -> None:
    write_loss(tmp_path / "half_hinge")
    path = tmp_path / "study.yaml"
    path.write_text(yaml.safe_dump({
        "study": "mine", "data": {"path": "x"}, "plugins": ["half_hinge"], "networks": [{"name": "vsepp"}],
        "losses": [{"name": "half_hinge"}, {"name": "lmh"}],
    }))
    assert "half_hinge" in output("losses", "list", "--plugins", str(path))
    forget_plugins()
    assert "vsepp.half_hinge" in output("study", "validate", str(path))
