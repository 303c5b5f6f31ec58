"""Searches on recorded curves: what a configuration would come to is what the nearest recorded one came to.

A configuration between the recorded ones gets a curve that was measured, though for another: the fewer trials there are
and the farther apart, the coarser the landscape. Its optimum is the best that was recorded, which says nothing of what
nobody has tried. Curves are as they were, noise included, and the same in every search.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from vsetune.config.spec.base import Domain
from vsetune.config.study.cells import Cell, resolve_cells
from vsetune.config.study.study_spec import StudySpec
from vsetune.errors import UsageError
from vsetune.jobs.recorded_studies import study_of
from vsetune.jobs.simulation.landscapes import STEPS_PER_EPOCH, Vector, validated_epochs
from vsetune.leaderboard.selection import Trial, trials_of, usable
from vsetune.metrics.curves import Curve, best_of_curve
from vsetune.records.attempts import was_cut_short
from vsetune.records.studies import Studies
from vsetune.search.nearest import Nearest

FEWEST_TRIALS = 8
"""Of a cell, whole ones: with fewer the nearest recorded configuration is no neighbour."""
_EVEN_POINTS = 256


@dataclass(frozen=True, eq=False)
class RecordedLandscape:
    """A cell of a study file, as a recorded study knows it. source: that study's name. curves: of its whole trials,
    (epoch, M-Recall in per cent), in the order of `nearest`. epochs: of a whole training in the file."""

    source: str
    cell: Cell
    curves: Sequence[Curve]
    nearest: Nearest
    epochs: float

    noise: ClassVar[float] = 0.0

    @property
    def name(self) -> str:
        return self.cell.name

    def surface(self, seed: int) -> RecordedLandscape:
        """The same for every seed."""
        return self

    @cached_property
    def top(self) -> float:
        """The highest M-Recall of any recorded trial, validated as a simulated one is."""
        progress = validated_epochs(self.epochs) / self.epochs
        return max(float(self._followed(curve, progress).max()) for curve in self.curves)

    def curve_of(self, configuration: Mapping[str, Any], progress: Vector) -> Vector:
        """Of the nearest configuration: straight lines between its validations, from 0 before the first and level after
        the last. progress: shares of a whole training in the file."""
        return self._followed(self.curves[self.nearest.place_of(configuration)], progress)

    def truth(self, configuration: Mapping[str, Any], progress: Vector) -> float:
        """The best of its curve at these shares."""
        return float(self.curve_of(configuration, progress).max())

    def epochs_to(self, configuration: Mapping[str, Any], target: float, epochs: float) -> float:
        """When its curve reaches the target, to a twentieth of an epoch; inf: never."""
        return self._epochs_to(self.curves[self.nearest.place_of(configuration)], target, epochs)

    def fewest_epochs(self, target: float, epochs: float) -> float:
        """The same of the recorded curve that is soonest."""
        return min(self._epochs_to(curve, target, epochs) for curve in self.curves)

    def study_of(self, study: StudySpec, *, seed: int, target: float) -> StudySpec:
        """The study with this cell alone and a search of its own. target: in place of a baseline's best."""
        search: dict[str, Any] = {"seed": (study.search.seed + seed) % 2**63, "warm_start": []}
        if study.search.target == "baseline":
            search["target"] = target
        return study.model_copy(update={
            "cells": [self.cell.name], "seeds": study.seeds[:1], "search": study.search.model_copy(update=search),
        })

    def says(self) -> str:
        """What was recorded, and how far a configuration is from it, in one line."""
        distances = self.nearest.distances(_EVEN_POINTS)
        lengths = [curve[-1][0] for curve in self.curves]
        short = sum(length < self.epochs - 1e-6 for length in lengths)
        held = f", {short} of them held level from their last epoch on" if short else ""
        return (
            f"{self.name}: {len(self.curves)} whole trials of {self.source}, {min(lengths):g} to {max(lengths):g} "
            f"epochs{held}; the best {self.top:.2f}; the nearest is {np.median(distances):.2f} away in the median and "
            f"{distances[-1]:.2f} at most ({len(self.cell.domains)} settings, each from 0 to 1)"
        )

    def _followed(self, curve: Curve, progress: Vector) -> Vector:
        epochs, m_recalls = zip((0.0, 0.0), *curve, strict=True)
        m_recall: Vector = np.interp(progress * self.epochs, epochs, m_recalls)
        return m_recall

    def _epochs_to(self, curve: Curve, target: float, epochs: float) -> float:
        steps = math.ceil(epochs * STEPS_PER_EPOCH)
        progress = np.arange(1, steps + 1) / steps
        reached = np.flatnonzero(self._followed(curve, progress * epochs / self.epochs) >= target)
        return float(progress[reached[0]] * epochs) if len(reached) else math.inf


def recorded_landscapes(study: StudySpec, store: Studies, source: str, *, where: str) -> list[RecordedLandscape]:
    """Of every cell of `study` that the recorded study `source` has too, in the order of the file.

    UsageError for a study that the store does not have, one without any of these cells, with another space of one, or
    with fewer than FEWEST_TRIALS whole trials of its search in one. ConfigError where it cannot be read here.
    """
    record = store.record(source)
    recorded = {cell.name: cell for cell in resolve_cells(study_of(record), where=f"study {source}")}
    cells = [cell for cell in resolve_cells(study, where=where) if cell.name in recorded and cell.domains]
    if not cells:
        raise UsageError(
            f"--curves: study {source} has the cells {', '.join(recorded)}, none of which {where} searches; need one "
            "with the same name"
        )
    trials = trials_of(store.attempts(source))
    return [_landscape(cell, recorded[cell.name], trials, source=source, where=where) for cell in cells]


def _landscape(
    cell: Cell, recorded: Cell, trials: Sequence[Trial], *, source: str, where: str
) -> RecordedLandscape:
    if difference := _difference(cell.domains, recorded.domains):
        raise UsageError(
            f"--curves: cell {cell.name}: {difference[0]} is {difference[1]} in {where} and {difference[2]} in study "
            f"{source}; need the same space in both"
        )
    whole = [trial[-1] for trial in trials if trial[-1].start.cell == cell.name and _is_whole(trial)]
    if len(whole) < FEWEST_TRIALS:
        raise UsageError(
            f"--curves: cell {cell.name}: study {source} has {len(whole)} whole trials of its search, need at least "
            f"{FEWEST_TRIALS}; record more, without early stopping"
        )
    nearest = Nearest(cell, [
        {name: attempt.start.configuration[name] for name in cell.domains if name in attempt.start.configuration}
        for attempt in whole
    ])
    curves = [attempt.curve for attempt in whole]
    return RecordedLandscape(source, cell, curves, nearest, float(cell.training["epochs"]))


def _is_whole(trial: Trial) -> bool:
    last = trial[-1]
    return (
        last.start.phase == "search" and last.status == "finished" and usable(trial)
        and not was_cut_short(last.status, last.error) and math.isfinite(best_of_curve(last.curve).m_recall)
    )


def _difference(ours: Mapping[str, Domain], theirs: Mapping[str, Domain]) -> tuple[str, str, str] | None:
    """(setting, its domain here, its domain there) of the first that differs; None where none does."""
    for name in sorted(ours.keys() | theirs.keys()):
        if ours.get(name) != theirs.get(name):
            return name, _shown(ours.get(name)), _shown(theirs.get(name))
    return None


def _shown(domain: Domain | None) -> str:
    if domain is None:
        return "not searched"
    return ", ".join(f"{key} {value}" for key, value in domain.to_plain().items() if value is not False)
