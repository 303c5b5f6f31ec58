"""The mean of a measure over all cells, which shows a small change common to all cells first."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from vsetune.nightly.judging.arrays import Floats, Streams, of_all_cells
from vsetune.nightly.judging.noise import median
from vsetune.nightly.judging.tolerance import Tolerance
from vsetune.nightly.measures import Measure

FEWEST = 2
"""Fewest cells that a night needs for a mean."""


@dataclass(frozen=True)
class AllCells:
    """Further streams for `judge`, one per measure that several cells have. past, tonight and measures are appended to
    those of the cells. measures: same direction and scale, under another name because their noise is less than a
    cell's. of: the measure that each one averages."""

    past: Floats
    tonight: Floats
    measures: list[Measure]
    of: list[Measure]


def all_cells(past: Floats, tonight: Floats, measures: Sequence[Measure], tolerance: Tolerance) -> AllCells:
    """Mean over the cells, of logarithms where ratio (the geometric mean). Arguments as for `judge`.

    A cell that is missing one night does not move the mean: the mean is over each cell's difference from its own past
    median. A cell without a past does not count.
    """
    streams = Streams.of(measures, [tolerance.change_that_matters(measure) for measure in measures])
    nights = np.concatenate([streams.judged(past), streams.judged(tonight)[None]])
    level = median(nights[:-1].T)
    columns, found, named = [], [], []
    for number in np.unique(streams.measure):
        cells = np.flatnonzero((streams.measure == number) & np.isfinite(level))
        if len(cells) < FEWEST:
            continue
        of = measures[cells[0]]
        away = nights[:, cells] - level[cells]
        known = np.isfinite(away)
        mean = np.nansum(away, axis=1) / np.maximum(known.sum(axis=1), 1) + level[cells].mean()
        column = np.where(known.sum(axis=1) >= FEWEST, mean, np.nan) * streams.sign[cells[0]]
        columns.append(np.exp(np.clip(column, -700, 700)) if of.scale == "ratio" else column)
        smallest = tolerance.smallest_change.get(of.name, of.smallest_change)
        named.append(replace(of, name=of_all_cells(of.name), smallest_change=smallest))
        found.append(of)
    together = np.array(columns).T if columns else np.empty((len(nights), 0))
    return AllCells(together[:-1], together[-1], named, found)
