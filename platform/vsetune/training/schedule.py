"""When the learning rate drops, warms up or falls linearly, when a phase begins, and where a budget in epochs ends."""

from __future__ import annotations

import math

from vsetune.config.study.training import LinearSchedule, TrainingSpec, TrialSpec, phase_starts
from vsetune.data.batches.epoch_shards import steps_per_epoch
from vsetune.data.stored.dataset import Dataset
from vsetune.errors import ConfigError

_ROUNDING = 1e-9  # 0.6 / 0.2 is 2.9999999999999996: a boundary that was meant to be reached counts as reached


def rate_factor(training: TrainingSpec, epoch: float, *, steps_per_epoch: int) -> float:
    """Learning rate of a step that starts at `epoch`, as a share of the full rate; see `PhaseSpec`."""
    if training.linear_schedule is None:
        _, start = phase_at(training, epoch)
        return drop_factor(training, epoch - start)
    return linear_factor(training, training.linear_schedule, epoch, steps_per_epoch=steps_per_epoch)


def linear_factor(
    training: TrainingSpec, schedule: LinearSchedule, epoch: float, *, steps_per_epoch: int
) -> float:
    """Step i (from 0) of N, w of them warm-up: the least of 1, (i + 1) / w and (N - i) / (N - w); never 0.

    In transformers the warm-up is i / w, hence a first step at rate 0; UNITER and TAGS-DC use (N - i - 1) / (N - w)
    after it, hence a last step at rate 0. i counts pairs, like all epochs: the short last batch of an epoch is less
    than a step.
    """
    one_step = 1 / steps_per_epoch
    begin, end = _span_at(training, schedule, epoch)
    warmup = _warmup_epochs(schedule, end - begin, steps_per_epoch)
    grown = (epoch - begin + one_step) / warmup if warmup > 0 else 1.0
    left = max(end - epoch, one_step) / (end - begin - warmup)
    return min(1.0, grown, left)


def training_steps_per_epoch(trial: TrialSpec, dataset: Dataset) -> int:
    """Steps of a trial in one epoch; with dropped last batches 0 where no batch is full."""
    training = trial.training
    return steps_per_epoch(
        dataset, trial.data.train_split, batch_size=training.batch_size, batch_unit=training.batch_unit,
        drop_last=training.drop_last,
    )


def require_room_for_warmup(training: TrainingSpec, *, steps_per_epoch: int) -> None:
    """ConfigError when the warm-up, given in steps, is at least as long as the training or one of its phases."""
    schedule = training.linear_schedule
    if schedule is None or schedule.warmup_steps is None or not training.epochs:
        return
    for phase, epoch in enumerate(phase_starts(training.phases, training.epochs)):
        begin, end = _span_at(training, schedule, epoch)
        steps = (end - begin) * steps_per_epoch
        if schedule.warmup_steps >= steps - _ROUNDING:
            is_whole = schedule.over == "training" or not training.phases
            where = "the training" if is_whole else f"training.phases[{phase}]"
            raise ConfigError(
                "VSE-T008", "training.linear_schedule.warmup_steps: got {got}, {part} has {steps:g} steps; need fewer, "
                "or use warmup_fraction", got=schedule.warmup_steps, part=where, steps=steps,
            )


def _span_at(training: TrainingSpec, schedule: LinearSchedule, epoch: float) -> tuple[float, float]:
    """First and last epoch of the schedule that applies at this epoch."""
    if schedule.over == "training":
        return 0.0, training.epochs
    phase, begin = phase_at(training, epoch)
    starts = [*phase_starts(training.phases, training.epochs), training.epochs]
    return begin, starts[phase + 1]


def _warmup_epochs(schedule: LinearSchedule, span: float, steps_per_epoch: int) -> float:
    if schedule.warmup_steps is not None:
        return schedule.warmup_steps / steps_per_epoch
    return (schedule.warmup_fraction or 0.0) * span


def drop_factor(training: TrainingSpec, epoch: float) -> float:
    """Factor of the initial learning rate after `epoch` epochs of its phase.

    `repeat`: drop ** floor(epoch / step), as VSE++; `once`: one drop from `step` on, as VSE-infinity. With a whole
    `step` the rate changes only at the starts of epochs.
    """
    if training.learning_rate_step is None:
        return 1.0
    drops = math.floor(epoch / training.learning_rate_step + _ROUNDING)
    if training.learning_rate_mode == "once":
        drops = min(drops, 1)
    return training.learning_rate_drop**drops


def loss_factor(training: TrainingSpec, epoch: float) -> float:
    """The factor of the loss of a step that starts at `epoch`: i / steps for step i of a ramp, else 1."""
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
    """Training steps of the whole budget: epochs * steps per epoch, rounded up; at least one, unless epochs are 0."""
    return max(1, math.ceil(training.epochs * steps_per_epoch - _ROUNDING)) if training.epochs else 0


def next_validation(training: TrainingSpec, *, step: int, steps_per_epoch: int) -> int:
    """The number of steps after which the next validation comes, for an attempt that has done `step` steps.

    Every `validate_every_steps` steps counted from the start of the attempt, at the end of every epoch, or at the end
    of the budget, whichever comes first.
    """
    ends = [total_steps(training, steps_per_epoch), (step // steps_per_epoch + 1) * steps_per_epoch]
    if training.validate_every_steps is not None:
        ends.append((step // training.validate_every_steps + 1) * training.validate_every_steps)
    return min(ends)
