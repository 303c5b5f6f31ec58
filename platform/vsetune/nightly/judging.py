"""One band for each measure of each cell, from its recent quiet nights (docs/decisions/0039-nightly-verdicts.md)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Literal

import numpy as np
import numpy.typing as npt
from scipy.special import stdtrit

from vsetune.nightly.night import Measure
from vsetune.nightly.nightly_spec import Tolerances

Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]

RECENT = 60
"""Nights that a band is made from."""
FINEST = 1 / 8
"""Share of the smallest change that matters, below which no noise is believed."""
CLIP, CLIPPED_VARIANCE = 2.5, 0.9776
"""Deviations further than CLIP scales from the median are clipped. A standard normal number has this variance then."""
NOTICED = 0.5
"""Share of the usual value that a band must notice; a wider one judges nothing."""
GOES_ON = 0.5
"""Share of the band that ends a reported change: a night within it is quiet again."""
SOON, BEYOND = 7, 1.2
"""A reported change that ended within SOON nights may have been noise. The band of that measure then reaches, in every
cell, BEYOND times as far, but never further than the change that it must notice."""
LARGEST = 1e100
"""Values further from 0 count as missing: their squares could overflow."""


@dataclass(frozen=True)
class Judgement:
    """The verdict on one measure of one cell. centre, low, high: median and band of quiet nights in the measure's unit;
    None in the baseline, and no band where it could not notice half as much again. change: distance to the centre, in
    the unit where linear, a fraction where ratio. since: index of the first night of the change, into the nights, past
    first."""

    verdict: Literal["baseline", "quiet", "regression", "improvement", "missing"]
    centre: float | None = None
    low: float | None = None
    high: float | None = None
    change: float | None = None
    since: int | None = None


@dataclass(frozen=True)
class Columns:
    """Columns of values, each one measure of one cell. sign: +1 where higher is worse. measure: its number."""

    sign: Floats
    is_ratio: Bools
    smallest: Floats
    measure: npt.NDArray[np.int64]

    @classmethod
    def of(cls, measures: Sequence[Measure], tolerances: Tolerances) -> Columns:
        names = [measure.name for measure in measures]
        changes = [tolerances.smallest_change_of(measure) for measure in measures]
        return cls(
            np.array([1.0 if measure.worse == "higher" else -1.0 for measure in measures]),
            np.array([measure.scale == "ratio" for measure in measures], dtype=np.bool_),
            np.array([math.log1p(change) if measure.scale == "ratio" else change
                      for measure, change in zip(measures, changes, strict=True)]),
            np.array([sorted(set(names)).index(name) for name in names], dtype=np.int64),
        )

    def judged(self, values: Floats) -> Floats:
        """(..., columns) as judged: larger is worse, ratios in logarithms, NaN for what is no possible value."""
        known = np.isfinite(values) & (np.abs(np.nan_to_num(values)) <= LARGEST) & (~self.is_ratio | (values > 0))
        plain = np.where(known, values, 1.0)
        return np.where(known, np.where(self.is_ratio, np.log(np.abs(plain) + (plain == 0)), plain) * self.sign, np.nan)


@dataclass(frozen=True)
class Seen:
    """One night as judged, (columns,) each. side: +1 regression, -1 improvement, 0 neither. since: index of its first
    night. reach: half the width of the band; noticed: the largest that judges."""

    nights: Floats
    centre: Floats
    reach: Floats
    noticed: Floats
    change: Floats
    side: Floats
    since: npt.NDArray[np.int64]


def judge(
    past: Floats, tonight: Floats, measures: Sequence[Measure], tolerances: Tolerances, alarmed: Bools
) -> list[Judgement]:
    """One judgement per column. measures: of each column.

    past: (nights, columns), oldest first, NaN where a night does not count or has no value. tonight: (columns,).
    alarmed: (nights, columns), whether a change was reported that night. Such a night does not enter the band. A change
    is reported until the values return or it is accepted.
    """
    columns = Columns.of(measures, tolerances)
    values = columns.judged(np.vstack([past, tonight])).T
    seen = see(values, alarmed.T, columns, tolerances)
    return [_judgement(seen, columns, tolerances, values, column) for column in range(len(measures))]


def see(values: Floats, alarmed: Bools, columns: Columns, tolerances: Tolerances, count: int | None = None) -> Seen:
    """The last night of the values, as judged (columns, nights). alarmed: of the nights before. count: columns that
    share the promise; default all that have values."""
    now, before = values[:, -1], values[:, :-1]
    quiet = np.where(alarmed, np.nan, before)[:, -RECENT:]
    nights = np.isfinite(quiet).sum(axis=1).astype(np.float64)
    centre, finest = _median(quiet), FINEST * columns.smallest
    away = quiet - centre[:, None]
    scale = _scale(away, finest)
    of_two = np.fmax(_scale((away[:, 1:] + away[:, :-1]) / 2, finest), scale / math.sqrt(2))
    count = int(np.isfinite(values).any(axis=1).sum()) if count is None else count
    chance = 1 / tolerances.false_alarm_nights / max(count, 1) / 2
    quantile = -stdtrit(np.maximum(nights - 1, 1), chance) * np.sqrt(1 + math.pi / 2 / np.maximum(nights, 1))
    half = np.where(columns.is_ratio, math.log1p(NOTICED), NOTICED * np.abs(centre))
    noticed = np.fmax(half, columns.smallest)
    least = np.fmax(columns.smallest, np.fmin(BEYOND * _noise_reported(before, alarmed, centre, columns), noticed))
    reach, reach_of_two = np.fmax(quantile * scale, least), np.fmax(quantile * of_two, least)

    change = now - centre
    last = before[:, -1] if before.shape[1] else np.full_like(now, np.nan)
    mean = (change + last - centre) / 2
    goes_on = alarmed[:, -1] if alarmed.shape[1] else np.zeros(len(now), np.bool_)
    share = np.where(goes_on, GOES_ON, 1.0) * (1 - 1e-9)
    judged = nights >= tolerances.baseline_nights
    alone = judged & (np.abs(change) >= reach * share)
    both = judged & (np.abs(mean) >= reach_of_two * share) & (change * mean > 0)
    both &= np.abs(change) >= reach_of_two * GOES_ON  # the night before alone is no change of tonight's
    side = np.where(alone | both, np.sign(change), 0.0)
    tonight = values.shape[1] - 1
    begun = tonight - np.cumprod(alarmed[:, ::-1], axis=1).sum(axis=1)
    since = np.where(goes_on, begun, np.where(both & ~alone, tonight - 1, tonight))
    return Seen(nights, centre, reach, noticed, np.where(both & ~alone, mean, change), side, since)


def _noise_reported(before: Floats, alarmed: Bools, centre: Floats, columns: Columns) -> Floats:
    """(columns,): how far from the centre the measure was, in any cell, in reported changes that were over soon."""
    furthest = np.zeros(int(columns.measure.max(initial=-1)) + 1)
    for column in np.flatnonzero(alarmed.any(axis=1)):
        begin = 0
        runs = [(is_alarm, len(list(run))) for is_alarm, run in groupby(alarmed[column])]
        for is_alarm, length in runs[:-1]:  # the last one may go on
            if is_alarm and length <= SOON:
                away = np.abs(before[column, begin:begin + length] - centre[column])
                furthest[columns.measure[column]] = max(furthest[columns.measure[column]], np.nanmax(away, initial=0))
            begin += length
    return furthest[columns.measure]


def _scale(away: Floats, finest: Floats) -> Floats:
    """Standard deviation of each row around 0, NaN left out; outliers are clipped."""
    nights = np.isfinite(away).sum(axis=1)
    rough = np.fmax(1.4826 * (1 + 1 / np.maximum(nights, 1)) * _median(np.abs(away)), finest)[:, None]
    squares = np.nansum(np.clip(away, -CLIP * rough, CLIP * rough) ** 2, axis=1)
    scale: Floats = np.fmax(np.sqrt(squares / np.maximum(nights - 1, 1) / CLIPPED_VARIANCE), finest)
    return scale


def _median(values: Floats) -> Floats:
    """Of each row, NaN left out; NaN for a row without values."""
    ordered, count = np.sort(values, axis=1), np.isfinite(values).sum(axis=1)
    if not values.shape[1]:
        return np.full(len(values), np.nan)
    rows, middle = np.arange(len(values)), np.maximum(count - 1, 0)
    found: Floats = (ordered[rows, middle // 2] + ordered[rows, (middle + 1) // 2]) / 2
    return found


def _judgement(seen: Seen, columns: Columns, tolerances: Tolerances, values: Floats, column: int) -> Judgement:
    sign, is_ratio = float(columns.sign[column]), bool(columns.is_ratio[column])

    def in_unit(judged: float) -> float:
        return math.exp(min(max(judged * sign, -700), 700)) if is_ratio else judged * sign

    is_known = math.isfinite(values[column, -1])
    if seen.nights[column] < tolerances.baseline_nights:
        return Judgement("baseline" if is_known else "missing")
    centre, reach, side = (float(each[column]) for each in (seen.centre, seen.reach, seen.side))
    low, high = sorted((in_unit(centre - reach), in_unit(centre + reach)))
    if not is_known:
        return Judgement("missing", in_unit(centre), low, high)
    if not side and reach > seen.noticed[column] * (1 + 1e-9):
        return Judgement("baseline", in_unit(centre))
    moved = float(seen.change[column]) * sign
    change = math.expm1(min(max(moved, -700), 700)) if is_ratio else moved
    if not side:
        return Judgement("quiet", in_unit(centre), low, high, change)
    verdict: Literal["regression", "improvement"] = "regression" if side > 0 else "improvement"
    return Judgement(verdict, in_unit(centre), low, high, change, int(seen.since[column]))
