"""What was measured of one cell, and how long its trials take by that."""

from __future__ import annotations

import math
from dataclasses import dataclass

from vsetune.config.study.training import TrainingSpec
from vsetune.training.schedule import total_steps

RESULT_FILE = "measured.json"
"""In which the process that measured a cell leaves what it found."""


@dataclass(frozen=True)
class CellTimes:
    """Seconds by the clock on the wall, of the cell at its defaults, in one process of its own.

    first_start, start: until the first step can be taken (data opened, network made, tables read), of the first trial
    in a process, and of a later one. opening: of an epoch (its readers, what the loss does then). step: one training
    step, its batch included, the mean of `steps_timed` over the phases of the training. worked_share: of the time of
    steps, in which the process computed; in the rest it waited, for other work of this machine or for data. validation:
    of the whole validation split; test: at the end of a trial, 0 where nothing is scored then. checkpoint: of one,
    after a validation. encoded_share, scored_share: of the validation that was really timed, 1 for all of it.
    peak_memory_bytes: of the process, on a GPU of its tensors; None where nobody says.
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
        """The validation was timed on a part of the split."""
        return min(self.encoded_share, self.scored_share) < 0.999


@dataclass(frozen=True)
class TrialSeconds:
    """Of one whole trial in a process that has had others. training: steps, and opening each epoch. recording: writing
    checkpoints and waiting until validations are recorded. ending: the test split."""

    start: float
    training: float
    validating: float
    recording: float
    ending: float

    @property
    def total(self) -> float:
        """All of it."""
        return self.start + self.training + self.validating + self.recording + self.ending


def trial_seconds(
    training: TrainingSpec, times: CellTimes, *, report: float, checkpoint_share: float
) -> TrialSeconds:
    """How long a trial takes that nobody stops. report: seconds in which it waits until a validation is recorded.
    checkpoint_share: of its time."""
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
    """How many checkpoints of so many seconds are written, of validations so many seconds apart, as `CheckpointPace`
    has it: with the first, with the next that is far enough from the last, and with the last."""
    every = max(1, math.ceil(takes * (1 / share - 1) / apart - 1e-9)) if apart > 0 else validations
    return 1 + math.ceil((validations - 1) / every)


def validations_of(training: TrainingSpec, steps_per_epoch: int) -> int:
    """How often a whole trial validates: `schedule.next_validation`, counted."""
    steps, every = total_steps(training, steps_per_epoch), training.validate_every_steps
    count = steps // steps_per_epoch
    is_at_the_end = steps % steps_per_epoch == 0
    if every is not None:
        count += steps // every - steps // math.lcm(every, steps_per_epoch)
        is_at_the_end = is_at_the_end or steps % every == 0
    return count if is_at_the_end else count + 1


def cheaper_cadence(times: CellTimes) -> int | None:
    """The fewest steps between validations, to one digit and a half, at which validating takes at most as long as the
    training between; None where even one validation an epoch, the fewest there can be, takes longer."""
    steps = math.ceil(times.validation / times.step - 1e-9)
    unit = max(1, 10 ** (len(str(steps)) - 1) // 2)
    rounded = -(-steps // unit) * unit
    return rounded if rounded <= times.steps_per_epoch else None
