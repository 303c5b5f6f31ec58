"""Means over the steps between two validations, hard negatives, and the check for non-finite numbers."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from vsetune.config.study.training import TrainingSpec
from vsetune.data.batches.batch import Batch
from vsetune.errors import NumericError
from vsetune.losses.loss_base import LossOutput
from vsetune.metrics.hard_negatives import unique_hard_negatives
from vsetune.training.step import StepResult

_CHECK_EVERY_ON_GPU = 25
"""Steps between two checks of the losses on a GPU. Each check waits for the queue; on the CPU every step is checked."""


class StepWindow:
    """Collects steps and averages them at the next validation.

    where: trial and attempt, for error messages. seconds_before: seconds of the trial when the window began.
    """

    def __init__(self, *, device: torch.device, where: str, loss_name: str, seconds_before: float) -> None:
        self._pairs = 0
        self._seconds_before = seconds_before
        self._check_every = _CHECK_EVERY_ON_GPU if device.type == "cuda" else 1
        self._where = where
        self._loss_name = loss_name
        self._waiting: list[tuple[int, float, dict[str, Tensor]]] = []
        self._sums: defaultdict[str, float] = defaultdict(float)
        self._counts: defaultdict[str, int] = defaultdict(int)

    def state_dict(self) -> dict[str, Any]:
        """Plain data: the numbers collected so far, for an attempt that stops between two validations."""
        self.flush()
        return {
            "pairs": self._pairs, "seconds_before": self._seconds_before, "sums": dict(self._sums),
            "counts": dict(self._counts),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from the result of `state_dict`."""
        self._pairs, self._seconds_before = state["pairs"], state["seconds_before"]
        self._sums.update(state["sums"])
        self._counts.update(state["counts"])

    def add(self, result: StepResult, *, step: int, learning_rate: float, pairs: int) -> None:
        """NumericError as soon as a non-finite loss or gradient norm is found; it names the first such step."""
        self._pairs += pairs
        values = {"train_loss": result.loss, "gradient_norm": result.gradient_norm}
        values |= {f"loss_{name}": value for name, value in result.output.parts.items()}
        self._waiting.append((step, learning_rate, values))
        if len(self._waiting) >= self._check_every:
            self.flush()

    def note(self, values: Mapping[str, float]) -> None:
        """Numbers known on the CPU, averaged over the steps that have them."""
        for name, value in values.items():
            self._sums[name] += value
            self._counts[name] += 1

    def flush(self) -> None:
        """Read the waiting numbers from the device, with one wait per name."""
        waiting, self._waiting = self._waiting, []
        columns: defaultdict[str, list[Tensor]] = defaultdict(list)
        for _, _, values in waiting:
            for name, value in values.items():
                columns[name].append(value)
        numbers = {name: torch.stack(column).tolist() for name, column in columns.items()}
        for row, (step, rate, _) in enumerate(waiting):
            self._check(step, rate, numbers["train_loss"][row], numbers["gradient_norm"][row])
        for name, column_of_numbers in numbers.items():
            self._sums[name] += math.fsum(column_of_numbers)
            self._counts[name] += len(column_of_numbers)

    def means(self) -> dict[str, float]:
        """Mean of every number over the steps that had it."""
        self.flush()
        return {name: total / self._counts[name] for name, total in self._sums.items()}

    def pairs_per_second(self, seconds_now: float) -> float:
        """Pairs trained per second of this window, waiting for batches included. seconds_now: on the trial's clock."""
        return self._pairs / max(seconds_now - self._seconds_before, 1e-9)

    def _check(self, step: int, rate: float, loss: float, norm: float) -> None:
        if math.isfinite(loss) and math.isfinite(norm):
            return
        raise NumericError(
            f"{self._where} step {step}: loss {self._loss_name} is {loss:g} with gradient norm {norm:g} at learning "
            f"rate {rate:g}, need finite numbers; lower training.learning_rate or training.gradient_clip."
        )


_LOOK_EVERY = 10
"""Steps between two counts: counting reads numbers back from the device, and a step should not wait for that."""


class NegativeSampler:
    """Counts of every tenth full batch after a validation, the first one included.

    Short batches are left out: their counts have another range. Losses that select no single hardest negative
    (softmax, top-f above f = 0) give the same numbers under names that start with `proxy_`.
    """

    def __init__(self, training: TrainingSpec, *, full_batches: int = 0) -> None:
        """full_batches: number since the validation, counted by the execution that this one continues."""
        self._batch_size = training.batch_size
        self.full_batches = full_batches

    def look(self, batch: Batch, output: LossOutput) -> dict[str, float]:
        """Counts by name, or nothing for most batches."""
        if len(batch.image_ids) < self._batch_size or output.selection is None:
            return {}
        self.full_batches += 1
        if (self.full_batches - 1) % _LOOK_EVERY:
            return {}
        selection = output.selection
        counts = unique_hard_negatives(
            selection.scores, selection.negatives, active_images=selection.active_images,
            active_captions=selection.active_captions,
        )
        prefix = "proxy_unique_negatives" if selection.is_proxy else "unique_negatives"
        return {f"{prefix}_{name}": value for name, value in counts.as_dict().items()}
