"""Restores the state of a checkpoint into an attempt, after a check of every part of it.

A file can be intact and still not be a state of this trial: edited by hand, or of another version. Then the error is
one line at the start, not a wrong number or a traceback at a later step.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import fields
from typing import Any

import torch
from torch import Tensor

from vsetune.errors import VsetuneError, one_line
from vsetune.records.events import ValidationPoint
from vsetune.training.attempt_progress import Progress
from vsetune.training.checkpoint import OF_DAMAGE, CheckpointFolder
from vsetune.training.random_state import RandomState, undisturbed
from vsetune.training.step import Learner

_MOST = 2**53


def learner_state(saved: Mapping[str, Any] | None, checkpoints: CheckpointFolder) -> Mapping[str, Any] | None:
    """The part of a checkpoint that `Learner.build` builds the network from; None without a checkpoint.

    StaleCheckpoint, or DamagedCheckpoint, when a required part is missing or invalid.
    """
    if saved is None:
        return None
    state = saved.get("learner")
    if not isinstance(state, dict):
        raise checkpoints.misfit(f"its learner is {type(state).__name__}, need a state")
    kept = state.get("architecture")
    if kept is None or (isinstance(kept, dict) and all(isinstance(config, dict) for config in kept.values())):
        return state
    raise checkpoints.misfit(f"its learner has the architecture {one_line(kept)}")


def restore(
    saved: Mapping[str, Any], learner: Learner, random: RandomState, checkpoints: CheckpointFolder
) -> tuple[Learner, Progress]:
    """The learner (of a later phase if the state is) and the progress; `random` is changed in place.

    saved: from `checkpoints.load()`. StaleCheckpoint, or DamagedCheckpoint, when it is no state of this trial; learner
    and random are then unusable.
    """
    try:
        progress = _progress(_part(saved, "progress"), between=is_between_validations(saved))
        _require_start(saved.get("started"))
        _restore_random(random, _part(saved, "random"), learner.device)
        return _restored_learner(_part(saved, "learner"), learner, random), progress
    except VsetuneError:
        raise
    except (OSError, *OF_DAMAGE) as error:
        raise checkpoints.misfit(one_line(str(error).strip() or type(error).__name__)) from error


def _require_start(started: Any) -> None:
    """ValueError unless what a checkpoint says of the start is text by name, or missing, as in older ones."""
    if started is None:
        return
    if not isinstance(started, dict) or not all(isinstance(each, str) for pair in started.items() for each in pair):
        raise ValueError(f"its start is {one_line(started)}, need text by name")


def is_between_validations(saved: Mapping[str, Any]) -> bool:
    """Whether the attempt was asked to leave before its next validation; then `window` has the numbers collected so
    far."""
    return "window" in saved


def window_state(saved: Mapping[str, Any], checkpoints: CheckpointFolder) -> Mapping[str, Any] | None:
    """The numbers collected since the last validation; None for a checkpoint of a validation.

    StaleCheckpoint, or DamagedCheckpoint, when the state is invalid.
    """
    if not is_between_validations(saved):
        return None
    try:
        window = _part(saved, "window")
        if window.keys() != {"pairs", "seconds_before", "sums", "counts", "full_batches"}:
            raise ValueError(f"its window has the fields {one_line(', '.join(map(str, window)))}")
        sums, counts = _part(window, "sums"), _part(window, "counts")
        for name in ("pairs", "full_batches"):
            _require_number(name, window[name], whole=True)
        _require_number("seconds_before", window["seconds_before"])
        if sums.keys() != counts.keys() or not all(isinstance(name, str) for name in sums):
            raise ValueError("sums and counts of its window do not fit each other")
        for name, count in counts.items():
            _require_number(f"count of {name}", count, whole=True)
            if type(sums[name]) is not float or not math.isfinite(sums[name]):
                raise ValueError(f"sum of {name} is {one_line(sums[name], most=60)}, need a finite number")
    except (TypeError, ValueError) as error:
        raise checkpoints.misfit(one_line(error)) from error
    return window


def _restored_learner(state: Mapping[str, Any], learner: Learner, random: RandomState) -> Learner:
    phase, phases = state.get("phase"), max(1, len(learner.trial.training.phases))
    if type(phase) is not int or not 0 <= phase < phases:
        raise ValueError(f"phase {one_line(phase)}, the trial has {phases}")
    for name, value in _tensors(state):
        if value.is_floating_point() and bool(torch.isnan(value).any()):
            raise ValueError(f"{name} holds NaN")
        if value.is_complex():  # torch would take the real part
            raise ValueError(f"{name} holds complex numbers")
    if phase != learner.phase:
        with random.active():
            learner = learner.enter(phase, learned=False)
    own = learner.optimizers.state_dict()
    learner.load_state_dict(state)
    _require_optimizers(learner, own)
    return learner


def _require_optimizers(learner: Learner, own: Mapping[str, Any]) -> None:
    """ValueError unless groups and moments fit the optimizers: torch accepts them from a state unchecked."""
    for name, loaded in learner.optimizers.state_dict().items():
        for group, mine in zip(loaded["param_groups"], own[name]["param_groups"], strict=True):
            for key, value in mine.items():
                if type(group.get(key)) is not type(value) or (key not in {"lr", "params"} and group[key] != value):
                    raise ValueError(f"optimizer {name}: {key} is {one_line(group.get(key))}, need {one_line(value)}")
    for parameter, moments in learner.optimizers.moments():
        if not isinstance(moments, dict) or (moments and moments.keys() != {"step", "exp_avg", "exp_avg_sq"}):
            raise ValueError(f"optimizer: moments {one_line(list(moments))}")
        for key, value in moments.items():
            if not isinstance(parameter, Tensor) or not isinstance(value, Tensor) or not value.is_floating_point() or (
                value.shape != (() if key == "step" else parameter.shape)
            ):
                raise ValueError(f"optimizer: {key} does not fit its parameter")


def _restore_random(random: RandomState, state: Mapping[str, Any], device: torch.device) -> None:
    random.load_state_dict(dict(state))
    with undisturbed(device), random.active():  # the generators themselves know best what they take
        pass


def _progress(plain: Mapping[str, Any], *, between: bool) -> Progress:
    if plain.keys() != {each.name for each in fields(Progress)}:
        raise ValueError(f"progress has the fields {one_line(', '.join(map(str, plain)))}")
    history = plain["history"]
    if not isinstance(history, list) or not all(map(_is_point, history)):
        raise ValueError("a validation of its history is none")
    for name in ("step", "pairs_seen"):
        _require_number(name, plain[name], whole=True)
    for name in ("train_seconds", "load_seconds", "validation_seconds", "checkpoint_seconds"):
        _require_number(name, plain[name])
    steps = [point["step"] for point in history]
    best = max(history, key=lambda point: point["m_recall"], default=None)
    expected = (None, -math.inf) if best is None else (best["step"], best["m_recall"])
    is_in_order = steps == sorted(set(steps))
    if not is_in_order or (steps and (steps[-1] > plain["step"] if between else steps[-1] != plain["step"])):
        raise ValueError(f"its history ends at step {steps[-1]}, or out of order; it is at step {plain['step']}")
    if (plain["best_step"], plain["best_m_recall"]) != expected:
        raise ValueError("its best validation is not the best of its history")
    return Progress.from_state(plain)


def _is_point(point: Any) -> bool:
    if not isinstance(point, dict) or point.keys() != {each.name for each in fields(ValidationPoint)}:
        return False
    metrics = point["metrics"]
    for name in ("step", "pairs_seen"):
        _require_number(name, point[name], whole=True)
    for name in ("epoch", "m_recall", "train_seconds"):
        _require_number(name, point[name])
    return isinstance(metrics, dict) and all(
        isinstance(key, str) and type(value) in (int, float) for key, value in metrics.items()
    )


def _require_number(name: str, value: Any, *, whole: bool = False) -> None:
    if type(value) not in ((int,) if whole else (int, float)) or not 0 <= value <= _MOST:
        raise ValueError(f"{name} is {one_line(value, most=60)}, need a number from 0")


def _part(saved: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    part = saved.get(name)
    if not isinstance(part, dict):
        raise ValueError(f"its {name} is {one_line(type(part).__name__)}, need a state")
    return part


def _tensors(value: Any, name: str = "learner") -> Iterable[tuple[str, Tensor]]:
    """Every tensor inside dicts, lists and tuples, with the keys that lead to it."""
    waiting = [(name, value)]
    while waiting:
        name, value = waiting.pop()
        if isinstance(value, Tensor):
            yield name, value
        elif isinstance(value, (list, tuple)):
            waiting += [(f"{name}.{number}", each) for number, each in enumerate(value)]
        elif isinstance(value, dict):
            waiting += [(f"{name}.{key}", each) for key, each in value.items()]
