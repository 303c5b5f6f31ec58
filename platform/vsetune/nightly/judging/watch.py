"""Judges each night in turn: scores, cumulative sums, reported changes, and the nights that the baseline learns from.

All arrays are (histories, streams): one history in production, hundreds at once in simulations, by the same code.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np
from scipy.special import ndtri

from vsetune.nightly.judging import scores
from vsetune.nightly.judging.noise import Bools, Floats, Integers, Noise, Streams, noise
from vsetune.nightly.judging.scores import Tail, normal_score

SPENT = 0.08
"""Share of the promised false alarms that the limits may spend. The rest covers what the limits do not model: tails not
yet observed, cells that differ more than they seemed to, a baseline that does not learn under suspicion. Chosen so that
twelve recorded nights, resampled many times, keep the promise (decision 0039)."""
REGRESSION_SHARE = 0.9
"""Share of the spent false alarms for regressions; improvements get the rest."""
BAND_SHARE = 0.4
"""Share of a direction's false alarms for tonight alone; the rest is for two sums over many nights, FINE and COARSE."""
FINE = (0.4, scores.LEAST_ALLOWANCE, 2.25)
"""Share, smallest allowance, largest score of a night; for changes that just matter."""
COARSE = (0.2, 1.25, 2.5)
"""As FINE, for larger changes that a single night does not prove; it finds them in three nights."""
SUSPECT = 0.7
"""Fraction of its limit above which a sum is suspect. The baseline does not learn from the nights of a suspect sum, so
that a change does not become part of the baseline before it is found."""
NOTICED = 0.5
"""Share of the usual value. A stream whose band does not notice a change of this size, or of the smallest that matters
where that is larger, is not judged."""
BENEFIT = 2.0
"""Standard errors. A drift is reported if its size plus this many of them reaches the smallest change that matters."""
BEYOND = 1.2
"""Multiple of the furthest single night that was noise; tonight alone is reported only beyond it, or `NOTICED`."""
SOON = 2
"""A change of a single night that was reported on at most this many nights may have been noise."""
LONGEST_CLUSTER, MORE_PATIENCE, REMEMBERED = 7, 1.6, 0.985
"""A change of at most LONGEST_CLUSTER nights may have been noise too: a cluster of slow nights. The drift limit of
that stream is then multiplied by MORE_PATIENCE; a change of all cells raises the limit of all cells. Each night the
fraction REMEMBERED of the increase remains."""
REPAIRED = 2.0
"""Cumulative log-likelihood ratio of `back to the centre` against `still changed` at which a change is over."""


@dataclass
class Sum:
    """A cumulative sum in one direction. share: of the false alarms of its direction. least: smallest allowance.
    most: largest score of a night. total: the sum. since: its first night. nights, values: number of its nights, and
    the sum of their values. is_suspect: above `SUSPECT`. patience: factor on the limit, above 1 after a false alarm."""

    towards: float
    share: float
    least: float
    most: float
    total: Floats
    since: Integers
    nights: Floats
    values: Floats
    is_suspect: Bools
    patience: Floats

    @classmethod
    def at_rest(cls, towards: float, share: float, least: float, most: float, shape: tuple[int, int]) -> Sum:
        return cls(towards, share, least, most, np.zeros(shape), np.zeros(shape, np.int64), np.zeros(shape),
                   np.zeros(shape), np.zeros(shape, np.bool_), np.ones(shape))

    def add(self, where: Bools, values: Floats, steps: Floats, index: int) -> None:
        """Add one night to the sums of these streams; a sum that falls to 0 restarts with the next night."""
        starts = where & (self.total == 0)
        self.since[starts] = index
        self.nights = np.where(where, np.where(starts, 0.0, self.nights) + 1, self.nights)
        self.values = np.where(where, np.where(starts, 0.0, self.values) + np.where(where, values, 0.0), self.values)
        self.total = np.where(where, np.maximum(self.total + steps, 0.0), self.total)

    def begin_where_likeliest(self, where: Bools, values: Floats, centre: Floats) -> None:
        """Keep only the nights since the change in these sums. The start is the night at which a change of unknown size
        is most likely (Hinkley 1970). values: (histories, streams, nights) up to tonight."""
        for history, stream in np.argwhere(where):
            nights = values[history, stream, self.since[history, stream]:][::-1]
            counts = np.isfinite(nights).cumsum()
            sums = np.nancumsum(nights)
            away = self.towards * (sums - counts * centre[history, stream]) / np.sqrt(np.maximum(counts, 1))
            last = int(np.argmax(away))
            self.since[history, stream] = values.shape[-1] - 1 - last
            self.nights[history, stream], self.values[history, stream] = counts[last], sums[last]

    def drift(self, quiet: Noise) -> Floats:
        """Distance of the mean of the sum's nights from the centre; positive is in this direction."""
        mean = self.values / np.maximum(self.nights, 1)
        return self.towards * (mean - np.where(np.isfinite(quiet.centre), quiet.centre, mean))

    def has_drifted(self, night: Tonight, smallest: Floats, chance: Floats) -> Bools:
        """Add tonight. smallest: change that matters. chance: of a false alarm per night. Returns True where the sum is
        above its limit and may be a change that matters."""
        alike = np.sqrt(night.quiet.inflation)
        step = np.maximum(scores.allowance(smallest, night.quiet.scale * alike), self.least)
        clipped = np.clip(self.towards * night.score / alike, -self.most, self.most)
        self.add(night.adds_up, night.values, clipped - step, night.index)
        limit = scores.limit(step, 1 / (self.share * chance)) * self.patience
        self.is_suspect = self.total > SUSPECT * limit
        drift = self.drift(night.quiet)
        may_matter = drift + BENEFIT * night.quiet.scale * alike / np.sqrt(np.maximum(self.nights, 1)) >= smallest
        return night.adds_up & (self.total >= limit) & may_matter & (drift > 0)


