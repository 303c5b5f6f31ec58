"""`vsetune study simulate`: a table to people, JSON to machines, one line to whoever asks for what there is not."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any


def test_a_study_is_simulated_on_the_landscapes_asked_for(
    vsetune: Callable[..., Any], study: Callable[..., Path]
) -> None:
    file = study(search={"configurations": 4}, training={"epochs": 3}, scheduler={"grace_epochs": 1})
    words = ("--seeds", "2", "--workers", "2", "--landscape", "ridge", "--landscape", "smooth")
    shown = vsetune("study", "simulate", str(file), *words)
    assert shown.code == 0
    assert "tiny: tpe, asha (grace 1, factor 3), at most 4 configurations of 3 epochs" in shown.out
    assert "a miss as 24;" in shown.err
    plain = json.loads(vsetune("study", "simulate", str(file), *words, "--json").out)
    assert [row["name"] for row in plain["landscapes"]] == ["smooth", "ridge", "all"]
    assert [row["searches"] for row in plain["landscapes"]] == [2, 2, 4]
    assert plain["miss_epochs"] == 24


def test_an_unknown_landscape_is_one_line_with_those_there_are(
    vsetune: Callable[..., Any], study: Callable[..., Path]
) -> None:
    said = vsetune("study", "simulate", str(study()), "--landscape", "smoth")
    assert said.code == 2
    (line,) = said.lines
    assert "--landscape: no landscape is called smoth; did you mean smooth? need one of collapse_edge, " in line


def test_a_study_too_large_to_simulate_is_one_line(vsetune: Callable[..., Any], study: Callable[..., Path]) -> None:
    said = vsetune("study", "simulate", str(study(search={"configurations": 1_000_000})))
    assert said.code == 2
    (line,) = said.lines
    assert f"{study()}: budget.epochs_per_cell: " in line
