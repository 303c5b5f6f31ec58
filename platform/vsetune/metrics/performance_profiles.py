"""Time to the target over many tasks: performance profiles (Dolan and More 2002).

A solver here is a loss, a task a network on a data set. As in AlgoPerf (Dahl et al. 2023), a solver reaches the target
of a task when at least a stated share of its runs do. Its profile is the share of the tasks on which it is within a
factor tau of the fastest solver. Its score is the mean height of that profile up to a largest tau.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from vsetune.metrics.seed_statistics import Epochs

HIT_SHARE = 0.5
"""Share of the runs that must reach the target: AlgoPerf's median over its studies."""
LARGEST_FACTOR = 4.0
"""Largest tau that counts for the score of a profile, as in AlgoPerf."""


@dataclass(frozen=True)
class Profile:
    """factors: per task the time over that of the fastest solver, at least 1, infinite where the target was not hit.
    score: mean height of the profile from tau = 1 to the largest tau, 0 to 1."""

    factors: tuple[float, ...]
    score: float

    def share(self, tau: float) -> float:
        """Share of the tasks, 0 to 1, within the factor tau of the fastest solver."""
        return sum(factor <= tau for factor in self.factors) / len(self.factors)


def time_for_share(values: Sequence[Epochs], share: float = HIT_SHARE) -> float:
    """Time by which at least this share of the runs (above 0, at most 1) reached the target; infinite where fewer do.

    A censored run has not reached it. Raises ValueError without runs or for another share.
    """
    if not values or not 0 < share <= 1:
        raise ValueError(f"time for a share: got {len(values)} runs and a share of {share:g}, need runs and 0 to 1")
    reached = sorted(each.value for each in values if not each.censored)
    needed = math.ceil(share * len(values) - 1e-9)
    return reached[needed - 1] if len(reached) >= needed else math.inf


def performance_profiles(
    times: Mapping[str, Sequence[float]], *, largest_factor: float = LARGEST_FACTOR
) -> dict[str, Profile]:
    """Profiles by solver. times: by solver, its time on every task, in one order, above 0, infinite where it did not
    reach the target.

    A task whose target no solver reached counts against all. Raises ValueError without tasks, for different numbers of
    tasks, a time that is not above 0 or a largest factor that is not above 1.
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
    """Mean height of the profile from 1 to the largest factor: each task adds the part of this range above its factor.
    """
    return sum(max(largest - factor, 0.0) for factor in factors) / (len(factors) * (largest - 1))
