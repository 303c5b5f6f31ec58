"""A nightly file: read like a study file, wrong ones told with file and key, one study for each night."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import yaml

from vsetune.errors import ConfigError
from vsetune.nightly.night import BY_NAME
from vsetune.nightly.nightly_spec import NightlySpec, Tolerances, load_nightly, nights_per_false_alarm

PLAIN: dict[str, Any] = {
    "nightly": "tiny", "data": {"path": "data/scenes", "scenes": {"train": 48, "validation": 16, "test": 16}},
    "networks": [{"name": "vsepp"}], "losses": [{"name": "lmh"}, {"name": "top_f"}],
    "training": {"epochs": 2, "batch_size": 40},
}
STUDIES = Path(__file__).parents[2] / "studies"


def written(folder: Path, **changes: Any) -> Path:
    file = folder / "nightly.yaml"
    file.write_text(yaml.safe_dump(copy.deepcopy(PLAIN) | changes))
    return file


def loaded(folder: Path, **changes: Any) -> NightlySpec:
    return load_nightly(written(folder, **changes))


def test_the_study_of_a_night_searches_nothing_and_stops_nothing_early(tmp_path: Path) -> None:
    study = loaded(tmp_path, cells=["vsepp.top_f"]).study("nightly-tiny-2026-01-02", [7, 8])
    assert [entry.search for entry in study.losses] == ["none", "none"]
    assert (study.scheduler.kind, study.search.configurations, study.seeds) == ("none", 1, [7, 8])
    assert study.cells == ["vsepp.top_f"]
    assert study.baseline == "lmh"


def test_every_night_draws_other_seeds_and_draws_them_again_the_same(tmp_path: Path) -> None:
    spec = loaded(tmp_path, seeds=2)
    nights = [spec.seeds_of(f"2026-01-{day:02}") for day in range(1, 29)]
    assert len({seed for seeds in nights for seed in seeds}) == 56
    assert spec.seeds_of("2026-01-01") == nights[0]
    assert loaded(tmp_path, seeds=2, nightly="other").seeds_of("2026-01-01") != nights[0]


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"losses": [{"name": "lmh", "search": "default"}]}, "losses[0].search: a nightly sweep searches nothing"),
        ({"cells": ["vsepp.lmhh"]}, "cells: got vsepp.lmhh, need network.loss of the networks vsepp and the loss"),
        ({"cells": ["vsepp.lmh", "vsepp.lmh"]}, "cells: vsepp.lmh is listed twice"),
        ({"tolerances": {"false_alarms": "seldom"}}, "tolerances.false_alarms: got 'seldom', need `one in N nights`"),
        ({"tolerances": {"false_alarms": "one in 1 nights"}}, "need between one in 2 and one in 3650 nights"),
        ({"tolerances": {"smallest_change": {"epoch_tim": "5 %"}}}, "epoch_tim; did you mean epoch_time?"),
        ({"tolerances": {"smallest_change": {"epoch_time": 5}}}, "epoch_time: got 5, need per cent, such as 5 %"),
        ({"tolerances": {"smallest_change": {"best_m_recall": "5 %"}}}, "got '5 %', need a number of points"),
        ({"tolerances": {"smallest_change": {"epoch_time": "0 %"}}}, "epoch_time: got '0 %', need more than 0"),
        ({"search": {}}, "search: unknown key"),
        ({"resources": {"gpus": 1.5}}, "resources.gpus: got 1.5, need 0, a fraction of a GPU or 1"),
        ({"target": 0}, "target: got 0, need a number > 0"),
        ({"seeds": [1]}, "seeds: got [1]"),
        ({"report": {"webhook": "https://hooks.example/T0"}}, "report.webhook"),
    ],
)
def test_a_wrong_file_is_told_with_its_key(tmp_path: Path, changes: dict[str, Any], told: str) -> None:
    file = written(tmp_path, **changes)
    with pytest.raises(ConfigError) as caught:
        load_nightly(file)
    assert str(caught.value).startswith(f"{file}: ")
    assert told in str(caught.value)
    assert "hooks.example" not in str(caught.value)
    assert len(caught.value.problems) == 1


def test_tolerances_are_plain_words() -> None:
    assert nights_per_false_alarm("one in 30 nights") == 30
    assert nights_per_false_alarm("2 a month") == 15
    given = Tolerances(smallest_change={"epoch_time": "5 %", "best_m_recall": 2, "data_wait": "3 %"})
    assert given.smallest_change_of(BY_NAME["epoch_time"]) == pytest.approx(0.05)
    assert given.smallest_change_of(BY_NAME["best_m_recall"]) == 2
    assert given.smallest_change_of(BY_NAME["data_wait"]) == pytest.approx(0.03)
    assert given.smallest_change_of(BY_NAME["pair_rate"]) == BY_NAME["pair_rate"].smallest_change


def test_settings_are_what_the_file_says_and_not_the_defaults_of_the_code(tmp_path: Path) -> None:
    settings = loaded(tmp_path, tolerances={"baseline_nights": 9}, report={"mail_to": ["a@b.org"]}).settings()
    assert settings["training"] == {"epochs": 2, "batch_size": 40}
    assert settings.keys() == {"data", "networks", "losses", "training"}
    moved = {"data": {**PLAIN["data"], "path": "elsewhere"}}
    assert loaded(tmp_path, **moved).settings() == settings


@pytest.mark.parametrize("name", ["nightly.yaml", "nightly_flickr8k.yaml"])
def test_the_shipped_files_are_valid_and_no_two_cells_are_one(name: str) -> None:
    spec = load_nightly(STUDIES / name)
    assert spec.cells is not None
    assert len(set(spec.cells)) == len(spec.cells) >= 12
