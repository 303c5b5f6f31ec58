"""Which attempts a leaderboard shows, and what it charges for all of them."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Sequence
from pathlib import PurePosixPath

from vsetune.leaderboard.rows import Cost
from vsetune.tracking.records import AttemptRecord

Trial = tuple[AttemptRecord, ...]
"""All attempts at one trial, by number; the last one counts."""


def dataset_of(attempt: AttemptRecord) -> str:
    """Name of the data set: as the protocol says, else the last part of its path."""
    named = attempt.start.protocol.get("dataset")
    data = attempt.start.resolved.get("data")
    path = data.get("path", "") if isinstance(data, dict) else ""
    return str(named or PurePosixPath(str(path)).name or "data")


def trials_of(attempts: Sequence[AttemptRecord]) -> list[Trial]:
    """Attempts grouped into trials, each in the order of their numbers."""
    grouped: defaultdict[str, list[AttemptRecord]] = defaultdict(list)
    for attempt in attempts:
        grouped[attempt.start.trial].append(attempt)
    return [tuple(sorted(trial, key=lambda attempt: attempt.start.number)) for trial in grouped.values()]


def cost_of(trials: Sequence[Trial]) -> Cost:
    """What the trials used, whatever became of them."""
    costs = [_cost(trial) for trial in trials]
    return Cost(
        epochs=sum(cost.epochs for cost in costs),
        device_seconds=sum(cost.device_seconds for cost in costs),
        wasted_epochs=sum(cost.wasted_epochs for cost in costs),
    )


def _cost(trial: Trial) -> Cost:
    """Epochs and device-seconds of one trial.

    An attempt that continued from a checkpoint repeats the earlier curve and its seconds include the earlier ones;
    they are charged once. One that began anew is charged in full. Epochs lost between a checkpoint and a crash are
    in `wasted_epochs` of the attempts after it, summed over the trial.
    """
    epochs = seconds = wasted = 0.0
    before: AttemptRecord | None = None
    for attempt in trial:
        inherited = _inherited_epochs(before, attempt) if before else 0.0
        inherited_seconds = _device_seconds(before) if before and inherited else 0.0
        epochs += _last_epoch(attempt) - inherited
        seconds += max(0.0, _device_seconds(attempt) - inherited_seconds)
        wasted = max(wasted, attempt.summary.get("wasted_epochs", 0.0))
        before = attempt
    return Cost(epochs + wasted, seconds, wasted)


def _inherited_epochs(before: AttemptRecord, attempt: AttemptRecord) -> float:
    """The epoch up to which both attempts have the very same curve."""
    inherited = 0.0
    for old, new in zip(before.curve, attempt.curve, strict=False):
        if old != new:
            break
        inherited = new[0]
    return inherited


def _last_epoch(attempt: AttemptRecord) -> float:
    seen = attempt.curve[-1][0] if attempt.curve else 0.0
    return max(seen, attempt.summary.get("epochs", 0.0))


def _device_seconds(attempt: AttemptRecord) -> float:
    return attempt.summary.get("device_seconds", attempt.summary.get("train_seconds", 0.0))


def usable(trial: Trial) -> bool:
    """Its curve may be shown: it has one, and it did not end in an error."""
    return bool(trial[-1].curve) and trial[-1].status != "failed"


def configuration_key(attempt: AttemptRecord) -> str:
    """Equal for attempts that differ in nothing but the seed."""
    plain = {key: value for key, value in attempt.start.configuration.items() if key != "seed"}
    return json.dumps(plain, sort_keys=True, default=str)


def winner_of(trials: Sequence[Trial]) -> AttemptRecord | None:
    """The attempt of the search with the best validation M-Recall; the earlier one of equals.

    Confirming runs are looked at only if nothing of the search is usable.
    """
    candidates = [trial[-1] for trial in trials if usable(trial)]
    searched = [attempt for attempt in candidates if attempt.start.phase == "search"] or candidates
    return max(searched, key=lambda attempt: max(recall for _, recall in attempt.curve), default=None)


def runs_of_configuration(trials: Sequence[Trial], winner: AttemptRecord) -> list[Trial]:
    """One trial per seed of the winner's configuration, by seed; of two with one seed the confirming, usable one."""
    key = configuration_key(winner)
    by_seed: dict[int, Trial] = {}
    for trial in trials:
        last = trial[-1]
        if configuration_key(last) != key:
            continue
        known = by_seed.get(last.start.seed)
        if known is None or _rank(trial) > _rank(known):
            by_seed[last.start.seed] = trial
    return [by_seed[seed] for seed in sorted(by_seed)]


def _rank(trial: Trial) -> tuple[bool, bool]:
    return usable(trial), trial[-1].start.phase == "confirm"
