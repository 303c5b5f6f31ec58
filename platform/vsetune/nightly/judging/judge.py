"""Judges each stream of tonight, and the mean over all cells, against the nights before."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from vsetune.nightly.judging.noise import Bools, Floats, Streams, median, of_all_cells
from vsetune.nightly.judging.scores import Tolerance, students_t
from vsetune.nightly.judging.watch import Seen, Watch
from vsetune.nightly.night import Measure


@dataclass(frozen=True)
class Judgement:
    """The verdict on one stream tonight.

    centre, low, high: centre and band of quiet nights, in the unit of the measure; None before `baseline_nights`
    nights. low and high are also None where a band would not notice half as much again; quiet_nights is then about
    the number of further quiet nights that make it narrow enough. change: distance to the centre, of
    tonight or, after a drift or a longer change, of the mean of its nights; in the unit where linear, a fraction where
    ratio, positive is higher. since: index of the first night of the change, into the nights, past first; None without
    a change. found_by: `band` if tonight alone is outside, `drift` if the sum over many nights is above its limit.
    score: how unusual tonight is, in standard normal deviations, positive is worse. autocorrelation: of successive
    quiet nights of the measure, 0 to 1; it widens the limits.
    """

    verdict: Literal["baseline", "quiet", "regression", "improvement", "missing"]
    centre: float | None = None
    low: float | None = None
    high: float | None = None
    change: float | None = None
    since: int | None = None
    found_by: Literal["", "band", "drift"] = ""
    score: float | None = None
    autocorrelation: float = 0.0
    quiet_nights: int | None = None


def judge(
    past: Floats,
    tonight: Floats,
    measures: Sequence[Measure],
    tolerance: Tolerance,
    *,
    alarmed: Bools | None = None,
) -> list[Judgement]:
    """One judgement per stream; a stream is one measure of one cell. measures: the measure of each stream.

    past: (nights, streams), oldest first, of the current line of each stream. NaN before the line began, and on every
    night without a value; an infinity, or a ratio that is not positive, counts as no value. tonight: (streams,).
    alarmed: (nights, streams), whether a regression or an improvement was reported that night. The baseline does not
    learn from such nights, and a change is reported until the nights are back at the centre or it is accepted (a new
    line begins). None: the changes that this function would have reported, night by night. Streams whose measures have
    the same name share their noise estimates. Method: docs/decisions/0039-nightly-verdicts.md. Raises ValueError for
    shapes that do not fit.
    """
    past, tonight = np.asarray(past, dtype=np.float64), np.asarray(tonight, dtype=np.float64)
    streams = len(measures)
    if tonight.shape != (streams,) or past.ndim != 2 or past.shape[1] != streams:
        raise ValueError(f"judge: got past {past.shape} and tonight {tonight.shape} for {streams} measures, need "
                         f"(nights, {streams}) and ({streams},); pass one column per measure")
    if alarmed is not None and alarmed.shape != past.shape:
        raise ValueError(f"judge: got alarmed {alarmed.shape}, need one entry per past night and stream, {past.shape}")
    if not streams:
        return []
    watched = Streams.of(measures, [tolerance.change_that_matters(measure) for measure in measures])
    watch = Watch(watched, 1, false_alarms=1 / tolerance.false_alarm_nights, baseline_nights=tolerance.baseline_nights)
    for night, values in enumerate(watched.judged(past)):
        watch.night(values[None], None if alarmed is None else alarmed[night][None])
    return judgements(watch.night(watched.judged(tonight)[None]), watched)


def judgements(seen: Seen, streams: Streams, history: int = 0) -> list[Judgement]:
    """The judgements of one history, in the units of the measures."""
    centre, bounds = streams.in_units(seen.centre[history]), (streams.in_units(seen.low[history]),
                                                              streams.in_units(seen.high[history]))
    low, high = np.minimum(*bounds), np.maximum(*bounds)
    change = streams.change_in_units(seen.change[history])
    found = []
    for stream in range(len(streams.sign)):
        place = history, stream
        is_baseline, is_known, side = seen.is_baseline[place], seen.known[place], float(seen.side[place])
        if is_baseline:
            found.append(Judgement("baseline" if is_known else "missing"))
            continue
        quiet = Judgement("quiet", float(centre[stream]), float(low[stream]), float(high[stream]))
        if not is_known:
            found.append(replace(quiet, verdict="missing"))
            continue
        quiet = replace(
            quiet, change=float(change[stream]), score=float(seen.score[place]),
            autocorrelation=float(seen.quiet.autocorrelation[place]),
        )
        if not side and seen.is_unknown[place]:
            needed = _quiet_nights(
                seen.usual[place], seen.quiet.freedom[place], int(seen.quiet.nights[place]), float(seen.narrower[place])
            )
            found.append(replace(quiet, verdict="baseline", low=None, high=None, change=None, quiet_nights=needed))
        elif not side:
            found.append(quiet)
        else:
            found.append(replace(
                quiet, verdict="regression" if side > 0 else "improvement", since=int(seen.since[place]),
                found_by="band" if seen.is_outside[place] else "drift",
            ))
    return found


def _quiet_nights(usual: Floats, freedom: Floats, nights: int, narrower: float) -> int:
    """About how many nights at the centre make a band narrower by this share: they lower the deviation, and the
    quantile of Student's t. As many nights as there are make the others outliers, which are clipped."""
    more = np.arange(1, nights + 1)
    known = np.maximum(freedom, 1.0)
    width = students_t(usual, known + more) / students_t(usual, known) * np.sqrt(known / (known + more))
    return int(np.searchsorted(-width, -narrower)) + 1


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
