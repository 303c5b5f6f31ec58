"""Night after night: scores, cumulative sums, who is told of what, and which nights teach what quiet is.

All arrays are (histories, streams): one history in production, hundreds at once in simulations, by the same code.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np
from scipy.special import ndtri

from vsetune.nightly.judging import cusum
from vsetune.nightly.judging.arrays import Bools, Floats, Integers, Streams
from vsetune.nightly.judging.noise import Noise, noise
from vsetune.nightly.judging.scores import Tail, normal_score, students_t

SPENT = 0.08
"""Of the false alarms promised. The rest is kept for what the limits do not know: tails that nobody has seen yet,
cells that are less alike than they looked, a baseline that stands still under suspicion. Chosen so that twelve recorded
nights, drawn again and again, keep the promise (decision 0039)."""
REGRESSION_SHARE = 0.9
"""Of what is spent; improvements get the rest."""
BAND_SHARE = 0.4
"""Of each direction's, for tonight alone; the rest is for two sums of many nights:"""
FINE = (0.4, cusum.LEAST_ALLOWANCE, 2.25)
"""Share, smallest allowance, largest score of a night: for changes that just matter,"""
COARSE = (0.2, 1.25, 2.5)
"""and for larger ones that a single night does not prove, in three nights."""
SUSPECT = 0.7
"""A sum above this part of its limit: its nights do not teach the baseline until it has fallen, so that a change is not
taken for quiet before it is found."""
MOST_UNKNOWN = 3.0
"""Times the limit of known noise: a limit that is further away, because few nights know little of their noise, is none
where it also reaches half of what is usual, or double."""
FAR = 3.0
"""Times the smallest change that matters: nearer limits are useful in any case."""
BENEFIT = 2.0
"""A drift is told while its size may, within so many standard errors, be the smallest change that matters."""
BEYOND = 1.2
"""Times the furthest single night that was noise: tonight alone is told only beyond."""
SOON = 2
"""A single night that people were told of on no more nights may have been noise."""
LONGEST_CLUSTER, MORE_PATIENCE, REMEMBERED = 7, 1.6, 0.985
"""So may a change that was over after no more nights: a cluster of slow nights. A drift's limit is then so many times
what it was, for that stream, or for all cells where it was told of all; each night so much of that is left."""
REPAIRED = 2.0
"""Log-likelihood ratio, cumulated, of `back to the centre` against `still changed`, at which a change is over."""


@dataclass
class Sum:
    """A cumulative sum towards one direction. share: of the false alarms of its direction. least: smallest allowance.
    most: largest score of a night. total: the sum; since: its first night; nights, values: how many are in it and the
    sum of their values. is_suspect: above `SUSPECT`. patience: times its limit, of a stream that has cried wolf."""

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
        """One night more in the sums of these streams; a sum that falls to 0 begins anew with the next night."""
        starts = where & (self.total == 0)
        self.since[starts] = index
        self.nights = np.where(where, np.where(starts, 0.0, self.nights) + 1, self.nights)
        self.values = np.where(where, np.where(starts, 0.0, self.values) + np.where(where, values, 0.0), self.values)
        self.total = np.where(where, np.maximum(self.total + steps, 0.0), self.total)

    def begin_where_likeliest(self, where: Bools, values: Floats, centre: Floats) -> None:
        """Of the nights of these sums, keep those since the change: the start at which a change of unknown size is most
        likely (Hinkley 1970). values: (histories, streams, nights) to tonight."""
        for history, stream in np.argwhere(where):
            nights = values[history, stream, self.since[history, stream]:][::-1]
            counts = np.isfinite(nights).cumsum()
            sums = np.nancumsum(nights)
            away = self.towards * (sums - counts * centre[history, stream]) / np.sqrt(np.maximum(counts, 1))
            last = int(np.argmax(away))
            self.since[history, stream] = values.shape[-1] - 1 - last
            self.nights[history, stream], self.values[history, stream] = counts[last], sums[last]

    def drift(self, quiet: Noise) -> Floats:
        """How far the nights of the sum are from the centre, their mean; positive is towards this side."""
        mean = self.values / np.maximum(self.nights, 1)
        return self.towards * (mean - np.where(np.isfinite(quiet.centre), quiet.centre, mean))

    def has_drifted(self, night: Night, smallest: Floats, chance: Floats) -> Bools:
        """Adds tonight. smallest: change that matters. chance: of a false alarm per night. True where the sum is above
        its limit and may be a change that matters."""
        alike = np.sqrt(night.quiet.inflation)
        step = np.maximum(cusum.allowance(smallest, night.quiet.scale * alike), self.least)
        scores = np.clip(self.towards * night.score / alike, -self.most, self.most)
        self.add(night.adds_up, night.values, scores - step, night.index)
        limit = cusum.limit(step, 1 / (self.share * chance)) * self.patience
        self.is_suspect = self.total > SUSPECT * limit
        drift = self.drift(night.quiet)
        may_matter = drift + BENEFIT * night.quiet.scale * alike / np.sqrt(np.maximum(self.nights, 1)) >= smallest
        return night.adds_up & (self.total >= limit) & may_matter & (drift > 0)


