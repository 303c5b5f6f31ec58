"""Night after night: scores, cumulative sums, who is told of what, and which nights teach what quiet is.

All arrays are (histories, streams): one history in production, hundreds at once in simulations, by the same code.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np

from vsetune.nightly.judging import cusum
from vsetune.nightly.judging.arrays import Bools, Floats, Integers, Streams
from vsetune.nightly.judging.noise import Noise, noise
from vsetune.nightly.judging.scores import Tail, normal_score, students_t

REGRESSION_SHARE = 0.9
"""Of all false alarms promised; improvements get the rest. Each is halved between tonight's band and the sum."""
SUSPECT = 0.5
"""A sum above this part of its limit: its nights do not teach the baseline until it has fallen."""
REPAIRED = 2.0
"""Log-likelihood ratio, cumulated, of `back to the centre` against `still changed`, at which a change is over."""


@dataclass
class Side:
    """One direction. towards: +1 worse, -1 better. share: of the false alarms. total: the cumulative sum; since: its
    first night; nights, values: how many are in it and the sum of their values. is_suspect: above `SUSPECT`."""

    towards: float
    share: float
    tail: Tail
    total: Floats
    since: Integers
    nights: Floats
    values: Floats
    is_suspect: Bools

    @classmethod
    def at_rest(cls, towards: float, share: float, shape: tuple[int, int], measures: int) -> Side:
        return cls(towards, share, Tail.unseen((shape[0], measures)), np.zeros(shape), np.zeros(shape, np.int64),
                   np.zeros(shape), np.zeros(shape), np.zeros(shape, np.bool_))

    def add(self, where: Bools, values: Floats, steps: Floats, index: int) -> None:
        """One night more in the sums of these streams; a sum that falls to 0 begins anew with the next night."""
        starts = where & (self.total == 0)
        self.since[starts] = index
        self.nights = np.where(where, np.where(starts, 0.0, self.nights) + 1, self.nights)
        self.values = np.where(where, np.where(starts, 0.0, self.values) + np.where(where, values, 0.0), self.values)
        self.total = np.where(where, np.maximum(self.total + steps, 0.0), self.total)

    def drift(self, quiet: Noise) -> Floats:
        """How far the nights of the sum are from the centre, their mean; positive is towards this side."""
        mean = self.values / np.maximum(self.nights, 1)
        return self.towards * (mean - np.where(np.isfinite(quiet.centre), quiet.centre, mean))


@dataclass
class Told:
    """Changes told and neither repaired nor accepted. side: +1 worse, -1 better, 0 none. since: first night. nights,
    values: of the change, how many and their sum. times: nights told. score: of the first of them. over: evidence that
    the change is over."""

    side: Floats
    since: Integers
    nights: Floats
    values: Floats
    times: Floats
    score: Floats
    over: Floats

    @classmethod
    def nobody(cls, shape: tuple[int, int]) -> Told:
        return cls(np.zeros(shape), np.zeros(shape, np.int64), *(np.zeros(shape) for _ in range(5)))

    def forget(self, where: Bools) -> None:
        for one in fields(self):
            getattr(self, one.name)[where] = 0


@dataclass(frozen=True)
class Seen:
    """One night of all streams, as judged. known: has a value. is_baseline: too few nights before. side: +1 regression,
    -1 improvement, 0 neither. low, high: the band. change: tonight's distance to the centre, or that of the nights since
    the change. since: its first night. is_outside: of the band, tonight. score: normal, positive is worse."""

    known: Bools
    is_baseline: Bools
    side: Floats
    centre: Floats
    low: Floats
    high: Floats
    change: Floats
    since: Integers
    is_outside: Bools
    score: Floats


