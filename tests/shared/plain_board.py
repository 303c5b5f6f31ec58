"""A board recomputed from the ranks of single queries: plain Python with SciPy's t, normal and binomial distributions.

It imports nothing of vsetune. Definitions: docs/statistics.md, docs/boards.md. All trainings ended, none
collapsed.
"""

from __future__ import annotations

import itertools
import json
import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np
import scipy.integrate
import scipy.optimize
import scipy.stats

Number = bool | int | float | str | None
Ranks = tuple[Sequence[int], Sequence[int]]
"""Of the best match of every query, from 0: image to text, text to image."""


@dataclass(frozen=True)
class Training:
    """configuration: its number in its search. validations: epoch and ranks. test: ranks on the test split. Seconds: of
    the whole training."""

    trial: str
    loss: str
    repeat: int
    configuration: int
    settings: Mapping[str, Any]
    seed: int
    is_search: bool
    validations: Sequence[tuple[float, Ranks]]
    test: Ranks
    train_seconds: float
    validation_seconds: float

    @cached_property
    def curve(self) -> list[tuple[float, Fraction]]:
        return [(epoch, recalls_of(ranks)["m_recall"]) for epoch, ranks in self.validations]

    @cached_property
    def best(self) -> tuple[float, Fraction]:
        """Epoch and M-Recall of the first validation that is highest."""
        found = self.curve[0]
        for point in self.curve:
            found = point if point[1] > found[1] else found
        return found

    def reaches(self, target: float | Fraction) -> tuple[float, bool]:
        """Epoch of the first validation at the target; without one the last epoch, and that it was never reached."""
        for epoch, height in self.curve:
            if height >= target:
                return epoch, False
        return self.curve[-1][0], True


def recalls_of(ranks: Ranks) -> dict[str, Fraction]:
    """Per cent."""
    found = {}
    for way, of_queries in zip(("i2t", "t2i"), ranks, strict=True):
        for k in (1, 5, 10):
            hits = 0
            for rank in of_queries:
                hits += rank < k
            found[f"{way}_r{k}"] = Fraction(100 * hits, len(of_queries))
    total = sum(found.values(), Fraction())
    return found | {"rsum": total, "m_recall": total / 6}


@dataclass(frozen=True)
class Loss:
    """searches: by number, all trainings of each. picks: by number, trainings that count. is_tuned: several
    configurations were tried."""

    searches: Mapping[int, Sequence[Training]]
    picks: Mapping[int, Sequence[Training]]
    winners: Mapping[int, Training]
    is_tuned: bool

    @property
    def counted(self) -> list[Training]:
        return [each for pick in self.picks.values() for each in pick]

    @property
    def units(self) -> list[Sequence[Training]]:
        """What is averaged over: searches of a tuned loss, else seeds."""
        return list(self.picks.values()) if self.is_tuned else [[each] for each in self.counted]

    @property
    def bests(self) -> list[float]:
        return [mean([each.best[1] for each in unit]) for unit in self.units]

    @property
    def noise(self) -> float:
        """Of every four neighbouring validations the part that no parabola explains, its median over the upper quartile
        of the normal distribution."""
        left = []
        for training in self.counted:
            for start in range(len(training.curve) - 3):
                epochs, heights = zip(*training.curve[start:start + 4], strict=True)
                heights = np.array(heights, dtype=float)
                fit = np.polyval(np.polyfit(epochs, heights, 2), epochs)
                left.append(math.sqrt(sum((heights - fit) ** 2)))
        return statistics.median(left) / statistics.NormalDist().inv_cdf(0.75)


def loss_of(trainings: Sequence[Training]) -> Loss:
    searches, picks, winners = {}, {}, {}
    for repeat in sorted({each.repeat for each in trainings}):
        searches[repeat] = [each for each in trainings if each.repeat == repeat]
        tried = [each for each in searches[repeat] if each.is_search]
        winner = tried[0]
        for each in tried:
            winner = each if each.best[1] > winner.best[1] else winner
        winners[repeat] = winner
        same = [each for each in searches[repeat] if each.configuration == winner.configuration]
        picks[repeat] = [each for each in same if len(tried) == 1 or not each.is_search]
    return Loss(searches, picks, winners, any(sum(each.is_search for each in of) > 1 for of in searches.values()))


