"""A study file is read with all of its problems at once, each in one line that names the key and the fix."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from vsetune.config.cells import build_trial, resolve_cells
from vsetune.config.loading import load_spec, parse_spec
from vsetune.config.study import StudySpec
from vsetune.errors import ConfigError

STUDIES = sorted((Path(__file__).parents[2] / "studies").glob("*.yaml"))

MINIMAL: dict[str, Any] = {
    "study": "tiny", "data": {"path": "data/scenes"}, "networks": [{"name": "vsepp"}],
    "losses": [{"name": "lmh"}, {"name": "lseh"}],
}


def problems(changes: dict[str, Any]) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        resolve_cells(parse_spec(MINIMAL | changes, StudySpec, where="f.yaml"), where="f.yaml")
    assert all("\n" not in line for line in caught.value.problems)
    return caught.value.problems


@pytest.mark.parametrize("path", STUDIES, ids=lambda path: path.stem)
def test_every_shipped_study_is_valid(path: Path) -> None:
    study = load_spec(path, StudySpec)
    assert len(resolve_cells(study, where=str(path))) == len(study.networks) * len(study.losses)


def test_the_shipped_studies_are_found() -> None:
    assert {path.stem for path in STUDIES} >= {"quickstart", "flickr8k", "lseh_table3"}


def test_an_unknown_key_is_named_with_the_closest_known_one() -> None:
    assert problems({"lossess": []}) == ["f.yaml: lossess: unknown key; did you mean losses?"]


def test_an_unknown_loss_is_named_with_the_closest_and_the_list() -> None:
    (line,) = problems({"losses": [{"name": "lshe"}], "baseline": "lshe"})
    assert line.startswith("f.yaml: losses[0].name: no loss is called lshe; did you mean lsh")
    assert "lseh" in line


def test_a_number_out_of_range_says_what_was_found_and_what_is_needed() -> None:
    assert problems({"training": {"epochs": -4}}) == ["f.yaml: training.epochs: got -4, need a number > 0"]


def test_all_problems_are_reported_together() -> None:
    lines = problems({"training": {"epochs": -4, "batch_size": 1}, "studdy": "x", "seeds": []})
    assert [line.split(": ")[1] for line in lines] == ["training.epochs", "training.batch_size", "seeds", "studdy"]


def test_a_hyperparameter_out_of_range_is_reported_for_its_cell() -> None:
    (line,) = problems({"losses": [{"name": "lmh", "fixed": {"margin": -3}}]})
    assert line == "f.yaml: cell vsepp.lmh: loss.margin: got -3, need a number >= 0"


def test_a_search_range_that_leaves_the_allowed_values_is_refused() -> None:
    (line,) = problems({"losses": [{"name": "lmh", "search": {"margin": {"low": -0.5, "high": 0.3}}}]})
    assert "loss.margin: got -0.5" in line
    assert "end of its search range" in line


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"baseline": "lsh"}, "baseline: lsh is not among the losses lmh, lseh"),
        ({"losses": [{"name": "lmh"}, {"name": "lmh"}]}, "lmh is listed twice; give one of them a `label`"),
        ({"seeds": [1, 1]}, "seeds: got [1, 1]"),
        ({"overrides": [{"network": "vsepp", "loss": "lsh"}]}, "no cell vsepp.lsh"),
        ({"training": {"epochs": 0.5}}, "scheduler.grace_epochs: got 1, need at most training.epochs (0.5)"),
        (
            {"losses": [{"name": "lmh", "fixed": {"margin": 0.1}, "search": {"margin": "default"}}]},
            "losses[0].search.margin: is also in `fixed`",
        ),
        ({"losses": [{"name": "lmh", "search": {"variant": "default"}}]}, "has no default range"),
        (
            {"losses": [{"name": "lmh", "search": {"marggin": "default"}}]},
            "losses[0].search: no hyperparameter is called marggin; did you mean margin?",
        ),
        ({"training": {"batch_unit": "images"}}, "which lseh does not define; use batch_unit pairs"),
        ({"losses": [{"name": "lmh", "search": {"margin": {"low": 0.4, "high": 0.3}}}]}, "low 0.4 is above high 0.3"),
    ],
)
def test_a_contradiction_is_refused_with_its_fix(changes: dict[str, Any], expected: str) -> None:
    assert any(expected in line for line in problems(changes)), problems(changes)


def test_defaults_of_the_papers_are_the_first_configuration() -> None:
    study = parse_spec(MINIMAL | {"search": {"training": {"learning_rate": "default"}}}, StudySpec, where="f")
    lseh = resolve_cells(study, where="f")[1]
    assert lseh.defaults() == {
        "loss.margin": 0.185, "loss.semantic_temperature": 0.025, "training.learning_rate": 2e-4,
    }


def test_overrides_win_over_entries_and_entries_over_the_study() -> None:
    study = parse_spec(
        MINIMAL | {
            "training": {"learning_rate": 1e-4, "epochs": 4},
            "networks": [{"name": "vsepp", "training": {"learning_rate": 2e-4, "batch_size": 32}}],
            "losses": [{"name": "lmh", "search": "none", "training": {"batch_size": 64}}],
            "overrides": [
                {"network": "vsepp", "loss": "lmh", "fixed": {"margin": 0.3}, "training": {"learning_rate": 5e-4}}
            ],
        },
        StudySpec, where="f",
    )
    (cell,) = resolve_cells(study, where="f")
    trial = build_trial(study, cell, {}, trial="t", seed=3)
    assert (trial.training.learning_rate, trial.training.batch_size, trial.training.epochs) == (5e-4, 64, 4)
    assert trial.loss.margin == 0.3
    assert cell.domains == {}


def test_a_key_written_twice_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "s.yaml"
    path.write_text("study: a\nstudy: b\n")
    with pytest.raises(ConfigError, match="key study is written twice"):
        load_spec(path, StudySpec)


def test_exponents_without_a_point_are_numbers(tmp_path: Path) -> None:
    path = tmp_path / "s.yaml"
    path.write_text(
        "study: a\ndata: {path: x}\nnetworks: [{name: vsepp}]\nlosses: [{name: lmh}]\ntraining: {learning_rate: 1e-3}\n"
    )
    assert load_spec(path, StudySpec).training.learning_rate == 1e-3


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", "got nothing at the top level"), ("- 1", "got a list"),
        ("a: [", "not valid YAML: line 1, column 5: "), ("a: !!python/none", "not valid YAML"),
    ],
)
def test_a_file_that_is_no_mapping_is_refused_in_one_line(tmp_path: Path, text: str, expected: str) -> None:
    path = tmp_path / "s.yaml"
    path.write_text(text)
    with pytest.raises(ConfigError, match=expected) as caught:
        load_spec(path, StudySpec)
    assert "\n" not in str(caught.value)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"nothing\.yaml: no such file"):
        load_spec(tmp_path / "nothing.yaml", StudySpec)


def test_equal_studies_have_equal_fingerprints_and_different_ones_do_not() -> None:
    first = parse_spec(MINIMAL, StudySpec, where="f")
    again = parse_spec(dict(reversed(MINIMAL.items())), StudySpec, where="f")
    other = parse_spec(MINIMAL | {"seeds": [1]}, StudySpec, where="f")
    assert first.fingerprint() == again.fingerprint() != other.fingerprint()
