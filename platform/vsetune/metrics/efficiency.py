"""Training efficiency: epochs to a level of M-Recall, and Difference against a baseline (LSEH Table 3, Eq. 10).

A target that was never reached is right-censored at the last epoch seen: a lower bound, never a hit, never dropped.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from vsetune.metrics.curves import Curve, best_of_curve, check_same_cadence

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Epochs:
    """Epochs until something happened; if censored it had not happened by then, and value is a lower bound."""

    value: float
    censored: bool


@dataclass(frozen=True)
class Difference:
    """Difference in per cent, negative is better; if censored a lower bound."""

    percent: float
    censored: bool


@dataclass(frozen=True)
class SeedDifference:
    """Median Difference over seed pairs with a bootstrap interval.

    percent: the median; a lower bound if is_lower_bound, that is if censored pairs could move it. low, high: percentile
    interval over resampled seed pairs; high is infinite where censoring leaves it open. pairs: how many seeds.
    censored_share: share of the pairs, 0 to 1, in which the loss never reached the target.
    """

    percent: float
    is_lower_bound: bool
    low: float
    high: float
    pairs: int
    censored_share: float


@dataclass(frozen=True)
class MeanDifference:
    """Mean of per-network percentages (as Table 3), over the `counted` networks that are neither censored nor excluded.

    percent: None if none is left. censored: networks left out because their Difference is only a bound.
    """

    percent: float | None
    counted: int
    censored: int


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


def difference_over_seeds(
    pairs: Sequence[tuple[Curve, Curve]], *, resamples: int, level: float, seed: int
) -> SeedDifference:
    """Median Difference over (loss curve, baseline curve) pairs of equal seed, with a percentile bootstrap interval.

    resamples: bootstrap samples. level: coverage, e.g. 0.95. seed: of the resampling; equal seeds, equal interval.
    Raises IncompatibleCurves as difference_of_curves does, ValueError without pairs.
    """
    if not pairs:
        raise ValueError("difference: got no seed pairs, need at least one")
    differences = [difference_of_curves(curve, baseline) for curve, baseline in pairs]
    lower = np.array([difference.percent for difference in differences])
    censored = np.array([difference.censored for difference in differences])
    upper = np.where(censored, np.inf, lower)
    samples = np.random.default_rng(seed).integers(len(pairs), size=(resamples, len(pairs)))
    tail = (1 - level) / 2
    percent = float(np.median(lower))
    return SeedDifference(
        percent=percent,
        is_lower_bound=bool(_median(upper[None, :])[0] != percent),
        low=float(np.quantile(_median(lower[samples]), tail, method="lower")),
        high=float(np.quantile(_median(upper[samples]), 1 - tail, method="higher")),
        pairs=len(pairs),
        censored_share=float(censored.mean()),
    )


def mean_difference(differences: Sequence[Difference]) -> MeanDifference:
    """Mean over networks of their percentages. Leave collapsed baselines out before calling, and list them."""
    known = [difference.percent for difference in differences if not difference.censored]
    return MeanDifference(
        percent=sum(known) / len(known) if known else None,
        counted=len(known), censored=len(differences) - len(known),
    )


def _median(rows: Floats) -> Floats:
    """Median of each row; infinite as soon as a middle value is."""
    ordered = np.sort(rows, axis=1)
    size = ordered.shape[1]
    middle: Floats = (ordered[:, (size - 1) // 2] + ordered[:, size // 2]) / 2
    return middle
