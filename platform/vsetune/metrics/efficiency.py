"""Training efficiency: epochs to a level of M-Recall, and Difference against a baseline (LSEH Table 3, Eq. 10)."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from vsetune.metrics.curves import Curve, best_of_curve, check_same_cadence, is_trained
from vsetune.metrics.seed_statistics import Epochs, median_interval, still_rises


@dataclass(frozen=True)
class Difference:
    """Difference in per cent, negative is better; a lower bound if censored."""

    percent: float
    censored: bool


@dataclass(frozen=True)
class SeedDifference:
    """Median Difference over seed pairs with its 95 % interval.

    percent: the median; a lower bound if is_lower_bound, that is if censored pairs could move it. None for a lower
    bound below 0.05, and where no pair reached its target. low, high: interval of the median, None for fewer than five
    pairs and without a median; high is infinite where censoring leaves it unbounded. pairs: number of seeds.
    censored_share: share of the pairs, 0 to 1, in which the loss never reached the target.
    """

    percent: float | None
    is_lower_bound: bool
    low: float | None
    high: float | None
    pairs: int
    censored_share: float


TARGET_SHARE = 0.95
"""Default target of a comparison of epochs: this share of the baseline's mean best M-Recall."""
LEAST_BOUND = 0.05
"""Per cent. A bound of a difference that is nearer to 0, or on its other side, does not tell who is faster."""
_CUTOFFS = (1, 5, 10)


def chance_m_recall(images: int, captions: int) -> float:
    """Mean M-Recall of random orders, in per cent. captions: of all images, equally many for each."""
    found = []
    for k in _CUTOFFS:
        found.append(min(k / images, 1.0))  # a caption has one image
        missed = (max(1 - (captions / images) / (captions - place), 0.0) for place in range(min(k, captions)))
        found.append(1 - math.prod(missed))
    return 100 * statistics.fmean(found)


def is_collapsed(curve: Curve, *, best_of_any_loss: float, chance: float | None) -> bool:
    """Whether a training collapsed and cannot be a baseline. All in per cent; chance: None if the split is not known.

    True if it ended near a random order (`is_near_chance`). Also true if its best is below half of the best M-Recall of
    any loss with the same network and data, and it does not rise: the odds of its last M-Recall are below 1.25 times
    those of its first one, or it lost more than half of its best, and its end does not rise (`still_rises`). A training
    that rises slowly has not collapsed, and neither has a network that was not trained.
    """
    if not is_trained(curve):
        return False
    (_, first), (_, last), best = curve[0], curve[-1], best_of_curve(curve).m_recall
    if is_near_chance(last, chance):
        return True
    is_stuck = _odds_are_below(last, _RISE, first) or last < best / 2
    return best < best_of_any_loss / 2 and is_stuck and not still_rises([curve])


def is_near_chance(m_recall: float, chance: float | None) -> bool:
    """Whether the odds of an M-Recall are below twice those of a random order. Both in per cent; False if the chance is
    not known."""
    return chance is not None and _odds_are_below(m_recall, 2, chance)


_RISE = 1.25


def _odds_are_below(m_recall: float, times: float, level: float) -> bool:
    return m_recall * (100 - level) < times * level * (100 - m_recall)


def epochs_to_best(curve: Curve, *, tolerance: float) -> float:
    """Epoch of the first validation within `tolerance` (M-Recall points, >= 0) of the best of the curve."""
    level = best_of_curve(curve).m_recall - tolerance
    return next(epoch for epoch, m_recall in curve if m_recall >= level)


def epochs_to_target(curve: Curve, target: float) -> Epochs:
    """Epoch of the first validation at or above the target, else censored at the last epoch of the curve."""
    last = 0.0
    for epoch, m_recall in curve:
        if m_recall >= target:
            return Epochs(epoch, censored=False)
        last = epoch
    return Epochs(last, censored=True)


def difference_percent(loss: Epochs, baseline_epochs: float) -> Difference:
    """100 (loss - baseline) / baseline (LSEH Eq. 10, which prints no factor 100). A censored loss gives a bound.

    baseline_epochs: epochs the baseline needed to its own best, > 0 (else ValueError).
    """
    if not baseline_epochs > 0:
        raise ValueError(f"difference: got a baseline of {baseline_epochs:g} epochs, need more than 0")
    return Difference(100 * (loss.value - baseline_epochs) / baseline_epochs, loss.censored)


def difference_of_curves(curve: Curve, baseline: Curve) -> Difference:
    """Difference with the baseline's best M-Recall, at full precision, as target.

    Raises IncompatibleCurves if the two were validated at different gaps.
    """
    check_same_cadence(curve, baseline)
    best = best_of_curve(baseline)
    return difference_percent(epochs_to_target(curve, best.m_recall), best.epoch)


def difference_over_seeds(pairs: Sequence[tuple[Curve, Curve]]) -> SeedDifference:
    """Median Difference over (loss curve, baseline curve) pairs of equal seed, with the interval of order statistics.

    Each pair is censored at its own percentage, which depends on its baseline. The median is therefore bounded, and not
    estimated as the median of the epochs is (`survival`). Raises IncompatibleCurves as difference_of_curves does, and
    ValueError without pairs.
    """
    if not pairs:
        raise ValueError("difference: got no seed pairs, need at least one")
    differences = [difference_of_curves(curve, baseline) for curve, baseline in pairs]
    lower = [difference.percent for difference in differences]
    upper = [math.inf if difference.censored else difference.percent for difference in differences]
    percent, missed = statistics.median(lower), sum(difference.censored for difference in differences)
    low, high = median_interval(lower, upper)
    is_bound = statistics.median(upper) != percent
    says_nothing = is_bound and (missed == len(pairs) or percent < LEAST_BOUND)
    return SeedDifference(
        percent=None if says_nothing else percent, is_lower_bound=is_bound,
        low=None if np.isnan(low) or says_nothing else float(low),
        high=None if np.isnan(high) or says_nothing else float(high), pairs=len(pairs),
        censored_share=missed / len(pairs),
    )
