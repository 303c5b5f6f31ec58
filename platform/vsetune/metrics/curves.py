"""Validation curves: their best point, their cadence, their mean, and whether two of them may be compared.

A curve is a sequence of (epoch, M-Recall) in the order of training: fractional epochs (pairs seen / pairs of the train
split), M-Recall of the validation split in per cent. Nothing is interpolated between points.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from vsetune.errors import IncompatibleCurves

Curve = Sequence[tuple[float, float]]

SAME_EPOCH = 1e-9
"""Epochs are ratios of pair counts; equal ones differ in the last bits only."""


@dataclass(frozen=True)
class BestPoint:
    """The first point of a curve that reaches its maximum. is_last: no later validation exists."""

    epoch: float
    m_recall: float
    is_last: bool


def best_of_curve(curve: Curve) -> BestPoint:
    """The maximum of a curve; of equal points the earlier one. Raises ValueError if there is no point."""
    if not curve:
        raise ValueError("curve: got no points, need at least one validation")
    recalls = [m_recall for _, m_recall in curve]
    best = recalls.index(max(recalls))
    return BestPoint(curve[best][0], recalls[best], is_last=best == len(curve) - 1)


def is_trained(curve: Curve) -> bool:
    """Whether a validation came after a step. With `epochs: 0` the only one is at epoch 0."""
    return any(epoch > 0 for epoch, _ in curve)


def resolution(curve: Curve) -> float:
    """Largest gap between validations, in epochs, the start included. Differences below it mean nothing.

    The end of an epoch adds extra points and the last batch is short, so gaps vary; the largest is the cadence.
    """
    epochs = [0.0, *(epoch for epoch, _ in curve)]
    return max((later - earlier for earlier, later in itertools.pairwise(epochs)), default=0.0)


def mean_curve(curves: Sequence[Curve]) -> list[tuple[float, float]]:
    """Mean M-Recall at the epochs that all seeds share; it ends where the shortest seed ends."""
    by_epoch = [dict(curve) for curve in curves]
    shared = [epoch for epoch, _ in curves[0] if all(epoch in curve for curve in by_epoch)]
    return [(epoch, math.fsum(curve[epoch] for curve in by_epoch) / len(by_epoch)) for epoch in shared]


def check_same_protocol(first: Mapping[str, Any], second: Mapping[str, Any]) -> None:
    """Refuse to compare curves taken under different protocols; every key counts, missing ones too.

    Raises IncompatibleCurves naming each key that differs with both values.
    """
    differing = [
        f"{key} is {first.get(key, 'absent')} in one and {second.get(key, 'absent')} in the other"
        for key in sorted(first.keys() | second.keys())
        if key not in first or key not in second or first[key] != second[key]
    ]
    if differing:
        raise IncompatibleCurves(
            "VSE-M014", "protocol: {differences}; need curves taken under one protocol, run both in one study",
            differences="; ".join(differing),
        )


def check_same_cadence(first: Curve, second: Curve) -> None:
    """Refuse to compare curves validated at different gaps. Raises IncompatibleCurves with both gaps in epochs.

    A curve without points (an attempt that failed before its first validation), and one of a network that was not
    trained, has no cadence and passes.
    """
    if not is_trained(first) or not is_trained(second):
        return
    gaps = resolution(first), resolution(second)
    if not math.isclose(*gaps, rel_tol=1e-6):
        raise IncompatibleCurves(
            "VSE-M015", "cadence: one curve was validated every {first:.6g} epochs, the other every {second:.6g}; need "
            "equal gaps, set the same training.validate_every_steps and batch_size", first=gaps[0], second=gaps[1],
        )