class Watch:
    """Feed nights, oldest first, to `night`.

    false_alarms: per night over all streams of a history. baseline_nights: with a value, before a stream is judged.
    """

    def __init__(self, streams: Streams, histories: int, *, false_alarms: float, baseline_nights: int) -> None:
        shape = (histories, len(streams.sign))
        self.streams, self.members = streams, streams.members
        self.false_alarms, self.baseline_nights = false_alarms, baseline_nights
        self.values: Floats = np.empty((*shape, 0))
        self.teaches: Bools = np.empty((*shape, 0), dtype=np.bool_)
        shares = ((-1.0, 1 - REGRESSION_SHARE), (1.0, REGRESSION_SHARE))
        self.better, self.worse = (Side.at_rest(*one, shape, self.members.shape[1]) for one in shares)
        self.told = Told.nobody(shape)

    def night(self, values: Floats, alarmed: Bools | None = None) -> Seen:
        """values: (histories, streams) as judged, NaN for none. alarmed: whether people were told of a change; None:
        what is seen here is what they are told. Returns what was seen of the night, before it taught anything."""
        index = self.values.shape[-1]
        known = np.isfinite(values)
        quiet = noise(self._quiet(), self.streams.smallest, self.members)
        self.values = np.concatenate([self.values, values[..., None]], axis=-1)
        self.teaches = np.concatenate([self.teaches, known[..., None]], axis=-1)
        is_baseline = quiet.nights < self.baseline_nights
        judged = known & ~is_baseline
        distance = np.where(judged, values - np.where(judged, quiet.centre, 0.0), 0.0)
        self._end_what_is_over(judged, distance, quiet)
        seen = self._see(judged, distance, quiet, known, is_baseline)
        side = seen.side
        if alarmed is not None:
            side = np.where(alarmed, np.where(side != 0, side, np.where(distance < 0, -1.0, 1.0)), 0.0)
        self._tell(np.where(known, side, self.told.side), seen, index)
        self._learn_tails(judged, seen.score)
        return seen

    def _quiet(self) -> Floats:
        """(histories, streams, nights), NaN where a night does not teach, or not before its suspicion has passed."""
        nights = np.arange(self.values.shape[-1])
        teaches = self.teaches
        for one in (self.better, self.worse):
            teaches = teaches & ~(one.is_suspect[..., None] & (nights >= one.since[..., None]))
        return np.where(teaches, self.values, np.nan)

    def _end_what_is_over(self, judged: Bools, distance: Floats, quiet: Noise) -> None:
        """A change is over when the nights speak for the centre and against the level that they had been at. One that
        lasted a single night may have been noise: it becomes a part of the tail."""
        told = self.told
        is_told = judged & (told.side != 0)
        level = told.values / np.maximum(told.nights, 1) - np.where(judged, quiet.centre, 0.0)
        level = np.where(is_told, level, 0.0) / quiet.scale
        told.over = np.where(is_told, np.maximum(told.over + level**2 / 2 - level * distance / quiet.scale, 0), told.over)
        over = is_told & (told.over >= REPAIRED)
        for one in (self.better, self.worse):
            spike = over & (told.side == one.towards) & (told.times == 1)
            if spike.any():
                one.tail = one.tail.with_scores(np.where(spike, one.towards * told.score, np.nan), self.members)
        told.forget(over)

    def _see(self, judged: Bools, distance: Floats, quiet: Noise, known: Bools, is_baseline: Bools) -> Seen:
        index, smallest, told = self.values.shape[-1] - 1, self.streams.smallest, self.told
        values = self.values[..., -1]
        score = normal_score(distance / quiet.of_a_night, quiet.freedom)
        streams = np.isfinite(self.values).any(axis=-1).sum(axis=-1, keepdims=True)
        step = cusum.allowance(smallest, quiet.scale)
        side, since = np.zeros(distance.shape), np.full(distance.shape, index)
        change, is_outside, reaches = distance, np.zeros(distance.shape, np.bool_), []
        for one in (self.better, self.worse):
            chance = one.share * self.false_alarms / np.maximum(streams, 1) / 2
            height = one.tail.limit(chance) @ self.members.T
            reach = np.maximum(students_t(height, quiet.freedom) * quiet.of_a_night, smallest)
            outside = judged & (one.towards * distance >= reach * (1 - 1e-9))
            winsorised = np.clip(one.towards * score, -cusum.MOST_SCORE, cusum.MOST_SCORE)
            one.add(judged & (told.side == 0), values, winsorised - step, index)
            limit = cusum.limit(step, 1 / chance)
            one.is_suspect = one.total > SUSPECT * limit
            drift = one.drift(quiet)
            matters = drift + quiet.scale / np.sqrt(np.maximum(one.nights, 1)) >= smallest
            drifted = judged & ~outside & (one.total >= limit) & matters & (drift > 0)
            fresh = (outside | drifted) & (told.side == 0)
            side = np.where(fresh, one.towards, side)
            since = np.where(fresh, np.where(drifted, one.since, index), since)
            change = np.where(fresh, np.where(drifted, one.towards * drift, distance), change)
            is_outside |= outside
            reaches.append(reach)
        goes_on = judged & (told.side != 0)
        mean = (told.values + np.where(known, values, 0.0)) / (told.nights + 1) - np.where(judged, quiet.centre, 0.0)
        return Seen(
            known, is_baseline, np.where(goes_on, told.side, side), quiet.centre, quiet.centre - reaches[0],
            quiet.centre + reaches[1], np.where(goes_on, mean, change), np.where(goes_on, told.since, since), is_outside,
            np.where(judged, score, np.nan),
        )

    def _tell(self, side: Floats, seen: Seen, index: int) -> None:
        """People are told; what they are told of does not teach. side: (histories, streams), of each stream."""
        told, known, values = self.told, seen.known, self.values[..., -1]
        told.forget((side == 0) | (side != told.side))
        starts = (side != 0) & (told.side == 0)
        earlier = np.zeros(side.shape, np.bool_)
        for one in (self.better, self.worse):
            drifted = starts & (side == one.towards) & (seen.since < index)
            told.nights = np.where(drifted, one.nights - 1, told.nights)
            told.values = np.where(drifted, one.values - np.where(known, values, 0.0), told.values)
            earlier |= drifted
            one.total = np.where(side != 0, 0.0, one.total)
            one.is_suspect &= side == 0
        told.since = np.where(starts, np.where(earlier, seen.since, index), told.since)
        told.score = np.where(starts, np.nan_to_num(seen.score), told.score)
        told.side = side
        counts = known & (side != 0)
        told.nights, told.times = told.nights + counts, told.times + counts
        told.values = told.values + np.where(counts, values, 0.0)
        nights = np.arange(index + 1)
        self.teaches &= ~((side != 0)[..., None] & (nights >= told.since[..., None]))

    def _learn_tails(self, judged: Bools, score: Floats) -> None:
        scores = np.where(judged & (self.told.side == 0), score, np.nan)
        for one in (self.better, self.worse):
            one.tail = one.tail.with_scores(one.towards * scores, self.members)