def board_of(trainings: Sequence[Training], *, baseline: str) -> dict[str, dict[str, Number]]:
    """By loss the numbers of its row, by the name of their column in CSV."""
    names = sorted({each.loss for each in trainings})
    losses = {name: loss_of([each for each in trainings if each.loss == name]) for name in names}
    level = statistics.NormalDist().inv_cdf(0.975) * math.sqrt(2) * max(each.noise for each in losses.values())
    others = {name: loss for name, loss in losses.items() if name != baseline}
    compared = {name: comparison(loss, losses[baseline]) for name, loss in others.items()}
    factors = [factors_of_holm({name: float(row[p]) for name, row in compared.items()})
               for p in ("m_recall_gain_p", "epochs_p")]
    compared = {
        name: comparison(loss, losses[baseline], (factors[0][name], factors[1][name])) for name, loss in others.items()
    }
    for claim, p, better, of in (
        ("gets_higher", "m_recall_gain_p", 1, "m_recall_gain"), ("is_sooner", "epochs_p", -1, "epochs_percent"),
    ):
        corrected = holm({name: float(row[p]) for name, row in compared.items()})
        for name, row in compared.items():
            answer = "supported" if better * float(row[of] or 0.0) > 0 else "contradicted"
            row |= {p: corrected[name], claim: answer if corrected[name] <= 0.05 else "undecided"}
    empty = dict.fromkeys(next(iter(compared.values())), None) | {"seed_pairs": 0, "gets_higher": None}
    return {
        name: own_numbers(loss, level) | {"is_baseline": name == baseline}
        | to_best_of(loss, losses[baseline]) | compared.get(name, empty) for name, loss in losses.items()
    }


def own_numbers(loss: Loss, level: float) -> dict[str, Number]:
    low, high = t_interval(loss.bests)
    everything = [each for of in loss.searches.values() for each in of]
    tried = [each for each in everything if each.is_search]
    epochs = {each.trial: each.curve[-1][0] for each in everything}
    first = max(loss.picks, key=lambda repeat: (mean([each.best[1] for each in loss.picks[repeat]]), -repeat))
    winner = loss.winners[first]
    gaps = [b - a for each in loss.counted for a, b in itertools.pairwise([0.0, *(at for at, _ in each.curve)])]
    at_level = [next(at for at, height in each.curve if height >= each.best[1] - level) for each in loss.counted]
    best_ranks = {each.trial: dict(each.validations)[each.best[0]] for each in loss.counted}
    recalls: dict[str, Number] = {}
    for name in recalls_of(winner.test):
        at_best = [[recalls_of(best_ranks[each.trial])[name] for each in unit] for unit in loss.units]
        tested = [[recalls_of(each.test)[name] for each in unit] for unit in loss.units]
        recalls |= {name: mean(map(mean, at_best)), f"test_{name}": mean(map(mean, tested))}
    recalls["test_m_recall"] = mean([recalls_of(each.test)["m_recall"] for each in loss.counted])
    del recalls["m_recall"]
    return {
        "best_m_recall": mean(loss.bests), "best_m_recall_std": statistics.stdev(loss.bests),
        "best_m_recall_low": low, "best_m_recall_high": high, **deviations(loss), **recalls,
        "epochs_to_best": statistics.median(each.best[0] for each in loss.counted),
        "epochs_to_level": statistics.median(at_level), "curve_noise": loss.noise, "resolution_epochs": max(gaps),
        "seconds_per_epoch": statistics.median(each.train_seconds / epochs[each.trial] for each in loss.counted),
        "device_seconds": math.fsum(each.train_seconds + each.validation_seconds for each in everything),
        "epochs_charged": sum(epochs.values()), "wasted_epochs": 0.0,
        "search_epochs": sum(epochs[each.trial] for each in tried),
        "budget_epochs": sum(epochs[each.trial] for each in tried),
        "trials": len(everything), "attempts": len(everything), "attempts_finished": len(everything),
        **{f"attempts_{status}": 0 for status in ("pruned", "failed", "killed", "running")},
        "configurations": len(tried), "searches": len(loss.picks), "is_tuned": loss.is_tuned, "collapsed_seeds": 0,
        "searching_seed": winner.seed if loss.is_tuned else None,
        "searching_seed_m_recall": float(winner.best[1]) if loss.is_tuned else None, "seeds": len(loss.counted),
        "configuration": json.dumps(dict(winner.settings), sort_keys=True),
    }


