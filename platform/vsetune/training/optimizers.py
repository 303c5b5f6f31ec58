"""The optimizer of a trial."""

from __future__ import annotations

from torch import nn
from torch.optim import Adam, AdamW, Optimizer

from vsetune.config.training import TrainingSpec

_OPTIMIZERS: dict[str, type[Adam] | type[AdamW]] = {"adam": Adam, "adamw": AdamW}


def build_optimizer(training: TrainingSpec, network: nn.Module, loss: nn.Module) -> Optimizer:
    """Network parameters, and those a loss learns (a temperature), the latter without weight decay."""
    groups = [{"params": [p for p in network.parameters() if p.requires_grad], "weight_decay": training.weight_decay}]
    learned = [p for p in loss.parameters() if p.requires_grad]
    if learned:
        groups.append({"params": learned, "weight_decay": 0.0})
    return _OPTIMIZERS[training.optimizer](groups, lr=training.learning_rate)


def set_learning_rate(optimizer: Optimizer, rate: float) -> None:
    """The same rate for all parameter groups, from the next step on."""
    for group in optimizer.param_groups:
        group["lr"] = rate
