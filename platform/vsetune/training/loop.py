"""The steps of one trial. Attempts, the calibration of a plan and the nightly timing all train through it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from time import perf_counter as wall_clock

import torch

from vsetune.config.study.training import TrialSpec
from vsetune.data.batches.batch import Batch
from vsetune.training.batches import TrainingBatches
from vsetune.training.calibration import working_clock
from vsetune.training.schedule import phase_at
from vsetune.training.step import Learner, StepResult

Listener = Callable[[Batch, StepResult, float], None]
"""Called after a step with its batch, its result and its learning rate, on the clock of the step."""


@dataclass(frozen=True)
class StepSeconds:
    """Wall-clock seconds of one step: load, for its batch; train, for the rest. worked: processor seconds of `train`,
    see `working_clock`. On a GPU, where steps run asynchronously, only sums over many steps are exact."""

    load: float
    train: float
    worked: float


class TrainingLoop:
    """Used inside the trial's random state. learner, batches: of the trial, both on `device`."""

    def __init__(
        self, trial: TrialSpec, learner: Learner, batches: TrainingBatches, device: torch.device
    ) -> None:
        self.learner, self.batches = learner, batches
        self._trial, self._clock = trial, working_clock(device)

    def begin(self, step: int, epoch: float) -> bool:
        """Start what begins with this step: a phase, an epoch of the loss. Returns whether a phase has begun.

        A phase does not begin at the end of the phase before: its last validation, and the checkpoint written there,
        still belong to it.
        """
        phase, _ = phase_at(self._trial.training, epoch)
        enters = phase != self.learner.phase
        if enters:
            self.learner = self.learner.enter(phase, learned=True)
            self.learner.loss.start_epoch(int(epoch))
        if step % self.batches.steps_per_epoch == 0:
            self.learner.loss.start_epoch(step // self.batches.steps_per_epoch)
        return enters

    def step(self, step: int, epoch: float, listener: Listener) -> StepSeconds:
        """Train on the batch of this step, which `begin` has begun. step: from 0. epoch: at which it starts."""
        begin = wall_clock()
        batch = self.batches.take(step)
        drawn = self.batches.drawn(step, phase=self.learner.phase)
        loaded, working = wall_clock(), self._clock()
        self._learn(batch, drawn, epoch, listener)
        del batch, drawn  # on the clock, as the rest of what the step made
        return StepSeconds(loaded - begin, wall_clock() - loaded, self._clock() - working)

    def _learn(self, batch: Batch, drawn: Batch | None, epoch: float, listener: Listener) -> None:
        """One step; its temporary tensors are freed on return."""
        rate = self.learner.set_epoch(epoch)
        listener(batch, self.learner.step(batch, drawn), rate)
