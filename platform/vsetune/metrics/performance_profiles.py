"""Who trains to the target soonest, over many tasks at once: performance profiles (Dolan and More 2002).

A solver here is a loss, a task a network on a data set. As in AlgoPerf (Dahl et al. 2023) a solver gets to
the target of a task when at least a stated share of its runs do, its profile is the share of the tasks on which it is
within a factor tau of the fastest solver, and its score the mean height of that profile up to a largest tau.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from vsetune.metrics.survival import Epochs

HIT_SHARE = 0.5
"""Of the runs: AlgoPerf's median over its studies."""
LARGEST_FACTOR = 4.0
"""tau up to which a profile counts for its score, as in AlgoPerf."""


@dataclass(frozen=True)
class Profile:
    """factors: per task the time over that of the fastest solver, at least 1, infinite where the target was not hit.
    score: mean height of the profile from tau = 1 to the largest tau, 0 to 1."""

    factors: tuple[float, ...]
    score: float

    def share(self, tau: float) -> float:
        """Of the tasks, 0 to 1, those within the factor tau of the fastest."""
        return sum(factor <= tau for factor in self.factors) / len(self.factors)


def time_for_share(values: Sequence[Epochs], share: float = HIT_SHARE) -> float:
    """By when at least this share of the runs (above 0, at most 1) have got there; infinite where fewer do.

    A run that ended before without the target has not got there. Raises ValueError without runs or for another share.
    """
    if not values or not 0 < share <= 1:
        raise ValueError(f"time for a share: got {len(values)} runs and a share of {share:g}, need runs and 0 to 1")
    reached = sorted(each.value for each in values if not each.censored)
    needed = math.ceil(share * len(values) - 1e-9)
    return reached[needed - 1] if len(reached) >= needed else math.inf


def performance_profiles(
    times: Mapping[str, Sequence[float]], *, largest_factor: float = LARGEST_FACTOR
) -> dict[str, Profile]:
    """times: per solver its time on every task, in one order, above 0, infinite where it did not get there.

    A task that no solver got to counts against all. Raises ValueError for no task, for different numbers of them, a
    time that is not above 0 or a largest factor that is not above 1.
    """
    tasks = {len(of) for of in times.values()}
    if len(tasks) != 1 or 0 in tasks:
        raise ValueError(f"performance profiles: got {sorted(tasks)} tasks per solver, need the same tasks for all")
    if not largest_factor > 1 or not all(time > 0 for of in times.values() for time in of):
        raise ValueError("performance profiles: need times above 0 and a largest factor above 1")
    fastest = [min(of) for of in zip(*times.values(), strict=True)]
    factors = {
        solver: tuple(math.inf if math.isinf(time) else time / least for time, least in zip(of, fastest, strict=True))
        for solver, of in times.items()
    }
    return {solver: Profile(of, _score(of, largest_factor)) for solver, of in factors.items()}


def _score(factors: Sequence[float], largest: float) -> float:
    """Every task adds the part of 1 to the largest factor from its own on: the area below the steps."""
    return sum(max(largest - factor, 0.0) for factor in factors) / (len(factors) * (largest - 1))
