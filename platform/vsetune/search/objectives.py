"""What the search of a cell maximises, as a number of a trial's curve. Larger is better, whatever it is a number of.

Stopping rules keep to M-Recall; the objective is what the sampler learns from and what picks the winner.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from vsetune.config.study.study_spec import ConstraintSpec, ObjectiveName
from vsetune.metrics.curves import best_of_curve

Curve = Sequence[tuple[float, float]]
GIB = 2**30


@dataclass(frozen=True)
class Objective:
    """whole: epochs of a training that nobody stops. target: M-Recall in per cent, for `epochs_to_target` alone."""

    kind: ObjectiveName
    whole: float
    target: float | None = None

    def value(self, curve: Curve) -> float:
        """Of a trial with at least one validation (ValueError without), however it ended.

        best_m_recall: per cent. area_under_curve: mean over the epochs of a whole training of the best M-Recall so far,
        per cent; 0 before the first validation, the last best where the trial ended early. epochs_to_target: minus the
        cost in epochs, see `epochs_needed`.
        """
        best = best_of_curve(curve).m_recall
        if self.kind == "best_m_recall":
            return best
        if self.kind == "area_under_curve":
            return _mean_of_best(curve, self.whole)
        assert self.target is not None, "epochs_to_target: got no target"
        return -epochs_needed(curve, self.target, self.whole)

    def told(self, curve: Curve, excess: float) -> Curve:
        """What the sampler hears in place of the curve: its own numbers where the objective is plain M-Recall, else one
        value at the last epoch. excess: by how much the trial breaks a constraint, see `excess_of`; it takes away so
        much that none which keeps them is worse."""
        if not curve or (self.kind == "best_m_recall" and excess <= 0):
            return curve
        return [(curve[-1][0], self._penalised(self.value(curve), excess))]

    def _penalised(self, value: float, excess: float) -> float:
        if excess <= 0:
            return value
        worst = -2 * self.whole if self.kind == "epochs_to_target" else 0.0
        scale = self.whole if self.kind == "epochs_to_target" else 10.0
        return worst - scale * min(excess, 1.0)


def epochs_needed(curve: Curve, target: float, whole: float) -> float:
    """Epochs to the target as a search counts them, so that all trials can be told apart; no number for a leaderboard.

    Reached: where the straight line between the validation before and the first at or above the target crosses it; that
    validation's own epoch where it is the first. Never reached: `whole` epochs, and as many again times the share
    of the target that its best is short of. So every hit is below every miss, and a near miss below a far one.
    """
    before: tuple[float, float] | None = None
    for epoch, m_recall in curve:
        if m_recall >= target:
            if before is None:
                return epoch
            return before[0] + (epoch - before[0]) * (target - before[1]) / (m_recall - before[1])
        before = epoch, m_recall
    return whole * (1 + min(1.0, (target - best_of_curve(curve).m_recall) / target))


def excess_of(constraints: ConstraintSpec, summary: Mapping[str, float]) -> float:
    """By what share a trial is over the limit that it breaks most; 0 or less: it keeps them all, as far as measured."""
    shares = [
        summary[key] / (unit * limit) - 1 for key, unit, limit in _limits(constraints) if key in summary
    ]
    return max(shares, default=0.0)


def broken_limits(constraints: ConstraintSpec, summary: Mapping[str, float]) -> list[str]:
    """What a trial breaks, in words: `12.0 seconds per epoch, at most 10`."""
    words = {"seconds_per_epoch": "seconds per epoch", "peak_memory_bytes": "GiB of memory"}
    return [
        f"{summary[key] / unit:.3g} {words[key]}, at most {limit:g}"
        for key, unit, limit in _limits(constraints) if summary.get(key, 0.0) > unit * limit
    ]


def broken_for_good(constraints: ConstraintSpec, summary: Mapping[str, float]) -> str:
    """The first limit that a training trial is over, as the reason to stop it; empty where it goes on.

    summary: totals of the trial so far. Seconds per epoch are the mean of all it has trained, first steps included, as
    a leaderboard has them; they count once that is a whole epoch. The most memory held at once never falls: at once.
    """
    names = {"seconds_per_epoch": "seconds_per_epoch", "peak_memory_bytes": "peak_memory_gib"}
    for key, unit, limit in _limits(constraints):
        is_known = key != "seconds_per_epoch" or summary.get("epochs", 0.0) >= 1
        if is_known and (measured := summary.get(key, 0.0) / unit) > limit:
            return f"constraint {names[key]}: {_above(measured, limit)} > {limit:g}"
    return ""


def _above(measured: float, limit: float) -> str:
    """With as few digits as still show that it is above."""
    return next(text for digits in (3, 5, 17) if float(text := f"{measured:.{digits}g}") > limit)


def _limits(constraints: ConstraintSpec) -> list[tuple[str, float, float]]:
    """(key in the summary of an attempt, its unit, at most so many units)."""
    given = [
        ("seconds_per_epoch", 1.0, constraints.seconds_per_epoch),
        ("peak_memory_bytes", float(GIB), constraints.peak_memory_gib),
    ]
    return [(key, unit, limit) for key, unit, limit in given if limit is not None]


def _mean_of_best(curve: Curve, whole: float) -> float:
    area, best = 0.0, 0.0
    for (epoch, m_recall), (later, _) in itertools.pairwise([*curve, (max(whole, curve[-1][0]), 0.0)]):
        best = max(best, m_recall)
        area += best * (later - epoch)
    return area / max(whole, curve[-1][0])
