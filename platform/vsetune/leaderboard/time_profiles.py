"""Performance profiles of the losses of a board: which gets to the baseline's best within which factor of the soonest.

A task is a network on a data set. A loss is in it with all of them or not at all: one that was not run somewhere has
neither won nor lost there, and shares over different tasks do not compare.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from vsetune.leaderboard.comparing import NO_YARDSTICK, is_evidence
from vsetune.leaderboard.rows import Row
from vsetune.leaderboard.time_profile import LossProfile, TimeProfile
from vsetune.metrics.performance_profiles import (
    HIT_SHARE,
    LARGEST_FACTOR,
    Profile,
    performance_profiles,
    time_for_share,
)
from vsetune.metrics.survival import Epochs

Task = tuple[str, str]


def time_profile(rows: Sequence[Row], baseline: str, *, hit_share: float = HIT_SHARE) -> TimeProfile | None:
    """Of the rows of one board. Only seeds count that finished and did not choose the configuration, of the loss and of
    the baseline. None where nothing but the baseline is left to be compared."""
    tasks: dict[Task, dict[str, Row]] = {}
    for row in rows:
        tasks.setdefault((row.dataset, row.network), {})[row.loss] = row
    left_out = []
    for task, of in list(tasks.items()):
        reason = _no_target(of.get(baseline), baseline)
        if reason is not None:
            left_out.append(f"{_name(task)}: {reason}")
            del tasks[task]
    epochs: dict[str, list[list[Epochs]]] = {}
    for loss in dict.fromkeys(row.loss for row in rows):
        missing = [
            f"{_name(task)} ({reason})" for task, of in tasks.items() if (reason := _not_in(of.get(loss))) is not None
        ]
        if missing:
            left_out.append(f"{loss}: {', '.join(missing)}")
        else:
            epochs[loss] = [_counted(of[loss]) for of in tasks.values()]
    if not tasks or len(epochs) < 2:
        return None
    times = {loss: [time_for_share(values, hit_share) for values in of] for loss, of in epochs.items()}
    profiles = performance_profiles(times)
    losses = (_loss_profile(loss, profile, epochs) for loss, profile in profiles.items())
    return TimeProfile(
        tuple(tasks), hit_share, LARGEST_FACTOR, tuple(sorted(losses, key=lambda each: -each.score)), tuple(left_out)
    )


def _loss_profile(loss: str, profile: Profile, epochs: Mapping[str, Sequence[Sequence[Epochs]]]) -> LossProfile:
    rises = sorted({1.0, *(factor for factor in profile.factors if math.isfinite(factor))})
    return LossProfile(
        loss, profile.factors, tuple((tau, profile.share(tau)) for tau in rises), profile.score,
        min(len(values) for values in epochs[loss]),
    )


def _no_target(baseline: Row | None, name: str) -> str | None:
    """Why a task has no target; None if it has one."""
    if baseline is None or not baseline.seeds:
        return f"no result of {name}"
    flag = next((flag for flag in NO_YARDSTICK if flag in baseline.flags), None)
    if flag is not None:
        return f"{name} {'was still rising when it ended' if flag == 'baseline_rising' else 'collapsed'}"
    return _not_in(baseline)


def _not_in(row: Row | None) -> str | None:
    """Why a row has no epochs to the target of a task; None if it has."""
    if row is None:
        return "not run"
    if row.not_comparable is not None:
        return "not comparable"
    return None if _counted(row) else "no finished seed, shared with the baseline, that chose nothing"


def _counted(row: Row) -> list[Epochs]:
    fresh = row.comparison.seeds if row.comparison is not None else [seed.seed for seed in row.seeds]
    return [
        seed.epochs_to_target for seed in row.seeds
        if seed.epochs_to_target is not None and is_evidence(seed) and seed.seed in fresh
    ]


def _name(task: Task) -> str:
    dataset, network = task
    return f"{network} on {dataset}"
