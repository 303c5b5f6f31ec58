"""The objective of the search of a cell: a number computed from a trial's curve. Larger is always better.

Stopping rules use M-Recall; the sampler learns from the objective, which also selects the winner.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from vsetune.config.study.study_spec import ConstraintSpec, ObjectiveName
from vsetune.metrics.curves import best_of_curve

Curve = Sequence[tuple[float, float]]
GIB = 2**30


@dataclass(frozen=True)
class Objective:
    """whole: epochs of a trial that is not stopped early. target: M-Recall in per cent, for `epochs_to_target`
    alone."""

    kind: ObjectiveName
    whole: float
    target: float | None = None

    def value(self, curve: Curve) -> float:
        """The objective of a trial with at least one validation (ValueError without), however it ended.

        best_m_recall: per cent. area_under_curve: mean over the epochs of a full-length trial of the best M-Recall so
        far, per cent; 0 before the first validation, and the last best value after an early end. epochs_to_target:
        minus the cost in epochs, see `epochs_needed`.
        """
        best = best_of_curve(curve).m_recall
        if self.kind == "best_m_recall":
            return best
        if self.kind == "area_under_curve":
            return _mean_of_best(curve, self.whole)
        assert self.target is not None, "epochs_to_target: got no target"
        return -epochs_needed(curve, self.target, self.whole)

    def sampler_curve(self, curve: Curve, above_limit: float) -> Curve:
        """The curve that the sampler receives: the original where the objective is plain M-Recall, else one value at
        the last epoch. above_limit: by how much the trial breaks a constraint, see `share_above_limit`; the penalty
        ranks the trial below every trial that keeps its constraints.
        """
        if not curve or (self.kind == "best_m_recall" and above_limit <= 0):
            return curve
        return [(curve[-1][0], self._penalised(self.value(curve), above_limit))]

    def _penalised(self, value: float, above_limit: float) -> float:
        if above_limit <= 0:
            return value
        worst = -2 * self.whole if self.kind == "epochs_to_target" else 0.0
        scale = self.whole if self.kind == "epochs_to_target" else 10.0
        return worst - scale * min(above_limit, 1.0)


BEST_M_RECALL = Objective("best_m_recall", whole=0.0)
"""The objective whose value does not depend on the length of a trial."""


def epochs_needed(curve: Curve, target: float, whole: float) -> float:
    """Epochs to the target as a search counts them, so that all trials can be ranked; not a leaderboard number.

    Reached: the epoch at which the straight line from the validation before to the first at or above the target crosses
    it, or the epoch of that validation if it is the first. Not reached: `whole` epochs, plus `whole` times the share of
    the target by which the best M-Recall falls short. So every trial that reaches the target costs less than every
    trial that misses it, and a near miss less than a far one.
    """
    before: tuple[float, float] | None = None
    for epoch, m_recall in curve:
        if m_recall >= target:
            if before is None:
                return epoch
            return before[0] + (epoch - before[0]) * (target - before[1]) / (m_recall - before[1])
        before = epoch, m_recall
    return whole * (1 + min(1.0, (target - best_of_curve(curve).m_recall) / target))


def share_above_limit(constraints: ConstraintSpec, summary: Mapping[str, float]) -> float:
    """By what share a trial exceeds the limit that it exceeds most; 0 or less: all measured limits are kept."""
    return max((each.measured / each.most - 1 for each in _limits(constraints, summary)), default=0.0)


def broken_for_good(constraints: ConstraintSpec, summary: Mapping[str, float]) -> str:
    """The first limit that a running trial exceeds, as the reason to stop it; empty where it continues.

    summary: totals of the trial so far. Seconds per epoch are the mean over all trained epochs, first steps included,
    as on a leaderboard; they are checked after one whole epoch. Peak memory never falls, so it is checked immediately.
    """
    for each in _limits(constraints, summary):
        is_known = each.setting != "seconds_per_epoch" or summary.get("epochs", 0.0) >= 1
        if is_known and each.measured > each.most:
            return f"constraint {each.setting}: {_above(each.measured, each.most)} > {each.most:g}"
    return ""


def _above(measured: float, limit: float) -> str:
    """The number with the fewest digits that still show that it is above the limit."""
    return next(text for digits in (3, 5, 17) if float(text := f"{measured:.{digits}g}") > limit)


class _Limit(NamedTuple):
    setting: str
    measured: float
    most: float


def _limits(constraints: ConstraintSpec, summary: Mapping[str, float]) -> list[_Limit]:
    """The limits of a study whose quantity the summary of an attempt has."""
    table = (
        ("seconds_per_epoch", "seconds_per_epoch", 1.0, constraints.seconds_per_epoch),
        ("peak_memory_gib", "peak_memory_bytes", float(GIB), constraints.peak_memory_gib),
    )
    return [
        _Limit(setting, summary[key] / unit, most)
        for setting, key, unit, most in table if most is not None and key in summary
    ]


def _mean_of_best(curve: Curve, whole: float) -> float:
    area, best = 0.0, 0.0
    for (epoch, m_recall), (later, _) in itertools.pairwise([*curve, (max(whole, curve[-1][0]), 0.0)]):
        best = max(best, m_recall)
        area += best * (later - epoch)
    return area / max(whole, curve[-1][0])
