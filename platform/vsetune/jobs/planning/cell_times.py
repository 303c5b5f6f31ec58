"""Measured times of one cell, and the duration of its trials computed from them."""

from __future__ import annotations

import math
from dataclasses import dataclass

from vsetune.config.study.training import TrainingSpec
from vsetune.training.schedule import total_steps

RESULT_FILE = "measured.json"
"""File with the result of the process that measured a cell."""


@dataclass(frozen=True)
class CellTimes:
    """Wall-clock seconds of a cell at its defaults, measured in one process of its own.

    first_start, start: until the first step (open the data, make the network, read tables), for the first trial in a
    process and for a later one. opening: start of an epoch (its readers, and the loss's work per epoch). step: one
    training step including its batch, the mean of `steps_timed` over the phases of the training. worked_share: share of
    the steps' time in which the process computed; in the rest it waited for other work of this machine or for data.
    validation: of the whole validation split. test: at the end of a trial, 0 if nothing is scored then. checkpoint: of
    one, after a validation. encoded_share, scored_share: shares of the validation that were timed, 1 for all of it.
    peak_memory_bytes: of the process, on a GPU of its tensors; None if unknown.
    """

    steps_per_epoch: int
    first_start: float
    start: float
    opening: float
    step: float
    steps_timed: int
    worked_share: float
    validation: float
    test: float
    checkpoint: float
    encoded_share: float
    scored_share: float
    peak_memory_bytes: int | None

    @property
    def is_scaled(self) -> bool:
        """Whether the validation was timed on a part of the split."""
        return min(self.encoded_share, self.scored_share) < 0.999


@dataclass(frozen=True)
class TrialSeconds:
    """Seconds of one whole trial in a process that has run others before. training: steps, and opening each epoch.
    recording: writing checkpoints and waiting until validations are recorded. ending: the test split."""

    start: float
    training: float
    validating: float
    recording: float
    ending: float

    @property
    def total(self) -> float:
        """Seconds of the whole trial."""
        return self.start + self.training + self.validating + self.recording + self.ending


def trial_seconds(
    training: TrainingSpec, times: CellTimes, *, report: float, checkpoint_share: float
) -> TrialSeconds:
    """Duration of a trial that is not stopped. report: seconds that it waits until a validation is recorded.
    checkpoint_share: the most of its time that checkpoints may take."""
    steps = total_steps(training, times.steps_per_epoch)
    validations = validations_of(training, times.steps_per_epoch)
    trained = steps * times.step + math.ceil(steps / times.steps_per_epoch) * times.opening
    validated = validations * times.validation
    checkpoints = checkpoints_of(validations, (trained + validated) / validations, times.checkpoint, checkpoint_share)
    return TrialSeconds(
        start=times.start, training=trained, validating=validated,
        recording=checkpoints * times.checkpoint + validations * report, ending=times.test,
    )


def checkpoints_of(validations: int, apart: float, takes: float, share: float) -> int:
    """How many checkpoints a trial writes by the rule of `CheckpointPace`: at the first validation, at each one that is
    late enough after the last checkpoint, and at the last. apart: seconds between validations. takes: seconds per
    checkpoint. share: the most of the time that checkpoints may take."""
    every = max(1, math.ceil(takes * (1 / share - 1) / apart - 1e-9)) if apart > 0 else validations
    return 1 + math.ceil((validations - 1) / every)


def validations_of(training: TrainingSpec, steps_per_epoch: int) -> int:
    """Number of validations of a whole trial, by the rule of `schedule.next_validation`."""
    steps, every = total_steps(training, steps_per_epoch), training.validate_every_steps
    count = steps // steps_per_epoch
    is_at_the_end = steps % steps_per_epoch == 0
    if every is not None:
        count += steps // every - steps // math.lcm(every, steps_per_epoch)
        is_at_the_end = is_at_the_end or steps % every == 0
    return count if is_at_the_end else count + 1


def cheaper_cadence(times: CellTimes) -> int | None:
    """The fewest steps between validations at which validating takes at most as long as the training between them.

    Rounded up to a multiple of half its power of ten (of 50 for three digits). None if even one validation an epoch,
    the fewest possible, takes longer.
    """
    steps = math.ceil(times.validation / times.step - 1e-9)
    unit = max(1, 10 ** (len(str(steps)) - 1) // 2)
    rounded = -(-steps // unit) * unit
    return rounded if rounded <= times.steps_per_epoch else None
