"""The steps of one trial and the numbers collected from them. Attempts, the measurement of a plan and the nightly
timing all train through it."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from time import perf_counter as wall_clock
from typing import Any

import torch
from torch import Tensor

from vsetune.config.study.training import TrialSpec
from vsetune.data.batches.batch import Batch
from vsetune.errors import NumericError
from vsetune.losses.loss_base import LossOutput
from vsetune.metrics.hard_negatives import unique_hard_negatives
from vsetune.training.attempt_progress import Progress
from vsetune.training.batches import TrainingBatches
from vsetune.training.calibration import working_clock
from vsetune.training.device import wait_for
from vsetune.training.schedule import phase_at
from vsetune.training.step import Learner, StepResult

_CHECK_EVERY_ON_GPU = 25
"""Steps between two checks of the losses on a GPU. Each check waits for the queue; on the CPU every step is checked."""
_COUNT_EVERY = 10
"""Steps between two counts of negatives: counting reads numbers back from the device, and a step should not wait."""


@dataclass(frozen=True)
class TakenStep:
    """loss: detached, on the device. Wall-clock seconds: load, for the batch; train, for the rest. worked: processor
    seconds of `train`, see `working_clock`. On a GPU, where steps run asynchronously, only sums over many steps are
    exact."""

    loss: Tensor
    load: float
    train: float
    worked: float


class TrainingLoop:
    """Used inside the trial's random state. learner, batches: of the trial, both on `device`.

    progress: where the training is; steps change it in place. window: of the steps up to the next validation. where:
    trial and attempt, for error messages. worked_seconds: processor seconds of steps, see `working_clock`.
    """

    def __init__(
        self, trial: TrialSpec, learner: Learner, batches: TrainingBatches, progress: Progress, *, where: str
    ) -> None:
        self.learner, self.batches, self.progress = learner, batches, progress
        self.worked_seconds = 0.0
        self._trial, self._where, self._device = trial, where, learner.device
        self._clock = working_clock(learner.device)
        batches.fix_images(learner.network)
        self.begin_window()

    @property
    def epoch(self) -> float:
        """Where the training is, in epochs: pairs seen / pairs."""
        return self.progress.pairs_seen / self.batches.pairs

    def begin_window(self) -> None:
        """Forget the numbers collected since the last validation."""
        self.window = StepWindow(
            self._trial, self._device, where=self._where,
            seconds_before=self.progress.train_seconds + self.progress.load_seconds,
        )

    def begin(self) -> bool:
        """Start what begins with the next step: a phase, an epoch of the loss. Returns whether a phase has begun.

        A phase does not begin at the end of the phase before: its last validation, and the checkpoint written there,
        still belong to it.
        """
        phase, _ = phase_at(self._trial.training, self.epoch)
        enters = phase != self.learner.phase
        if enters:
            self.learner = self.learner.enter(phase, learned=True)
            self.learner.loss.start_epoch(int(self.epoch))
        if self.progress.step % self.batches.steps_per_epoch == 0:
            self.learner.loss.start_epoch(self.progress.step // self.batches.steps_per_epoch)
        return enters

    def step(self) -> TakenStep:
        """Train on the batch of the next step, which `begin` has begun. NumericError, see `StepWindow.add`."""
        begin = wall_clock()
        batch = self.batches.take(self.progress.step)
        drawn = self.batches.drawn(self.progress.step, phase=self.learner.phase)
        loaded, working = wall_clock(), self._clock()
        rate = self.learner.set_epoch(self.epoch)
        result = self.learner.step(batch, drawn)
        self.progress.step += 1
        self.progress.pairs_seen += batch.pairs
        self.window.add(batch, result, step=self.progress.step, learning_rate=rate)
        loss = result.loss
        del batch, drawn, result  # on the clock
        taken = TakenStep(loss, loaded - begin, wall_clock() - loaded, self._clock() - working)
        self.progress.load_seconds += taken.load
        self.progress.train_seconds += taken.train
        self.worked_seconds += taken.worked
        return taken

    def settle(self) -> float:
        """Read the waiting numbers and wait for the device. Returns the seconds that this took."""
        begin, working = wall_clock(), self._clock()
        self.window.flush()
        wait_for(self._device)
        waited = wall_clock() - begin
        self.progress.train_seconds += waited
        self.worked_seconds += self._clock() - working
        return waited


class StepWindow:
    """Collects steps and averages them at the next validation.

    Unique hard negatives are counted on every tenth full batch, the first one included: short batches have counts of
    another range. where: trial and attempt, for error messages. seconds_before: seconds of the trial when the window
    began.
    """

    def __init__(self, trial: TrialSpec, device: torch.device, *, where: str, seconds_before: float) -> None:
        self._pairs = self._full_batches = 0
        self._seconds_before = seconds_before
        self._check_every = _CHECK_EVERY_ON_GPU if device.type == "cuda" else 1
        self._where, self._trial = where, trial
        self._waiting: list[tuple[int, float, dict[str, Tensor]]] = []
        self._sums: defaultdict[str, float] = defaultdict(float)
        self._counts: defaultdict[str, int] = defaultdict(int)

    def state_dict(self) -> dict[str, Any]:
        """Plain data: the numbers collected so far, for an attempt that stops between two validations."""
        self.flush()
        return {
            "pairs": self._pairs, "seconds_before": self._seconds_before, "sums": dict(self._sums),
            "counts": dict(self._counts), "full_batches": self._full_batches,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from the result of `state_dict`."""
        self._pairs, self._seconds_before = state["pairs"], state["seconds_before"]
        self._full_batches = state["full_batches"]
        self._sums.update(state["sums"])
        self._counts.update(state["counts"])

    def add(self, batch: Batch, result: StepResult, *, step: int, learning_rate: float) -> None:
        """NumericError as soon as a non-finite loss or gradient norm is found; it names the first such step."""
        self._pairs += batch.pairs
        values = {"train_loss": result.loss, "gradient_norm": result.gradient_norm}
        values |= {f"loss_{name}": value for name, value in result.output.parts.items()}
        self._waiting.append((step, learning_rate, values))
        if len(self._waiting) >= self._check_every:
            self.flush()
        if len(batch.image_ids) >= self._trial.training.batch_size and result.output.selection is not None:
            if self._full_batches % _COUNT_EVERY == 0:
                self._sum({name: [value] for name, value in negatives_of(result.output).items()})
            self._full_batches += 1

    def flush(self) -> None:
        """Read the waiting numbers from the device, with one wait per name."""
        waiting, self._waiting = self._waiting, []
        columns: defaultdict[str, list[Tensor]] = defaultdict(list)
        for _, _, values in waiting:
            for name, value in values.items():
                columns[name].append(value)
        numbers = {name: torch.stack(column).tolist() for name, column in columns.items()}
        for row, (step, rate, _) in enumerate(waiting):
            loss, norm = numbers["train_loss"][row], numbers["gradient_norm"][row]
            if not math.isfinite(loss) or not math.isfinite(norm):
                raise NumericError(
                    "VSE-T003", "{where} step {step}: loss {loss} is {value:g} with gradient norm {norm:g} at learning "
                    "rate {rate:g}, need finite numbers; lower training.learning_rate or training.gradient_clip.",
                    where=self._where, step=step, loss=self._trial.loss.name, value=loss, norm=norm, rate=rate,
                )
        self._sum(numbers)

    def means(self) -> dict[str, float]:
        """Mean of every number over the steps that had it."""
        self.flush()
        return {name: total / self._counts[name] for name, total in self._sums.items()}

    def pairs_per_second(self, seconds_now: float) -> float:
        """Pairs trained per second of this window, waiting for batches included. seconds_now: on the trial's clock."""
        return self._pairs / max(seconds_now - self._seconds_before, 1e-9)

    def _sum(self, numbers: Mapping[str, list[float]]) -> None:
        for name, values in numbers.items():
            self._sums[name] += math.fsum(values)
            self._counts[name] += len(values)


def negatives_of(output: LossOutput) -> dict[str, float]:
    """Counts of unique hard negatives by name. Losses that select no single hardest negative (softmax, top-f above
    f = 0) give the same numbers under names that start with `proxy_`."""
    selection = output.selection
    if selection is None:
        return {}
    counts = unique_hard_negatives(
        selection.scores, selection.negatives, active_images=selection.active_images,
        active_captions=selection.active_captions,
    )
    prefix = "proxy_unique_negatives" if selection.is_proxy else "unique_negatives"
    return {f"{prefix}_{name}": value for name, value in counts.as_dict().items()}
