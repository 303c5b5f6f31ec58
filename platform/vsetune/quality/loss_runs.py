"""Builds and runs losses as the train loop does, in steps that repeat bit for bit."""

from __future__ import annotations

import io
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from vsetune.config.components.catalogue import name_of
from vsetune.losses.loss_base import Loss, LossInputs, LossOutput
from vsetune.losses.loss_building import build_loss
from vsetune.losses.loss_spec import LossSpec
from vsetune.quality.loss_batches import CONTEXT, Surroundings, leaves_of, pairs, surroundings_of

_STEPS_PER_EPOCH = 3
_RATE = 0.05
_NEAR_AFTER = 40


@dataclass(frozen=True)
class LossSubject:
    """The loss under check. settings: fields that differ from their defaults."""

    spec: type[LossSpec]
    settings: Mapping[str, Any] = field(default_factory=dict)

    def resolved(self, **changes: Any) -> LossSpec:
        """The spec with all its values. ValidationError for invalid values."""
        return self.spec.model_validate({"name": name_of(self.spec), **self.settings, **changes})

    def surroundings(self, dtype: torch.dtype = torch.float32, **changes: Any) -> list[Surroundings]:
        """The combinations of network kind and similarity that it supports with these settings, in this precision."""
        return [
            Surroundings(each.kind, each.score, each.has_semantics, dtype)
            for each in surroundings_of(self.resolved(**changes))
        ]

    def kinds(self, dtype: torch.dtype = torch.float32, **changes: Any) -> list[Surroundings]:
        """One of `surroundings` per kind of network, for checks that do not depend on the range of similarities."""
        return list({each.kind: each for each in reversed(self.surroundings(dtype, **changes))}.values())[::-1]

    def build(self, *, seed: int = 0, dtype: torch.dtype = torch.float32, **changes: Any) -> Loss:
        """A fresh loss in its first epoch."""
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            loss = build_loss(self.resolved(**changes), CONTEXT).to(dtype)
        loss.start_epoch(0)
        return loss


def output_of(loss: Loss, inputs: LossInputs, *, seed: int = 0) -> LossOutput:
    """The output with the random numbers of this seed, independent of earlier sampling."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return loss(inputs)


def value_of(loss: Loss, inputs: LossInputs, *, seed: int = 0) -> float:
    return float(output_of(loss, inputs, seed=seed).value.detach())


def infinite(loss: Loss, inputs: LossInputs, what: str) -> str | None:
    """A problem if the value or a gradient is not finite; None otherwise."""
    value = output_of(loss, inputs).value
    if not math.isfinite(value.detach()):
        return f"{what}: the loss is {float(value.detach()):g}, need a finite value"
    torch.autograd.backward(value)
    learned = [("its own parameters", parameter.grad) for parameter in loss.parameters()]
    for whose, gradient in [*(("the batch", leaf.grad) for leaf in leaves_of(inputs)), *learned]:
        if gradient is not None and not _numbers(gradient).isfinite().all():
            return f"{what}: the gradient of {whose} is not finite; look for a root, logarithm or division at 0"
    return None


def run_steps(loss: Loss, surroundings: Surroundings, steps: range) -> list[float]:
    """The values of these steps of a training in which captions move towards their images and the loss learns.

    Step k always has the same batch and the same random numbers. An epoch is three steps.
    """
    values = []
    for step in steps:
        if step % _STEPS_PER_EPOCH == 0:
            loss.start_epoch(step // _STEPS_PER_EPOCH)
        loss.zero_grad(set_to_none=True)
        inputs = pairs(surroundings, seed=step, nearness=step / _NEAR_AFTER)
        value = output_of(loss, inputs, seed=step).value
        torch.autograd.backward(value)
        loss.before_step()
        _descend(loss)
        loss.after_step()
        values.append(float(value.detach()))
    return values


def saved_and_loaded(loss: Loss) -> dict[str, Any]:
    """The state as from a checkpoint: written to a file and read back as plain tensors."""
    file = io.BytesIO()
    torch.save(loss.state_dict(), file)
    file.seek(0)
    state: dict[str, Any] = torch.load(file, weights_only=True)
    return state


def equal_states(first: Mapping[str, Any], second: Mapping[str, Any]) -> bool:
    """Whether two states have the same entries, bit for bit."""
    return first.keys() == second.keys() and all(_equal(first[name], second[name]) for name in first)


def in_one_line(error: Exception) -> str:
    return " ".join(str(error).split())[:200]


def _equal(first: Any, second: Any) -> bool:
    if isinstance(first, Tensor) and isinstance(second, Tensor):
        return first.shape == second.shape and torch.equal(first, second)
    return bool(first == second)


@torch.no_grad()
def _descend(loss: Loss) -> None:
    for group in loss.parameter_groups():
        for parameter in group.parameters:
            if parameter.grad is not None:
                parameter.sub_(parameter.grad, alpha=_RATE if group.sgd_rate is None else group.sgd_rate)


def _numbers(gradient: Tensor) -> Tensor:
    return gradient.coalesce().values() if gradient.is_sparse else gradient
