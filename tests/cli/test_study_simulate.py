"""`vsetune study simulate`: a table to people, JSON to machines, one line to whoever asks for what there is not."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from vsetune.records.events import AttemptStart, StudyRecord, ValidationPoint
from vsetune.study.study_file import load_study


def test_a_study_is_simulated_on_the_landscapes_asked_for(
    vsetune: Callable[..., Any], study: Callable[..., Path]
) -> None:
    file = study(search={"configurations": 4}, training={"epochs": 3}, scheduler={"grace_epochs": 1})
    words = ("--seeds", "2", "--workers", "2", "--landscape", "ridge", "--landscape", "smooth")
    shown = vsetune("study", "simulate", str(file), *words)
    assert shown.code == 0
    assert "tiny: sobol start, then gp, patience 2 over the median (grace 1), 12 epochs a cell, 3 a trial" in shown.out
    assert "a miss as 24;" in shown.err
    plain = json.loads(vsetune("study", "simulate", str(file), *words, "--json").out)
    assert [row["name"] for row in plain["landscapes"]] == ["smooth", "ridge", "all"]
    assert [row["searches"] for row in plain["landscapes"]] == [2, 2, 4]
    assert plain["miss_epochs"] == 24


def test_a_study_is_simulated_on_what_another_has_recorded(
    vsetune: Callable[..., Any], study: Callable[..., Path], opened: Callable[..., Any]
) -> None:
    file = study(search={"configurations": 4, "sampler": "sobol", "training": {"learning_rate": "default"}},
                 training={"epochs": 2}, losses=[{"name": "lmh", "search": "none"}])
    first = opened(StudyRecord("first", "beef", load_study(file).to_plain()))
    for n in range(8):
        configuration = {"training.learning_rate": 1e-4 * 1.5**n}
        run = first.start_attempt(AttemptStart(
            "first", f"c{n}", "vsepp.lmh", "vsepp", "lmh", 1, 0, "search", configuration, {},
        ))
        first.record_points(run, [ValidationPoint(step, step, step, 20.0 + n * step, 1.0) for step in (1, 2)])
        first.finish_attempt(run, "finished", summary={}, error=None)
    shown = vsetune("study", "simulate", str(file), "--curves", "first", "--seeds", "2")
    assert shown.code == 0, shown.err
    assert "vsepp.lmh: 8 whole trials of first, 2 to 2 epochs; the best 34.00; the nearest is " in shown.err
    assert "within 0.5 points of the best recorded" in shown.err
    assert "vsepp.lmh" in shown.out


@pytest.mark.parametrize(("changes", "words", "told"), [
    ({}, ("--landscape", "smoth"),
     "--landscape: no landscape is called smoth; did you mean smooth? need one of collapse_edge, "),
    ({"search": {"configurations": 1_000_000}}, (), "study.yaml: budget.epochs_per_cell: a simulated cell would come "),
    ({"study": "a/b"}, (), "study.yaml: study: "),
    ({}, ("--curves", "first", "--landscape", "ridge"), "--landscape: got ridge and --curves first, need one of "),
    ({"search": {"objective": "epochs_to_target"}}, ("--curves", "first"), "--curves: search.target of "),
])
def test_what_cannot_be_simulated_is_told_in_one_line(
    vsetune: Callable[..., Any], study: Callable[..., Path], changes: dict[str, Any], words: tuple[str, ...], told: str
) -> None:
    said = vsetune("study", "simulate", str(study(**changes)), *words)
    assert said.code == 2
    (line,) = said.lines
    assert told in line