@dataclass
class Side:
    """One direction. towards: +1 worse, -1 better. share: of the false alarms. tail: of the scores on this side.
    furthest: distance of a stream's furthest night that was told and was back the next."""

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
class Night:
    """What is to be judged. index: of the night. is_judged: has a value and a baseline; is_free: and nothing told that
    goes on. adds_up: and nothing told of all cells. distance: to the centre, 0 where not judged. score: normal."""

    index: int
    values: Floats
    is_judged: Bools
    is_free: Bools
    adds_up: Bools
    quiet: Noise
    distance: Floats
    score: Floats


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
    -1 improvement, 0 neither. low, high: the band. change: tonight's distance to the centre, or that of the nights
    since the change. since: its first night. is_outside: of the band, tonight. is_unknown: the band is too wide to say
    anything. autocorrelation: of successive quiet nights. score: normal, positive is worse."""

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
    autocorrelation: Floats
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
        self.is_noise: Bools = np.empty((*shape, 0), dtype=np.bool_)
        shares = ((-1.0, 1 - REGRESSION_SHARE), (1.0, REGRESSION_SHARE))
        self.better, self.worse = (Side.at_rest(*one, shape, self.members.shape[1]) for one in shares)
        self.told = Told.nobody(shape)

    def night(self, values: Floats, alarmed: Bools | None = None) -> Seen:
        """values: (histories, streams) as judged, NaN for none. alarmed: whether people were told of a change; None:
        what is seen here is what they are told. Returns what was seen of the night, before it taught anything."""
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
        is_free = judged & (self.told.side == 0)
        night = Night(index, values, judged, is_free, is_free & ~self._is_common(), quiet, distance, score)
        seen = self._see(night, known, is_baseline)
        side = seen.side
        if alarmed is not None:
            side = np.where(alarmed, np.where(side != 0, side, np.where(distance < 0, -1.0, 1.0)), 0.0)
        self._tell(np.where(known, side, self.told.side), seen, index)
        self._learn_tails(judged, seen.score)
        return seen

    def _quiet(self) -> Floats:
        """(histories, streams, nights), NaN where a night does not teach, or not before its suspicion has passed."""
        return np.where(self.teaches & ~self._is_suspected(), self.values, np.nan)

    def _is_suspected(self) -> Bools:
        """(histories, streams, nights): in a sum that is close to its limit."""
        nights, suspected = np.arange(self.values.shape[-1]), np.zeros(self.values.shape, np.bool_)
        for one in (*self.better.sums, *self.worse.sums):
            suspected |= one.is_suspect[..., None] & (nights >= one.since[..., None])
        return suspected

    def _is_common(self) -> Bools:
        """(histories, streams): whether a change of its measure is told of all cells. What a cell adds is then known
        already: it is told where it alone is out of its band, and its nights teach nothing."""
        whole = self.streams.whole
        common: Bools = (whole >= 0) & (self.told.side[:, whole] != 0)
        return common

    def _remembered(self) -> Floats:
        """As `_quiet`, and with nights of a change that was over soon: autocorrelation is learnt from them."""
        nights, told = np.arange(self.values.shape[-1]), self.told
        out = (told.side != 0)[..., None] & (nights >= told.since[..., None])
        return np.where(self.is_noise & ~out & ~self._is_suspected(), self.values, np.nan)

    def _end_what_is_over(self, judged: Bools, distance: Floats, quiet: Noise) -> None:
        """A change is over when the nights speak for the centre and against the level that they had been at. One that
        was over soon may have been noise, so its like is told less easily: a single night becomes a part of the tail
        and needs company the next time, a longer change needs a higher sum."""
        told = self.told
        is_told = judged & (told.side != 0)
        level = told.values / np.maximum(told.nights, 1) - np.where(judged, quiet.centre, 0.0)
        level = np.where(is_told, level, 0.0) / quiet.scale
        evidence = told.over + (level**2 / 2 - level * distance / quiet.scale) / quiet.inflation
        told.over = np.where(is_told, np.maximum(evidence, 0.0), told.over)
        over = is_told & (told.over >= REPAIRED)
        was_long = over & (told.nights > LONGEST_CLUSTER)
        self.is_noise &= ~(was_long[..., None] & (np.arange(self.values.shape[-1]) >= told.since[..., None]))
        for one in (self.better, self.worse):
            mine = over & (told.side == one.towards) & ~was_long
            spike = mine & (told.nights == 1) & (told.times <= SOON)
            soon = mine & ~spike
            soon |= (self.streams.whole >= 0) & soon[:, self.streams.whole]
            for each in one.sums:
                each.patience = 1 + (each.patience * np.where(soon, MORE_PATIENCE, 1) - 1) * REMEMBERED
            distance_told = one.towards * level * quiet.scale
            one.furthest = np.where(spike, np.maximum(one.furthest, distance_told), one.furthest)
            if spike.any():
                one.tail = one.tail.with_scores(np.where(spike, one.towards * told.score, np.nan), self.members)
        told.forget(over)

    def _parts(self) -> Floats:
        """(histories, measures): which part of the false alarms each stream of a measure may spend. Half goes to what
        stands alone in its measure, the means over all cells, where changes everywhere show; the rest to cells."""
        seen = np.isfinite(self.values).any(axis=-1) @ self.members
        is_alone = self.members.sum(axis=0) == 1
        alone, others = ((seen * part).sum(axis=-1, keepdims=True) for part in (is_alone, ~is_alone))
        whole = np.where((alone > 0) & (others > 0), 0.5, 1.0)
        parts: Floats = whole / np.maximum(np.where(is_alone, alone, others), 1)
        return parts

    def _see(self, night: Night, known: Bools, is_baseline: Bools) -> Seen:
        quiet, smallest, told = night.quiet, self.streams.smallest, self.told
        parts = self._parts()
        side, change, since = np.zeros(known.shape), night.distance, np.full(known.shape, night.index)
        is_outside, reaches = np.zeros(known.shape, np.bool_), []
        for one in (self.better, self.worse):
            chances = one.share * SPENT * self.false_alarms * parts
            chance = chances @ self.members.T
            reach = one.tail.reach(BAND_SHARE * chances, self.members, quiet.freedom) * quiet.of_a_night
            reach = np.maximum(np.maximum(reach, smallest), BEYOND * one.furthest)
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
        goes_on = night.is_judged & (told.side != 0)
        mean = (told.values + np.where(known, night.values, 0.0)) / (told.nights + 1)
        mean -= np.where(night.is_judged, quiet.centre, 0.0)
        return Seen(
            known, is_baseline, np.where(goes_on, told.side, side), quiet.centre, quiet.centre - reaches[0],
            quiet.centre + reaches[1], np.where(goes_on, mean, change), np.where(goes_on, told.since, since),
            is_outside, self._is_unknown(quiet, parts, reaches[1]), quiet.autocorrelation,
            np.where(night.is_judged, night.score, np.nan),
        )

    def _is_unknown(self, quiet: Noise, parts: Floats, reach: Floats) -> Bools:
        """Whether so few nights know so little of their noise that the band says nothing. reach: towards worse."""
        usual = -ndtri(BAND_SHARE * self.worse.share * SPENT * self.false_alarms * parts) @ self.members.T
        is_ignorant = students_t(usual, quiet.freedom) > MOST_UNKNOWN * usual
        half_or_double = np.where(self.streams.is_ratio, np.log(2), np.abs(quiet.centre) / 2)
        unknown: Bools = is_ignorant & (reach > np.fmax(half_or_double, FAR * self.streams.smallest))
        return unknown

    def _tell(self, side: Floats, seen: Seen, index: int) -> None:
        """People are told; what they are told of does not teach. side: (histories, streams), of each stream."""
        told, known, values = self.told, seen.known, self.values[..., -1]
        told.forget((side == 0) | (side != told.side))
        starts = (side != 0) & (told.side == 0)
        told.since = np.where(starts, seen.since, told.since)
        for one in (*self.better.sums, *self.worse.sums):
            drifted = starts & (side == one.towards) & (seen.since < index) & (one.since == seen.since)
            told.nights = np.where(drifted, one.nights - 1, told.nights)
            told.values = np.where(drifted, one.values - np.where(known, values, 0.0), told.values)
            one.total = np.where(side != 0, 0.0, one.total)
            one.is_suspect &= side == 0
        told.score = np.where(starts, np.nan_to_num(seen.score), told.score)
        told.side = side
        counts = known & (side != 0)
        told.nights, told.times = told.nights + counts, told.times + counts
        told.values = told.values + np.where(counts, values, 0.0)
        nights = np.arange(index + 1)
        self.teaches &= ~((side != 0)[..., None] & (nights >= told.since[..., None]))
        self.teaches &= ~(self._is_common()[..., None] & (nights >= told.since[:, self.streams.whole][..., None]))

    def _learn_tails(self, judged: Bools, score: Floats) -> None:
        scores = np.where(judged & (self.told.side == 0), score, np.nan)
        for one in (self.better, self.worse):
            one.tail = one.tail.with_scores(one.towards * scores, self.members)
