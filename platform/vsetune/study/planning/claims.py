"""What a study could claim of its tuned losses, and the searches and seeds that a wanted difference takes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

from vsetune.board.building import build
from vsetune.board.comparing import means_of, units_of
from vsetune.config.study.cells import Cell
from vsetune.config.study.study_spec import StudySpec
from vsetune.errors import UsageError
from vsetune.metrics.efficiency import TARGET_SHARE, epochs_to_target
from vsetune.metrics.repeated_searches import FEWEST_REPEATS, Spread, detectable, spread
from vsetune.records.studies import Studies
from vsetune.study.observed import promised_trials
from vsetune.study.planning.planned_study import StudyPlan
from vsetune.study.recorded_studies import study_of

POWER = 0.8
"""Probability with which a difference is found."""
POINTS = Spread(search=0.6, seed=0.5)
"""Assumed standard deviations of M-Recall, points (docs/statistics.md)."""
LOG_EPOCHS = Spread(search=0.15, seed=0.12)
"""The same of the natural logarithm of epochs to a fixed target."""
ASSUMED = POINTS, LOG_EPOCHS
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
    asked for, or where even _MOST_REPEATS searches do not find it. spread: of M-Recall, and of log epochs."""

    points: float | None
    per_cent: float | None
    wanted: Design | None
    spread: tuple[Spread, Spread]


def claims_of(
    study: StudySpec, cells: Sequence[Cell], plan: StudyPlan, *, points: float | None = None,
    per_cent: float | None = None, spread: tuple[Spread, Spread] = ASSUMED,
) -> Claims:
    """points: a wanted difference of M-Recall. per_cent: a wanted difference of epochs to a target, such as 20 for a
    fifth fewer; of both the dearer one counts. spread: of M-Recall, in points, and of log epochs."""
    tests = max(1, sum(cell.loss_name != study.baseline for cell in cells))
    level = 1 - _ALPHA / tests  # the first step of Holm's correction

    def found(repeats: int, seeds: int) -> tuple[float, float]:
        height, pace = (detectable(each, repeats=repeats, seeds=seeds, power=POWER, level=level) for each in spread)
        return height, 100 * -math.expm1(-pace)

    seeds, wanted = len(study.seeds) - 1, [math.inf if each is None else each for each in (points, per_cent)]
    is_able = study.search.repeats >= FEWEST_REPEATS and seeds > 0
    designs = [] if wanted == [math.inf, math.inf] else [
        _design(study, cells, plan, repeats, seeds)
        for repeats in range(FEWEST_REPEATS, _MOST_REPEATS + 1) for seeds in range(1, _MOST_SEEDS + 1)
        if all(least <= need for least, need in zip(found(repeats, seeds), wanted, strict=True))
    ]
    height, pace = found(study.search.repeats, seeds) if is_able else (None, None)
    return Claims(height, pace, min(designs, key=lambda design: design.epochs, default=None), spread)


def recorded_spread(study: str) -> tuple[Spread, Spread]:
    """Deviations of M-Recall, in points, and of log epochs to the target, pooled over the tuned losses of a recorded
    study. UsageError if no loss of it has two confirmed searches and two seeds in one of them."""
    studies = Studies()
    board = build(studies.attempts(study), baseline=study_of(studies.record(study)).baseline)
    found: list[tuple[Spread, Spread]] = []
    for _, _, rows in board.groups():
        best = means_of(units_of(next((row for row in rows if row.is_baseline), rows[0])))
        for units in [units_of(row) for row in rows if row.is_tuned and best]:
            target = TARGET_SHARE * fmean(best)
            height = spread([[seed.best_m_recall for seed in unit] for unit in units])
            pace = spread([[math.log(epochs_to_target(seed.curve, target).value) for seed in unit] for unit in units])
            found += [] if height is None or pace is None else [(height, pace)]
    if not found:
        raise UsageError(
            "VSE-S085", "study {study}: no tuned loss has two searches with confirming seeds, so it shows no deviation "
            "between searches; name a study with search.repeats of 2 or more", study=study,
        )
    height, pace = (
        Spread(*(math.sqrt(fmean(getattr(each, part) ** 2 for each in of_losses)) for part in ("search", "seed")))
        for of_losses in zip(*found, strict=True)
    )
    return height, pace


def _design(study: StudySpec, cells: Sequence[Cell], plan: StudyPlan, repeats: int, seeds: int) -> Design:
    search = study.search.model_copy(update={"repeats": repeats})
    changed = study.model_copy(update={"search": search, "seeds": list(range(seeds + 1))})
    hours = {cell.cell: cell.trial_seconds / 3600 for cell in plan.cells}
    trials = {cell.name: promised_trials(changed, [cell]) for cell in cells}
    return Design(
        repeats, seeds, sum(trials.values()), sum(trials[cell.name] * cell.training["epochs"] for cell in cells),
        sum(trials[name] * hours[name] for name in trials) if hours.keys() >= trials.keys() else None,
    )