@dataclass
class Side:
    """One direction. towards: +1 worse, -1 better. share: of the false alarms. tail: of the scores on this side.
    furthest: distance of a stream's furthest single-night change that was reported and then over."""

    towards: float
    share: float
    tail: Tail
    furthest: Floats
    sums: tuple[Sum, ...]

    @classmethod
    def at_rest(cls, towards: float, share: float, shape: tuple[int, int], measures: int) -> Side:
        sums = (Sum.at_rest(towards, *one, shape) for one in (FINE, COARSE))
        return cls(towards, share, Tail.unseen((shape[0], measures)), np.zeros(shape), tuple(sums))


@dataclass(frozen=True)
class Tonight:
    """A night to be judged. index: of the night. is_judged: the stream has a value and a baseline. is_free: judged, and
    no reported change goes on. adds_up: free, and no change is reported for all cells. distance: to the centre, 0 where
    not judged. score: normal."""

    index: int
    values: Floats
    is_judged: Bools
    is_free: Bools
    adds_up: Bools
    quiet: Noise
    distance: Floats
    score: Floats


@dataclass
class Reported:
    """Changes that were reported and are neither repaired nor accepted. side: +1 worse, -1 better, 0 none. since: first
    night. nights, values: number of nights of the change, and the sum of their values. times: number of nights on which
    it was reported. score: of the first of these nights. over: evidence that the change is over."""

    side: Floats
    since: Integers
    nights: Floats
    values: Floats
    times: Floats
    score: Floats
    over: Floats

    @classmethod
    def none(cls, shape: tuple[int, int]) -> Reported:
        return cls(np.zeros(shape), np.zeros(shape, np.int64), *(np.zeros(shape) for _ in range(5)))

    def forget(self, where: Bools) -> None:
        for one in fields(self):
            getattr(self, one.name)[where] = 0


@dataclass(frozen=True)
class Seen:
    """One night of all streams, as judged. known: has a value. is_baseline: too few nights before. side: +1 regression,
    -1 improvement, 0 neither. low, high: the band. change: tonight's distance to the centre, or that of the mean of the
    nights since the change. since: its first night. is_outside: tonight is outside the band. is_unknown: the band is
    too wide for a verdict; narrower: share of its width that is narrow enough. quiet: the nights before. usual: the
    normal score that a quiet night exceeds as rarely as this band. score: normal, positive is worse."""

    known: Bools
    is_baseline: Bools
    side: Floats
    centre: Floats
    low: Floats
    high: Floats
    change: Floats
    since: Integers
    is_outside: Bools
    is_unknown: Bools
    narrower: Floats
    quiet: Noise
    usual: Floats
    score: Floats


