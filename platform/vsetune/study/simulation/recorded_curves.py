"""Searches on recorded curves: a configuration gets the curve of the nearest recorded configuration."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from scipy.spatial import KDTree

from vsetune.config.spec.base import Domain
from vsetune.config.study.cells import Cell, resolve_cells
from vsetune.config.study.domains import Value
from vsetune.config.study.study_spec import StudySpec
from vsetune.errors import UsageError
from vsetune.metrics.curves import Curve, best_of_curve
from vsetune.records.events import was_cut_short
from vsetune.records.studies import Studies
from vsetune.report.selection import Trial, trials_of, usable
from vsetune.search.sampling.sampler import UnitCube, Vector, distributions_of, even_point
from vsetune.study import messages
from vsetune.study.recorded_studies import study_of
from vsetune.study.simulation.landscapes import STEPS_PER_EPOCH, validated_epochs


class Nearest:
    """Distances are Euclidean: the two ends of a range are 1 apart (on a log scale where the range has one), two
    different choices the square root of 2. Settings without effect count with their defaults."""

    def __init__(self, cell: Cell, configurations: Sequence[Mapping[str, Value]]) -> None:
        """configurations: at least one, of the cell's space."""
        self._defaults, self._distributions = cell.all_defaults(), distributions_of(cell)
        self._cube = UnitCube(self._distributions)
        self._tree = KDTree([self._place(configuration) for configuration in configurations])

    def place_of(self, configuration: Mapping[str, Value]) -> int:
        """Which of the configurations is the nearest, counted from 0."""
        return int(self._tree.query(self._place(configuration))[1])

    def distances(self, count: int) -> Vector:
        """(count,): from evenly spread points of the space to the nearest configuration, ascending."""
        points = [self._place(even_point(self._distributions, number, seed_name="0")) for number in range(count)]
        return np.sort(self._tree.query(points)[0])

    def _place(self, configuration: Mapping[str, Value]) -> Vector:
        return self._cube.vector_of({name: configuration.get(name, self._defaults[name]) for name in self._defaults})


FEWEST_TRIALS = 8
"""Fewest whole trials of a cell. With fewer, the nearest recorded configuration is too far away."""
_EVEN_POINTS = 256


@dataclass(frozen=True, eq=False)
class RecordedLandscape:
    """A cell of a study file with the curves of a recorded study. source: name of the recorded study. curves: of its
    whole trials, (epoch, M-Recall in per cent), in the order of `nearest`. epochs: of a whole training in the file."""

    source: str
    cell: Cell
    curves: Sequence[Curve]
    nearest: Nearest
    epochs: float

    @property
    def name(self) -> str:
        return self.cell.name

    def surface(self, seed: int) -> RecordedLandscape:
        """This landscape, the same for every seed."""
        return self

    @cached_property
    def top(self) -> float:
        """The highest M-Recall of any recorded trial at the validations of a simulated one."""
        progress = validated_epochs(self.epochs) / self.epochs
        return max(float(self._followed(curve, progress).max()) for curve in self.curves)

    def training_of(self, configuration: Mapping[str, Any], progress: Vector, chance: np.random.Generator) -> Vector:
        """The recorded curve, which has its noise already."""
        return self.curve_of(configuration, progress)

    def curve_of(self, configuration: Mapping[str, Any], progress: Vector) -> Vector:
        """The curve of the nearest configuration: straight lines between its validations, starting from 0 at epoch 0,
        and constant after the last. progress: shares of a whole training in the file."""
        return self._followed(self.curves[self.nearest.place_of(configuration)], progress)

    def truth(self, configuration: Mapping[str, Any], progress: Vector) -> float:
        """The highest M-Recall of its curve at these shares."""
        return float(self.curve_of(configuration, progress).max())

    def epochs_to(self, configuration: Mapping[str, Any], target: float, epochs: float) -> float:
        """The epoch at which its curve reaches the target, to a twentieth of an epoch; inf if it never does."""
        return self._epochs_to(self.curves[self.nearest.place_of(configuration)], target, epochs)

    def fewest_epochs(self, target: float, epochs: float) -> float:
        """The fewest epochs to the target over all recorded curves."""
        return min(self._epochs_to(curve, target, epochs) for curve in self.curves)

    def study_of(self, study: StudySpec, *, seed: int, target: float) -> StudySpec:
        """The study with this cell alone and the search seed offset by `seed`. target: replaces the baseline's best."""
        search: dict[str, Any] = {"seed": (study.search.seed + seed) % 2**63, "repeats": 1}
        if study.search.target == "baseline":
            search["target"] = target
        return study.model_copy(update={
            "cells": [self.cell.name], "seeds": study.seeds[:1], "search": study.search.model_copy(update=search),
        })

    def says(self) -> str:
        """One line on the recorded trials and the distance of configurations from the nearest of them."""
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
    """The landscapes of every cell of `study` that the recorded study `source` has too, in the order of the file.

    UsageError if the store does not have the recorded study, or if the study has none of these cells, another search
    space of one, or fewer than FEWEST_TRIALS whole search trials of one. ConfigError if it cannot be read here.
    """
    record = store.record(source)
    recorded = {cell.name: cell for cell in resolve_cells(study_of(record), where=f"study {source}")}
    cells = [cell for cell in resolve_cells(study, where=where) if cell.name in recorded and cell.domains]
    if not cells:
        raise UsageError(messages.CURVES_OTHER_CELLS(source=source, cells=", ".join(recorded), where=where))
    trials = trials_of(store.attempts(source))
    return [_landscape(cell, recorded[cell.name], trials, source=source, where=where) for cell in cells]


def _landscape(
    cell: Cell, recorded: Cell, trials: Sequence[Trial], *, source: str, where: str
) -> RecordedLandscape:
    if difference := _difference(cell.domains, recorded.domains):
        setting, got, need = difference
        raise UsageError(messages.CURVES_OTHER_SPACE(
            cell=cell.name, setting=setting, got=got, where=where, need=need, source=source
        ))
    whole = [trial[-1] for trial in trials if trial[-1].start.cell == cell.name and _is_whole(trial)]
    if len(whole) < FEWEST_TRIALS:
        raise UsageError(messages.CURVES_TOO_FEW(cell=cell.name, source=source, got=len(whole), need=FEWEST_TRIALS))
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
    """(setting, its domain here, its domain there) of the first setting that differs; None if none does."""
    for name in sorted(ours.keys() | theirs.keys()):
        if ours.get(name) != theirs.get(name):
            return name, _shown(ours.get(name)), _shown(theirs.get(name))
    return None


def _shown(domain: Domain | None) -> str:
    if domain is None:
        return "not searched"
    return ", ".join(f"{key} {value}" for key, value in domain.to_plain().items() if value is not False)
