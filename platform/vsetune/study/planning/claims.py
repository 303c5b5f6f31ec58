"""What a study could claim of its tuned losses, and the searches and seeds that a wanted difference takes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from vsetune.config.study.cells import Cell
from vsetune.config.study.study_spec import StudySpec
from vsetune.metrics.repeated_searches import FEWEST_REPEATS, Spread, detectable
from vsetune.study.planning.planned_study import StudyPlan, searched_trials

POWER = 0.8
"""Probability with which a difference is found."""
POINTS = Spread(search=0.6, seed=0.5)
"""Assumed standard deviations of M-Recall, points (docs/statistics.md)."""
LOG_EPOCHS = Spread(search=0.15, seed=0.12)
"""The same of the natural logarithm of epochs to a fixed target."""
_MOST_REPEATS, _MOST_SEEDS = 50, 5
_ALPHA = 0.05


@dataclass(frozen=True)
class Design:
    """repeats: searches of every loss. seeds: fresh ones of every winner. trials, epochs, hours: of the whole study so
    changed; hours are those of all trials one after another, None where nothing was measured."""

    repeats: int
    seeds: int
    trials: int
    epochs: float
    hours: float | None


@dataclass(frozen=True)
class Claims:
    """points, per_cent: the smallest differences of M-Recall and of epochs to a target that the study finds with POWER,
    None where it makes no claim. wanted: the cheapest design that finds the wanted difference; None where none was
    asked for, or where even _MOST_REPEATS searches do not find it."""

    points: float | None
    per_cent: float | None
    wanted: Design | None


def claims_of(
    study: StudySpec, cells: Sequence[Cell], plan: StudyPlan, *, points: float | None = None,
    per_cent: float | None = None, spread: tuple[Spread, Spread] = (POINTS, LOG_EPOCHS),
) -> Claims:
    """points: a wanted difference of M-Recall. per_cent: a wanted difference of epochs to a target, such as 20 for a
    fifth fewer; of both the dearer one counts. spread: of M-Recall, in points, and of log epochs."""
    tests = max(1, sum(cell.loss_name != study.baseline for cell in cells))
    level = 1 - _ALPHA / tests  # the first step of Holm's correction
    wanted = [points, None if per_cent is None else -math.log1p(-per_cent / 100)]

    def found(repeats: int, seeds: int) -> list[float]:
        return [detectable(each, repeats=repeats, seeds=seeds, power=POWER, level=level) for each in spread]

    repeats, seeds = study.search.repeats, len(study.seeds) - 1
    is_able = repeats >= FEWEST_REPEATS and seeds > 0
    height, pace = found(repeats, seeds) if is_able else (None, None)
    designs = [
        _design(study, cells, plan, repeats, seeds)
        for repeats in range(FEWEST_REPEATS, _MOST_REPEATS + 1) for seeds in range(1, _MOST_SEEDS + 1)
        if all(need is None or least <= need for need, least in zip(wanted, found(repeats, seeds), strict=True))
    ] if any(need is not None for need in wanted) else []
    return Claims(
        height, None if pace is None else 100 * -math.expm1(-pace),
        min(designs, key=lambda design: design.epochs, default=None),
    )


def _design(study: StudySpec, cells: Sequence[Cell], plan: StudyPlan, repeats: int, seeds: int) -> Design:
    hours = {cell.cell: cell.trial.total / 3600 for cell in plan.cells}
    trials = {
        cell.name: repeats * (searched_trials(study, cell) + seeds) if cell.domains else repeats * (1 + seeds)
        for cell in cells
    }
    return Design(
        repeats, seeds, sum(trials.values()), sum(trials[cell.name] * cell.training["epochs"] for cell in cells),
        sum(trials[name] * hours[name] for name in trials) if hours.keys() >= trials.keys() else None,
    )