def deviations(loss: Loss) -> dict[str, Number]:
    """Between searches and between seeds of one pick, by a one-way analysis of variance; of one search none."""
    if not loss.is_tuned:
        return {"search_std": None, "seed_std": None}
    groups = [[float(each.best[1]) for each in unit] for unit in loss.units]
    within = sum((value - mean(of)) ** 2 for of in groups for value in of) / sum(len(of) - 1 for of in groups)
    between = statistics.variance(map(mean, groups)) - within * mean([1 / len(of) for of in groups])
    return {"search_std": math.sqrt(max(between, 0.0)), "seed_std": math.sqrt(within)}


def to_best_of(loss: Loss, baseline: Loss) -> dict[str, Number]:
    """Epochs to the best of the baseline's same seed: Kaplan-Meier median, its interval by order statistics."""
    pairs = pairs_of(loss, baseline)
    reached = [ours.reaches(theirs.best[1]) for ours, theirs in pairs]
    interval = median_interval([(at, math.inf if never else at) for at, never in reached], is_one=len(loss.picks) == 1)
    steps, left = [], 1.0
    for moment in sorted({at for at, never in reached if not never}):
        running = sum(at >= moment for at, _ in reached)
        left *= 1 - sum(at == moment and not never for at, never in reached) / running
        steps.append((moment, left))
    last = max(at for at, _ in reached)
    half = next((at for at, left in steps if left < 0.5 + 1e-9), None)
    below = next((at for at, left in steps if left < 0.5 - 1e-9), None)
    return {
        "epochs_to_target": ((last if half is None else half) + (last if below is None else below)) / 2,
        "epochs_to_target_is_censored": half is None or below is None,
        "epochs_to_target_low": interval[0], "epochs_to_target_high": interval[1],
    }


def comparison(loss: Loss, baseline: Loss, factors: tuple[float, float] = (1.0, 1.0)) -> dict[str, Number]:
    """With p-values that are not yet corrected. factors: of Holm's correction, for the levels of the intervals."""
    pairs, by_search = pairs_of(loss, baseline), loss.is_tuned or baseline.is_tuned
    gains = [float(ours.best[1] - theirs.best[1]) for ours, theirs in pairs]
    target = 0.95 * mean(baseline.bests)
    logs = [
        [mean([math.log(each.reaches(target)[0]) for each in unit]) for unit in side.units] for side in (loss, baseline)
    ]
    never, theirs_never = (sum(each.reaches(target)[1] for each in side.counted) for side in (loss, baseline))
    ratio = mean(logs[0]) - mean(logs[1])
    if by_search:
        higher = scipy.stats.ttest_ind(loss.bests, baseline.bests, equal_var=False)
        faster = scipy.stats.ttest_ind(*logs, equal_var=False)
    else:
        higher = scipy.stats.ttest_1samp(gains, 0)
        faster = scipy.stats.ttest_1samp([one - other for one, other in zip(*logs, strict=True)], 0)
    factor = 1.0 if by_search else 2.5
    levels = [1 - 0.05 / (factor * each) for each in factors]
    ends, paces = higher.confidence_interval(levels[0]), faster.confidence_interval(levels[1])
    is_bound = (never if ratio < 0 else theirs_never) > 0
    differences = []
    for ours, theirs in pairs:
        at, missed = ours.reaches(theirs.best[1])
        percent = 100 * (at - theirs.best[0]) / theirs.best[0]
        differences.append((percent, math.inf if missed else percent))
    middle, above = (statistics.median(side) for side in zip(*differences, strict=True))
    low, high = median_interval(differences, is_one=len(loss.picks) == 1)
    arrived, is_open = sum(end < math.inf for _, end in differences), above != middle
    if is_open and (not arrived or middle < 0.05):
        middle, low, high = None, None, None
    improving = (None, None) if by_search else improvement_interval(gains, levels[0])
    percent: float | None = 100 * (math.exp(ratio) - 1)
    if (never and (theirs_never or ratio <= 0 or never == len(loss.counted))) or (theirs_never and ratio >= 0):
        percent = None
    return {
        "m_recall_gain": mean(loss.bests) - mean(baseline.bests), "m_recall_gain_low": float(ends.low),
        "m_recall_gain_high": float(ends.high), "m_recall_gain_p": min(1.0, factor * float(higher.pvalue)),
        "improvement": mean([1.0 if gain > 0 else 0.5 if gain == 0 else 0.0 for gain in gains]),
        "improvement_low": improving[0], "improvement_high": improving[1],
        "m_recall_gain_level": levels[0], "epochs_level": levels[1], "epochs_percent": percent,
        "epochs_percent_low": None if percent is None else -100.0 if theirs_never else 100 * (math.exp(paces.low) - 1),
        "epochs_percent_high": None if percent is None else math.inf if never else 100 * (math.exp(paces.high) - 1),
        "epochs_p": 1.0 if is_bound else min(1.0, factor * float(faster.pvalue)),
        "target_m_recall": target, "target_share": 0.95, "seeds_without_target": never,
        "difference_percent": middle, "difference_is_lower_bound": is_open, "difference_low": low,
        "difference_high": high, "censored_share": mean([end == math.inf for _, end in differences]),
        "seed_pairs": len(pairs),
    }