class Watch:
    """Judges nights in order: pass them to `night`, oldest first.

    false_alarms: per night over all streams of a history. baseline_nights: nights with a value that a stream needs
    before it is judged.
    """

    def __init__(self, streams: Streams, histories: int, *, false_alarms: float, baseline_nights: int) -> None:
        shape = (histories, len(streams.sign))
        self.streams, self.members = streams, streams.members
        self.false_alarms, self.baseline_nights = false_alarms, baseline_nights
        self.values: Floats = np.empty((*shape, 0))
        self.teaches: Bools = np.empty((*shape, 0), dtype=np.bool_)
        self.is_noise: Bools = np.empty((*shape, 0), dtype=np.bool_)
        shares = ((-1.0, 1 - REGRESSION_SHARE), (1.0, REGRESSION_SHARE))
        self.better, self.worse = (Side.at_rest(*one, shape, self.members.shape[1]) for one in shares)
        self.reported = Reported.none(shape)

    def night(self, values: Floats, alarmed: Bools | None = None) -> Seen:
        """Judge one night, then learn from it. values: (histories, streams) as judged, NaN for none. alarmed: whether a
        change was reported that night; None: the changes found here were reported. Returns the night as judged, before
        anything was learnt from it."""
        index = self.values.shape[-1]
        known = np.isfinite(values)
        quiet = noise(self._quiet(), self.streams.smallest, self.members, self._remembered())
        self.values = np.concatenate([self.values, values[..., None]], axis=-1)
        self.teaches = np.concatenate([self.teaches, known[..., None]], axis=-1)
        self.is_noise = np.concatenate([self.is_noise, known[..., None]], axis=-1)
        is_baseline = quiet.nights < self.baseline_nights
        judged = known & ~is_baseline
        distance = np.where(judged, values - np.where(judged, quiet.centre, 0.0), 0.0)
        self._end_what_is_over(judged, distance, quiet)
        score = normal_score(distance / quiet.of_a_night, quiet.freedom)
        is_free = judged & (self.reported.side == 0)
        night = Tonight(index, values, judged, is_free, is_free & ~self._is_common(), quiet, distance, score)
        seen = self._see(night, known, is_baseline)
        side = seen.side
        if alarmed is not None:
            side = np.where(alarmed, np.where(side != 0, side, np.where(distance < 0, -1.0, 1.0)), 0.0)
        self._report(np.where(known, side, self.reported.side), seen, index)
        self._learn_tails(judged, seen.score)
        return seen

    def _quiet(self) -> Floats:
        """(histories, streams, nights), NaN where the baseline does not learn from a night, or the night is suspect."""
        return np.where(self.teaches & ~self._is_suspected(), self.values, np.nan)

    def _is_suspected(self) -> Bools:
        """(histories, streams, nights): whether the night is in a sum that is close to its limit."""
        nights, suspected = np.arange(self.values.shape[-1]), np.zeros(self.values.shape, np.bool_)
        for one in (*self.better.sums, *self.worse.sums):
            suspected |= one.is_suspect[..., None] & (nights >= one.since[..., None])
        return suspected

    def _is_common(self) -> Bools:
        """(histories, streams): whether a change of the stream's measure is reported for all cells. A cell's part in it
        is then known already: the cell is reported only if tonight alone is outside its band, and the baseline does not
        learn from its nights."""
        whole = self.streams.whole
        common: Bools = (whole >= 0) & (self.reported.side[:, whole] != 0)
        return common

    def _remembered(self) -> Floats:
        """As `_quiet`, plus the nights of changes that were over soon; autocorrelation is estimated from these."""
        nights, reported = np.arange(self.values.shape[-1]), self.reported
        out = (reported.side != 0)[..., None] & (nights >= reported.since[..., None])
        return np.where(self.is_noise & ~out & ~self._is_suspected(), self.values, np.nan)

    def _end_what_is_over(self, judged: Bools, distance: Floats, quiet: Noise) -> None:
        """End changes whose nights fit the centre better than the changed level. A change that was over soon may have
        been noise, so limits for similar changes rise: a single night is added to the tail and widens the band, and a
        longer change raises the limit of the sums."""
        reported = self.reported
        is_reported = judged & (reported.side != 0)
        level = reported.values / np.maximum(reported.nights, 1) - np.where(judged, quiet.centre, 0.0)
        level = np.where(is_reported, level, 0.0) / quiet.scale
        evidence = reported.over + (level**2 / 2 - level * distance / quiet.scale) / quiet.inflation
        reported.over = np.where(is_reported, np.maximum(evidence, 0.0), reported.over)
        over = is_reported & (reported.over >= REPAIRED)
        was_long = over & (reported.nights > LONGEST_CLUSTER)
        self.is_noise &= ~(was_long[..., None] & (np.arange(self.values.shape[-1]) >= reported.since[..., None]))
        for one in (self.better, self.worse):
            mine = over & (reported.side == one.towards) & ~was_long
            spike = mine & (reported.nights == 1) & (reported.times <= SOON)
            soon = mine & ~spike
            soon |= (self.streams.whole >= 0) & soon[:, self.streams.whole]
            for each in one.sums:
                each.patience = 1 + (each.patience * np.where(soon, MORE_PATIENCE, 1) - 1) * REMEMBERED
            distance_reported = one.towards * level * quiet.scale
            one.furthest = np.where(spike, np.maximum(one.furthest, distance_reported), one.furthest)
            if spike.any():
                one.tail = one.tail.with_scores(np.where(spike, one.towards * reported.score, np.nan), self.members)
        reported.forget(over)

    def _parts(self) -> Floats:
        """(histories, measures): share of the false alarms that each stream of a measure may spend. Half goes to the
        means over all cells, half to the cells.
        """
        seen = np.isfinite(self.values).any(axis=-1) @ self.members
        is_alone = self.members.sum(axis=0) == 1
        alone, others = ((seen * part).sum(axis=-1, keepdims=True) for part in (is_alone, ~is_alone))
        whole = np.where((alone > 0) & (others > 0), 0.5, 1.0)
        parts: Floats = whole / np.maximum(np.where(is_alone, alone, others), 1)
        return parts

    def _see(self, night: Tonight, known: Bools, is_baseline: Bools) -> Seen:
        quiet, smallest, reported = night.quiet, self.streams.smallest, self.reported
        parts = self._parts()
        half = np.where(self.streams.is_ratio, np.log1p(NOTICED), NOTICED * np.abs(quiet.centre))
        noticed = np.fmax(half, smallest)
        side, change, since = np.zeros(known.shape), night.distance, np.full(known.shape, night.index)
        is_outside, reaches = np.zeros(known.shape, np.bool_), []
        for one in (self.better, self.worse):
            chances = one.share * SPENT * self.false_alarms * parts
            chance = chances @ self.members.T
            reach = one.tail.reach(BAND_SHARE * chances, self.members, quiet.freedom) * quiet.of_a_night
            reach = np.maximum(np.maximum(reach, smallest), np.fmin(BEYOND * one.furthest, noticed))
            reaches.append(reach)
            outside = night.is_judged & (one.towards * night.distance >= reach * (1 - 1e-9))
            is_outside |= outside
            unexplained = ~outside
            side = np.where(outside & night.is_free, one.towards, side)
            for each in one.sums:
                drifted = each.has_drifted(night, smallest, chance) & unexplained
                each.begin_where_likeliest(drifted, self.values, quiet.centre)
                side = np.where(drifted, one.towards, side)
                since = np.where(drifted, each.since, since)
                change = np.where(drifted, one.towards * each.drift(quiet), change)
                unexplained &= ~drifted
        narrower = noticed / reaches[1]
        goes_on = night.is_judged & (reported.side != 0)
        mean = (reported.values + np.where(known, night.values, 0.0)) / (reported.nights + 1)
        mean -= np.where(night.is_judged, quiet.centre, 0.0)
        return Seen(
            known, is_baseline, np.where(goes_on, reported.side, side), quiet.centre, quiet.centre - reaches[0],
            quiet.centre + reaches[1], np.where(goes_on, mean, change), np.where(goes_on, reported.since, since),
            is_outside, narrower < 1 - 1e-9, narrower, quiet,
            -ndtri(BAND_SHARE * self.worse.share * SPENT * self.false_alarms * parts) @ self.members.T,
            np.where(night.is_judged, night.score, np.nan),
        )

    def _report(self, side: Floats, seen: Seen, index: int) -> None:
        """Record the reported changes; the baseline does not learn from their nights. side: (histories, streams)."""
        reported, known, values = self.reported, seen.known, self.values[..., -1]
        reported.forget((side == 0) | (side != reported.side))
        starts = (side != 0) & (reported.side == 0)
        reported.since = np.where(starts, seen.since, reported.since)
        for one in (*self.better.sums, *self.worse.sums):
            drifted = starts & (side == one.towards) & (seen.since < index) & (one.since == seen.since)
            reported.nights = np.where(drifted, one.nights - 1, reported.nights)
            reported.values = np.where(drifted, one.values - np.where(known, values, 0.0), reported.values)
            one.total = np.where(side != 0, 0.0, one.total)
            one.is_suspect &= side == 0
        reported.score = np.where(starts, np.nan_to_num(seen.score), reported.score)
        reported.side = side
        counts = known & (side != 0)
        reported.nights, reported.times = reported.nights + counts, reported.times + counts
        reported.values = reported.values + np.where(counts, values, 0.0)
        nights = np.arange(index + 1)
        self.teaches &= ~((side != 0)[..., None] & (nights >= reported.since[..., None]))
        self.teaches &= ~(self._is_common()[..., None] & (nights >= reported.since[:, self.streams.whole][..., None]))

    def _learn_tails(self, judged: Bools, score: Floats) -> None:
        scores = np.where(judged & (self.reported.side == 0), score, np.nan)
        for one in (self.better, self.worse):
            one.tail = one.tail.with_scores(one.towards * scores, self.members)
