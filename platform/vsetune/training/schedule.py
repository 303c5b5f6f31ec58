"""When the learning rate drops, when a phase begins, and where a budget in epochs ends."""

from __future__ import annotations

import math

from vsetune.config.study.phases import phase_starts
from vsetune.config.study.training import TrainingSpec

_ROUNDING = 1e-9  # 0.6 / 0.2 is 2.9999999999999996: a boundary that was meant to be reached counts as reached


def drop_factor(training: TrainingSpec, epoch: float) -> float:
    """What the learning rate has dropped to after `epoch` epochs of its phase, as a factor of its start.

    `repeat`: drop ** floor(epoch / step), as VSE++; `once`: one drop from `step` on, as VSE-infinity.
    With a whole `step` the rate changes at the starts of epochs only.
    """
    if training.learning_rate_step is None:
        return 1.0
    drops = math.floor(epoch / training.learning_rate_step + _ROUNDING)
    if training.learning_rate_mode == "once":
        drops = min(drops, 1)
    return training.learning_rate_drop**drops


def loss_factor(training: TrainingSpec, epoch: float) -> float:
    """What the loss of a step that starts at `epoch` is multiplied by: i / steps for step i of a ramp, else 1."""
    ramp = training.loss_ramp
    if ramp is None or not ramp.start_epoch <= epoch + _ROUNDING < ramp.start_epoch + ramp.epochs:
        return 1.0
    return max(0.0, (epoch - ramp.start_epoch) / ramp.epochs)


def phase_at(training: TrainingSpec, epoch: float) -> tuple[int, float]:
    """The phase (0-based) of a step that starts at `epoch`, and the epoch at which that phase began."""
    starts = phase_starts(training.phases, training.epochs)
    phase = max(number for number, start in enumerate(starts) if start <= epoch + _ROUNDING)
    return phase, starts[phase]


def total_steps(training: TrainingSpec, steps_per_epoch: int) -> int:
    """Training steps of the whole budget: epochs * steps per epoch, rounded up, at least one."""
    return max(1, math.ceil(training.epochs * steps_per_epoch - _ROUNDING))


def next_validation(training: TrainingSpec, *, step: int, steps_per_epoch: int) -> int:
    """The step after which the next validation comes, for an attempt that has done `step` steps.

    Every `validate_every_steps` steps counted from the start of the attempt, at the end of every epoch, and at the
    end of the budget, whichever is first.
    """
    ends = [total_steps(training, steps_per_epoch), (step // steps_per_epoch + 1) * steps_per_epoch]
    if training.validate_every_steps is not None:
        ends.append((step // training.validate_every_steps + 1) * training.validate_every_steps)
    return min(ends)
