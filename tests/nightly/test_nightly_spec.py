"""A nightly file: read like a study file, mistakes named with file and key, one study for each night."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import yaml
from pydantic import ValidationError
from refusals import refused
from syrupy.assertion import SnapshotAssertion

from vsetune.errors import ConfigError
from vsetune.nightly.night import BY_NAME
from vsetune.nightly.nightly_spec import NightlySpec, Tolerances, load_nightly, nights_per_false_alarm

PLAIN: dict[str, Any] = {
    "nightly": "tiny", "data": {"path": "data/scenes", "scenes": {"train": 48, "validation": 16, "test": 16}},
    "networks": [{"name": "vsepp"}], "losses": [{"name": "lmh"}, {"name": "top_f"}],
    "training": {"epochs": 2, "batch_size": 40},
}
STUDIES = Path(__file__).parents[2] / "studies"


def loaded(folder: Path, **changes: Any) -> NightlySpec:
    file = folder / "nightly.yaml"
    file.write_text(yaml.safe_dump(copy.deepcopy(PLAIN) | changes))
    return load_nightly(file)


def test_the_study_of_a_night_searches_nothing_and_stops_nothing_early(tmp_path: Path) -> None:
    study = loaded(tmp_path, cells=["vsepp.top_f"]).study("nightly-tiny-2026-01-02", [7, 8])
    assert [entry.search for entry in study.losses] == ["none", "none"]
    assert (study.scheduler.kind, study.search.configurations, study.seeds) == ("none", 1, [7, 8])
    assert (study.cells, study.baseline) == (["vsepp.top_f"], "lmh")


def test_every_night_has_other_seeds_and_the_same_ones_again(tmp_path: Path) -> None:
    spec = loaded(tmp_path, seeds=2)
    nights = [spec.seeds_of(f"2026-01-{day:02}") for day in range(1, 29)]
    assert len({seed for seeds in nights for seed in seeds}) == 56
    assert spec.seeds_of("2026-01-01") == nights[0]
    assert loaded(tmp_path, seeds=2, nightly="other").seeds_of("2026-01-01") != nights[0]


@pytest.mark.parametrize("changes", [
    {"losses": [{"name": "lmh", "search": "full"}]}, {"cells": ["vsepp.lmhh"]}, {"cells": ["vsepp.lmh", "vsepp.lmh"]},
    {"tolerances": {"false_alarms": "seldom"}}, {"tolerances": {"baseline_nights": 61}},
    {"tolerances": {"smallest_change": {"epoch_tim": "5 %"}}},
    {"search": {}}, {"resources": {"gpus": 1.5}}, {"target": 0}, {"seeds": [1]},
    {"report": {"webhook": "https://hooks.example/T0"}}, {"report": {"page_url": "https://example.org/|x>"}},
])
def test_a_mistake_is_one_line_with_file_and_key(tmp_path: Path, changes: dict[str, Any]) -> None:
    with pytest.raises(ConfigError) as caught:
        loaded(tmp_path, **changes)
    (problem,) = caught.value.problems
    assert problem.startswith(f"{tmp_path / 'nightly.yaml'}: {next(iter(changes))}")
    assert "hooks.example" not in problem


def test_the_words_of_a_file_with_several_mistakes(tmp_path: Path, snapshot: SnapshotAssertion) -> None:
    with pytest.raises(ConfigError) as caught:
        loaded(
            tmp_path, seeds=0, networks=[],
            tolerances={"false_alarms": "one in 1 nights", "smallest_change": {"epoch_time": 5}},
            report={"webhook": "MY HOOK", "page_url": "javascript:alert(1)"},
        )
    assert [problem.replace(str(tmp_path), "") for problem in caught.value.problems] == snapshot


def test_tolerances_are_plain_words() -> None:
    assert (nights_per_false_alarm("one in 30 nights"), nights_per_false_alarm("2 a month")) == (30, 15)
    given = Tolerances(smallest_change={"epoch_time": "5 %", "best_m_recall": 2, "data_wait": "3 %"})
    assert given.smallest_change_of(BY_NAME["epoch_time"]) == pytest.approx(0.05)
    assert given.smallest_change_of(BY_NAME["best_m_recall"]) == 2
    assert given.smallest_change_of(BY_NAME["data_wait"]) == pytest.approx(0.03)
    assert given.smallest_change_of(BY_NAME["pair_rate"]) == BY_NAME["pair_rate"].smallest_change
    with refused("VSE-G002", got="'one in 1 nights'", by=ValueError):
        nights_per_false_alarm("one in 1 nights")


@pytest.mark.parametrize(("measure", "change"), [
    ("epoch_time", 5), ("best_m_recall", "5 %"), ("epoch_time", "0 %"), ("best_m_recall", True), ("best_m_recall", -1),
])
def test_a_smallest_change_is_in_the_unit_of_its_measure(measure: str, change: object) -> None:
    with pytest.raises(ValidationError) as caught:
        Tolerances.model_validate({"smallest_change": {measure: change}})
    problem = caught.value.errors()[0]["ctx"]["error"].args[0]
    assert (problem.code, problem.fields["got"]) == ("VSE-G001", repr(change))


def test_settings_are_those_of_the_file_and_not_the_defaults_of_the_code(tmp_path: Path) -> None:
    settings = loaded(tmp_path, tolerances={"baseline_nights": 9}, report={"webhook": "MAIL"}).settings()
    assert settings["training"] == {"epochs": 2, "batch_size": 40}
    assert settings.keys() == {"data", "networks", "losses", "training"}
    assert loaded(tmp_path, data=PLAIN["data"] | {"path": "elsewhere"}).settings() == settings


@pytest.mark.parametrize("name", ["nightly.yaml", "nightly_flickr8k.yaml"])
def test_the_shipped_files_are_valid_and_no_two_cells_are_one(name: str) -> None:
    spec = load_nightly(STUDIES / name)
    assert spec.cells is not None
    assert len(set(spec.cells)) == len(spec.cells) >= 12
