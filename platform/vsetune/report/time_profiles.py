"""Performance profiles and Pareto fronts of the losses of a board."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from vsetune.metrics.performance_profiles import (
    HIT_SHARE,
    LARGEST_FACTOR,
    Profile,
    performance_profiles,
    time_for_share,
)
from vsetune.metrics.seed_statistics import Epochs
from vsetune.report.rows import LossProfile, Row, TimeProfile, Unit
from vsetune.report.seed_results import SeedResult

Task = tuple[str, str]


def time_profile(
    rows: Sequence[Row], baseline: str, *, unit: Unit = "epochs", hit_share: float = HIT_SHARE
) -> TimeProfile | None:
    """The profile of the rows of one board. Seeds count only if they finished and did not choose the configuration,
    for the loss and for the baseline. None if no task or fewer than two losses remain."""
    tasks: dict[Task, dict[str, Row]] = {}
    for row in rows:
        tasks.setdefault((row.dataset, row.network), {})[row.loss] = row
    left_out = []
    for task, of in list(tasks.items()):
        reason = _no_target(of.get(baseline), baseline, unit)
        if reason is not None:
            left_out.append(f"{_name(task)}: {reason}")
            del tasks[task]
    times: dict[str, list[list[Epochs]]] = {}
    unfit: dict[str, list[str]] = {}
    for loss in dict.fromkeys(row.loss for row in rows):
        missing = [
            f"{_name(task)} ({reason})" for task, of in tasks.items()
            if (reason := _not_in(of.get(loss), of[baseline], unit)) is not None
        ]
        if missing:
            unfit.setdefault(", ".join(missing), []).append(loss)
        else:
            times[loss] = [[_time(seed, unit) for seed in _counted(of[loss])] for of in tasks.values()]
    left_out += [f"{', '.join(losses)}: {reasons}" for reasons, losses in unfit.items()]
    if not tasks or len(times) < 2:
        return None
    profiles = performance_profiles({
        loss: [time_for_share(values, hit_share) for values in of] for loss, of in times.items()
    })
    losses = (_loss_profile(loss, profile, times) for loss, profile in profiles.items())
    return TimeProfile(
        tuple(tasks), hit_share, LARGEST_FACTOR, tuple(sorted(losses, key=lambda each: -each.score)), tuple(left_out),
        unit,
    )


def _loss_profile(loss: str, profile: Profile, times: Mapping[str, Sequence[Sequence[Epochs]]]) -> LossProfile:
    rises = sorted({1.0, *(factor for factor in profile.factors if math.isfinite(factor))})
    return LossProfile(
        loss, profile.factors, tuple((tau, profile.share(tau)) for tau in rises), profile.score,
        min(len(values) for values in times[loss]),
    )


def _no_target(baseline: Row | None, name: str, unit: Unit) -> str | None:
    """Why a task is left out (no usable target or times of the baseline); None if it is not."""
    if baseline is None or not baseline.seeds:
        return f"no result of {name}"
    if baseline.collapse is not None:
        return f"{name} collapsed"
    if "baseline_rising" in baseline.flags:
        return f"{name} was still rising when it ended"
    return _not_in(baseline, baseline, unit)


def _not_in(row: Row | None, baseline: Row, unit: Unit) -> str | None:
    """Why a row has no time to the target of a task; None if it has one."""
    if row is None:
        return "not run"
    if row.not_comparable is not None:
        return "not comparable"
    if not row.is_trained:
        return "not trained"
    if not _counted(row):
        return "no finished seed, shared with the baseline, that chose nothing"
    return None if unit == "epochs" else _no_seconds(row, baseline)


def _no_seconds(row: Row, baseline: Row) -> str | None:
    """Why the seconds of a row are not comparable with those of the baseline; None if they are."""
    if any(not seed.seconds_per_epoch or not seed.hardware for seed in _counted(row) if not seed.diverged):
        return "not recorded how long an epoch took, or on which hardware"
    used = dict.fromkeys(seed.hardware for each in (baseline, row) for seed in _counted(each) if not seed.diverged)
    return None if len(used) == 1 else f"trained on different hardware: {'; '.join(used)}"


def _counted(row: Row) -> list[SeedResult]:
    fresh = row.comparison.seeds if row.comparison is not None else [seed.seed for seed in row.seeds]
    return [
        seed for seed in row.seeds
        if seed.epochs_to_target is not None and seed.is_evidence and seed.seed in fresh
    ]


def _time(seed: SeedResult, unit: Unit) -> Epochs:
    """Time to the target; seconds are its epochs times the mean seconds per epoch of its whole training."""
    epochs = seed.epochs_to_target
    assert epochs is not None
    if unit == "epochs":
        return epochs
    return Epochs(epochs.value * (seed.seconds_per_epoch or 0.0), epochs.censored)


def _name(task: Task) -> str:
    dataset, network = task
    return f"{network} on {dataset}"


def pareto_front(rows: Sequence[Row]) -> list[Row]:
    """The rows that no other beats in both M-Recall and epochs to the baseline's best, fewest epochs first. Only rows
    that are comparable and reach the baseline's best count."""
    points = [
        ((row.best_m_recall, -row.epochs_to_target.value), row) for row in rows
        if row.best_m_recall is not None and row.epochs_to_target is not None and not row.epochs_to_target.censored
    ]
    front = [(at, row) for at, row in points if not any(_beats(other, at) for other, _ in points)]
    return [row for _, row in sorted(front, key=lambda each: (-each[0][1], each[1].loss))]


def _beats(one: tuple[float, float], other: tuple[float, float]) -> bool:
    """Whether one is not worse in either value and better in at least one."""
    return one != other and all(mine >= theirs for mine, theirs in zip(one, other, strict=True))
