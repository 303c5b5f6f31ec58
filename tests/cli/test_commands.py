"""Every command explains itself with an example; results go to stdout, everything else to stderr."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest
import typer

from vsetune.cli.main import app
from vsetune.cli.quickstart import STUDY_FILE
from vsetune.config.component_specs import LOSSES, NETWORKS
from vsetune.config.study.cells import resolve_cells
from vsetune.study.study_file import load_study
from vsetune.training.attempt import TrainingAttempt


def commands(command: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    yield path, command
    for name, each in getattr(command, "commands", {}).items():
        yield from commands(each, (*path, name))


TREE = dict(commands(typer.main.get_command(app)))
LEAVES = [path for path, command in TREE.items() if not hasattr(command, "commands")]


@pytest.mark.parametrize("path", TREE, ids=" ".join)
def test_a_command_or_group_has_help_and_an_example_that_can_be_copied(path) -> None:
    command = TREE[path]
    assert command.help
    paragraphs = command.help.split("\n\n") if path else []
    assert not any("\n" in paragraph for paragraph in paragraphs), "lines break where the terminal ends"
    assert command.epilog.startswith("Example: ")
    examples = [path] if path in LEAVES else [leaf for leaf in LEAVES if leaf[: len(path)] == path]
    assert any("vsetune " + " ".join(example) in command.epilog for example in examples)


def test_an_example_on_the_quickstart_names_one_of_its_cells() -> None:
    study = load_study(STUDY_FILE)
    cells = {cell.name for cell in resolve_cells(study, where="test")}
    examples = " ".join(command.epilog for command in TREE.values())
    named = re.findall(r"quickstart(?:/|.yaml --cell )(\w+\.[a-z_]+)", examples)
    assert len(named) > 5
    assert set(named) <= cells


@pytest.mark.parametrize(("noun", "known"), [("losses", LOSSES), ("networks", NETWORKS)])
def test_the_catalogue_shows_everything_whole_on_80_columns(noun, known, vsetune, monkeypatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    said = vsetune(noun, "list", "--json")
    assert {each["name"] for each in json.loads(said.out)} == set(known)
    for name, spec in known.items():
        shown = vsetune(noun, "show", name)
        assert shown.code == 0
        assert all(field in shown.out for field in spec.model_fields if field != "name"), shown
        assert max(map(len, shown.out.splitlines()[2:])) <= 80


def test_a_long_name_of_a_cell_leaves_room_for_its_settings(vsetune, study, monkeypatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    losses = [{"name": "lmh", "label": "l" * 60}]
    file = study(networks=[{"name": "vsepp", "label": "n" * 60}], losses=losses, baseline="l" * 60)
    shown = vsetune("study", "validate", str(file)).out
    rows = [line.split("│") for line in shown.splitlines() if line.startswith("│")]
    assert "".join(row[1].strip() for row in rows) == f"{'n' * 60}.{'l' * 60}"
    assert "".join(row[3].strip() for row in rows) == "loss.margin [0.05, 0.4]"


def test_the_catalogue_shows_default_limits_and_search_of_a_hyperparameter(vsetune) -> None:
    described = json.loads(vsetune("losses", "show", "lseh", "--json").out)
    margin = next(each for each in described["hyperparameters"] if each["name"] == "margin")
    assert margin["default"] == 0.185
    assert margin["allowed"] == "number >= 0"
    assert (margin["search"]["low"], margin["search"]["high"]) == (0.05, 0.4)
    shown = vsetune("losses", "show", "lseh").out
    assert "searched [0.05, 0.4]" in shown
    assert "decided, diagonal, released" in shown


def test_a_network_is_shown_with_its_paper_size_cost_losses_and_published_recalls(vsetune) -> None:
    described = json.loads(vsetune("networks", "show", "gsmn", "--json").out)
    assert described["paper"] == "Liu et al., CVPR 2020"
    assert described["parameters"] == 13_248_452
    assert described["flops_per_pair"] == pytest.approx(2.1e6, rel=0.02)
    assert "lseh" in described["losses"]
    assert "semantic_center" not in described["losses"]
    assert {row["source"] for row in described["published"]} == {"LSEH, Table 9"}
    shown = vsetune("networks", "show", "gsmn").out
    assert "13,248,452" in shown
    assert "71.4 92.0 96.1" in shown
    assert "Published" not in vsetune("networks", "show", "pvse").out
    piece = "    training:\n      learning_rate_step: null\n      phases:\n        - {epochs: 0.4413,"
    assert piece in vsetune("networks", "show", "cgmn").out, "a piece of a study file keeps its lines"


def test_the_cnn_of_a_network_is_shown_setting_by_setting(vsetune) -> None:
    described = json.loads(vsetune("networks", "show", "mse", "--json").out)
    defaults = {each["name"]: each["default"] for each in described["hyperparameters"]}
    assert (defaults["backbone.model"], defaults["backbone.start_epoch"]) == ("microsoft/resnet-34", 150)
    shown = vsetune("networks", "show", "mse").out
    assert "backbone.rate_factor" in shown
    assert "[16, 32]" in shown
    assert vsetune("losses", "show", "lsehh").refused("lsehh", "lseh")


def test_a_dry_run_prints_the_resolved_study(vsetune, study) -> None:
    said = vsetune("study", "run", str(study()), "--dry-run")
    assert said.code == 0
    assert "gradient_clip: 2.0" in said.out


def test_the_schema_is_json(vsetune) -> None:
    assert json.loads(vsetune("study", "schema").out)["title"] == "StudySpec"
    assert json.loads(vsetune("nightly", "schema").out)["title"] == "NightlySpec"


def test_ctrl_c_exits_130_and_the_same_command_goes_on(vsetune, study, monkeypatch) -> None:
    path = str(study(training={"epochs": 3, "batch_size": 40, "learning_rate": 1e-3}))
    validated = []
    validate = TrainingAttempt._validate

    def stop_in_the_second_epoch(attempt: TrainingAttempt) -> Any:
        if validated:
            raise KeyboardInterrupt
        validated.append(validate(attempt))
        return validated[-1]

    with monkeypatch.context() as patch:
        patch.setattr(TrainingAttempt, "_validate", stop_in_the_second_epoch)
        said = vsetune("train", path)
    assert said.code == 130
    assert said.lines[-1].startswith("interrupted; ")
    said = vsetune("train", path, "--json")
    assert said.code == 0
    assert json.loads(said.out)["wasted_epochs"] == 1.0
    assert "M-Recall" in said.err, "messages are kept apart"


def test_data_can_be_made_verified_and_shown(vsetune, home, tmp_path) -> None:
    assert vsetune("data", "make-scenes", "--train", "12", "--validation", "4", "--test", "4").code == 0
    assert vsetune("data", "verify", "data/scenes").code == 0
    sheet = tmp_path / "sheet.png"
    said = vsetune("data", "show", "data/scenes", "--count", "4", "--sheet", str(sheet))
    assert said.code == 0, said.err
    assert "train" in said.out
    assert sheet.stat().st_size > 1000
    assert vsetune("data", "show", "data/scenes", "--count", "2").code == 0
    assert (home / "sheets" / "scenes-train.png").stat().st_size > 1000