def pairs_of(loss: Loss, baseline: Loss) -> list[tuple[Training, Training]]:
    theirs = {each.seed: each for each in baseline.counted}
    return [(each, theirs[each.seed]) for each in loss.counted if each.seed in theirs]


def mean(values: Any) -> float:
    return float(statistics.fmean(map(float, values)))


def t_interval(values: Sequence[float]) -> tuple[float, float]:
    half = scipy.stats.t.ppf(0.975, len(values) - 1) * statistics.stdev(values) / math.sqrt(len(values))
    return mean(values) - half, mean(values) + half


def median_interval(values: Sequence[tuple[float, float]], *, is_one: bool) -> tuple[float | None, float | None]:
    """Of at least five seeds of one search: from the d-th smallest to the d-th largest value, between the two d whose
    coverage encloses 95 % (Hettmansperger and Sheather 1986). values: the least and the most that each may be."""
    seeds = len(values)
    if seeds < 5 or not is_one:
        return None, None
    low, high = (sorted(side) for side in zip(*values, strict=True))
    cover = [1 - 2 * scipy.stats.binom.cdf(d - 1, seeds, 0.5) for d in range(1, seeds // 2 + 1)]
    if cover[0] < 0.95:
        return low[0], high[-1]
    d = max(at for at, covered in enumerate(cover, 1) if covered >= 0.95)
    way = (cover[d - 1] - 0.95) / (cover[d - 1] - cover[d])
    share = (seeds - d) * way / (d + (seeds - 2 * d) * way)
    between = [
        outer if math.isinf(outer) else (1 - share) * outer + share * min(inner, 1e9)
        for outer, inner in ((low[d - 1], low[d]), (high[-d], high[-d - 1]))
    ]
    return between[0], between[1]


def improvement_interval(gains: Sequence[float], level: float) -> tuple[float, float]:
    """Of the probability that a seed is higher: the non-central t distributions of which the observed t is either
    quantile."""
    seeds = len(gains)
    t = math.sqrt(seeds) * mean(gains) / statistics.stdev(gains)
    ends = []
    for share in ((1 + level) / 2, (1 - level) / 2):
        reach = 10 + 5 * abs(t)
        shift = scipy.optimize.brentq(lambda nc, q=share: non_central_t(t, seeds - 1, nc) - q, -reach, reach)
        ends.append(statistics.NormalDist().cdf(shift / math.sqrt(seeds)))
    return ends[0], ends[1]


def non_central_t(t: float, freedom: int, shift: float) -> float:
    """P((Z + shift) / (chi / sqrt(freedom)) <= t), integrated over chi on a fine grid."""
    chi = np.linspace(1e-6, math.sqrt(freedom) + 9, 20_001)
    below = scipy.stats.norm.cdf(t * chi / math.sqrt(freedom) - shift) * scipy.stats.chi.pdf(chi, freedom)
    return float(scipy.integrate.simpson(below, x=chi))


def holm(p_values: Mapping[str, float]) -> dict[str, float]:
    return {name: min(1.0, factor * p_values[name]) for name, factor in factors_of_holm(p_values).items()}


def factors_of_holm(p_values: Mapping[str, float]) -> dict[str, float]:
    """The number of p-values that are as large or larger, and more where a smaller p-value was corrected to more."""
    factors, highest = {}, 0.0
    for place, (name, p) in enumerate(sorted(p_values.items(), key=lambda each: each[1])):
        highest = max(highest, (len(p_values) - place) * p)
        factors[name] = max(len(p_values) - place, highest / p)
    return factors
