"""Restores the state of a checkpoint into an attempt, after a check of every part of it.

A file can be intact and still not be a state of this trial: edited by hand, or of another version. Then the error is
one line at the start, not a wrong number or a traceback at a later step.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import fields
from typing import Annotated, Any

import torch
from pydantic import BaseModel, ConfigDict, Field, FiniteFloat, TypeAdapter
from torch import Tensor

from vsetune.errors import VsetuneError, one_line
from vsetune.training.attempt_progress import Progress
from vsetune.training.checkpoint import OF_DAMAGE, CheckpointFolder
from vsetune.training.executions import Count, Seconds
from vsetune.training.random_state import RandomState, undisturbed
from vsetune.training.step import Learner

_PROGRESS = TypeAdapter(Progress)
_START: TypeAdapter[dict[str, str] | None] = TypeAdapter(dict[str, str] | None, config=ConfigDict(strict=True))


class _Window(BaseModel):
    """`StepWindow.state_dict`."""

    model_config = ConfigDict(strict=True, extra="forbid")

    pairs: Count
    seconds_before: Seconds
    sums: dict[str, FiniteFloat]
    counts: dict[str, Annotated[int, Field(ge=1)]]
    full_batches: Count


def learner_state(saved: Mapping[str, Any] | None, checkpoints: CheckpointFolder) -> Mapping[str, Any] | None:
    """The part of a checkpoint that `Learner.build` builds the network from; None without a checkpoint.

    StaleCheckpoint when a required part is missing or invalid.
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

    saved: from `checkpoints.load()`. StaleCheckpoint when it is no state of this trial; learner
    and random are then unusable.
    """
    try:
        progress = _progress(_part(saved, "progress"), between="window" in saved)
        _START.validate_python(saved.get("started"))  # missing in older ones
        _restore_random(random, _part(saved, "random"), learner.device)
        return _restored_learner(_part(saved, "learner"), learner, random), progress
    except VsetuneError:
        raise
    except (OSError, *OF_DAMAGE) as error:
        raise checkpoints.misfit(one_line(str(error).strip() or type(error).__name__)) from error


def window_state(saved: Mapping[str, Any], checkpoints: CheckpointFolder) -> Mapping[str, Any] | None:
    """The numbers collected since the last validation, by an attempt that was asked to leave before its next one; None
    for a checkpoint of a validation. StaleCheckpoint when they are invalid."""
    if "window" not in saved:
        return None
    try:
        window = _Window.model_validate(saved["window"])
        if window.sums.keys() != window.counts.keys():
            raise ValueError("sums and counts of its window do not fit each other")
    except (TypeError, ValueError) as error:
        raise checkpoints.misfit(one_line(error)) from error
    return window.model_dump()


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
    progress = _PROGRESS.validate_json(json.dumps(plain))
    steps = [point.step for point in progress.history]
    best = max(progress.history, key=lambda point: point.m_recall, default=None)
    is_in_order = steps == sorted(set(steps))
    if not is_in_order or (steps and (steps[-1] > progress.step if between else steps[-1] != progress.step)):
        raise ValueError(f"its history ends at step {steps[-1]}, or out of order; it is at step {progress.step}")
    expected = (None, -math.inf) if best is None else (best.step, best.m_recall)
    if (progress.best_step, progress.best_m_recall) != expected:
        raise ValueError("its best validation is not the best of its history")
    return progress


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
