"""The optimizers of a trial: one for the network, and plain SGD for loss parameters with their own learning rate."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from torch import nn
from torch.optim import SGD, Adam, AdamW, Optimizer

from vsetune.config.study.training import TrainingSpec
from vsetune.errors import ConfigError
from vsetune.losses.loss_base import Loss
from vsetune.networks.network_base import NetworkGroup

_OPTIMIZERS: dict[str, type[Adam] | type[AdamW]] = {"adam": Adam, "adamw": AdamW}
_FUSED_ON = {"cpu", "cuda"}
"""Devices on which a step of Adam is one fused pass over parameters and moments; results differ only by rounding."""


class Optimizers:
    """Fresh optimizers for all parameters that a phase trains.

    network: the groups of a network's parameters; none where it is frozen. A group that trains later is included from
    the start, so that a saved state always fits; without gradients it is not stepped, and its moments begin when it
    thaws. The network's optimizer also trains learned parameters of the loss (a temperature), without weight decay.
    ConfigError when nothing is left to train.
    """

    def __init__(self, training: TrainingSpec, network: Sequence[NetworkGroup], loss: Loss) -> None:
        groups: list[dict[str, Any]] = [
            {"params": parameters, "weight_decay": decay, "factor": group.factor}
            for group in network for parameters, decay in _by_decay(training, group.parameters) if parameters
        ]
        own = []
        for group in loss.parameter_groups():
            if group.sgd_rate is None:
                groups.append({"params": group.parameters, "weight_decay": 0.0, "factor": 1.0})
            else:
                own.append({"params": group.parameters, "lr": group.sgd_rate, "start": group.sgd_rate})
        if not groups and not own:
            raise ConfigError("training.phases: `trains: loss` with a loss that learns nothing; use `trains: all`")
        self._start = training.learning_rate
        self.learning_rate = training.learning_rate
        self._all: dict[str, Optimizer] = {}
        if groups:
            self._all["network"] = _OPTIMIZERS[training.optimizer](
                groups, lr=training.learning_rate, betas=training.betas, eps=training.epsilon,
                fused=True if _devices_of(groups) <= _FUSED_ON else None,
            )
        if own:
            self._all["loss"] = SGD(own)
        self.set_learning_rate(1.0, drop=1.0)

    def set_learning_rate(self, factor: float, *, drop: float) -> None:
        """Set the learning rates of the following steps: factor x drop x initial rate for the network (times the factor
        of each group), drop x its own initial rate for the rest. drop: the factor of the drops or of the linear
        schedule.
        """
        self.learning_rate = self._start * factor * drop
        for name, optimizer in self._all.items():
            for group in optimizer.param_groups:
                group["lr"] = self.learning_rate * group["factor"] if name == "network" else group["start"] * drop

    def zero_grad(self) -> None:
        """Clear all gradients."""
        for optimizer in self._all.values():
            optimizer.zero_grad(set_to_none=True)

    def step(self) -> None:
        """Update all parameters once."""
        for optimizer in self._all.values():
            optimizer.step()

    def moments(self) -> Iterator[tuple[Any, Any]]:
        """The optimizer state of each parameter that was stepped, with the parameter."""
        for optimizer in self._all.values():
            yield from optimizer.state.items()

    def state_dict(self) -> dict[str, Any]:
        """Tensors and plain data."""
        return {name: optimizer.state_dict() for name, optimizer in self._all.items()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue as the optimizers that were saved."""
        for name, optimizer in self._all.items():
            optimizer.load_state_dict(_taken_our_way(state[name], optimizer))


def _devices_of(groups: Sequence[Mapping[str, Any]]) -> set[str]:
    return {parameter.device.type for group in groups for parameter in group["params"]}


def _taken_our_way(saved: Mapping[str, Any], optimizer: Optimizer) -> dict[str, Any]:
    """The saved state, with `fused` of every group set as it is here: torch would take it from the state, which may
    come from another device or from a version that had none. ValueError when the number of groups differs."""
    groups = zip(saved["param_groups"], optimizer.param_groups, strict=True)
    return {**saved, "param_groups": [{**group, "fused": own["fused"]} for group, own in groups]}


def _by_decay(training: TrainingSpec, parameters: list[nn.Parameter]) -> list[tuple[list[nn.Parameter], float]]:
    """The parameters with their weight decay: one group, or matrices separate from vectors and scalars."""
    if training.decay_vectors or training.weight_decay == 0:
        return [(parameters, training.weight_decay)]
    matrices, vectors = ([each for each in parameters if (each.ndim > 1) == many] for many in (True, False))
    return [(matrices, training.weight_decay), (vectors, 0.0)]
