"""How often one training step makes the host wait for the device, and where.

Found on the stand-in device (`waits.py`) without a GPU; on a GPU PyTorch itself tells of every wait that it knows of
(`torch.cuda.set_sync_debug_mode`), and the profiler how often the host called what waits.
"""

from __future__ import annotations

import re
import warnings
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

from gpu.cases import Case, trial_of
from gpu.curves import batches_of, learner_of
from gpu.waits import KIND, PACKAGE, Wait, counted_waits, stand_in_device
from vsetune.data.batches.batch import Batch
from vsetune.training.step import Learner

WARM_STEPS = 2
"""Steps before the one that is counted: shapes are checked and moments made in the first."""
WAITING_CALLS = ("cudaStreamSynchronize", "cudaEventSynchronize")
"""Of the profile of one step; it ends with a cudaDeviceSynchronize of its own."""


@dataclass(frozen=True)
class StepWaits:
    """places: where one step waits, and how often. calls: what the profiler of a GPU saw, for people; `-` without."""

    places: Counter[Wait]
    calls: str

    @property
    def total(self) -> int:
        return sum(self.places.values())

    def worst(self, most: int = 4) -> str:
        """The lines that wait most often."""
        by_place: Counter[str] = Counter()
        for wait, count in self.places.items():
            by_place[wait.place] += count
        return ", ".join(f"{place} ({count})" for place, count in by_place.most_common(most)) or "-"


def waits_of(case: Case, *, data: str, device: torch.device) -> StepWaits:
    """Of a step after the first ones; the batch is there before the step begins."""
    batches = batches_of(case, data, WARM_STEPS + 1)
    if device.type == KIND:
        return StepWaits(waits_without_gpu(case, data, batches), "-")
    learner = learner_of(trial_of(data, case.network, case.loss, batch_unit=case.unit), device)
    places, calls = waits_on_gpu(learner, [batch.to(device) for batch in batches], device)
    return StepWaits(places, ", ".join(f"{name} {count}" for name, count in calls.items()) or "none")


def waits_without_gpu(case: Case, data: str, batches: Sequence[Batch]) -> Counter[Wait]:
    """Of the step with the last batch, on the stand-in device."""
    device = stand_in_device()
    with counted_waits() as counts:
        learner = learner_of(trial_of(data, case.network, case.loss, batch_unit=case.unit), device)
        there = [batch.to(device) for batch in batches[:WARM_STEPS + 1]]
        counts.clear()
        take_steps(learner, there, lambda: counts.clear())
    return counts


def take_steps(learner: Learner, batches: Sequence[Batch], before_last: Callable[[], None]) -> None:
    """One step per batch."""
    for number, batch in enumerate(batches):
        learner.set_epoch(number / learner.steps_per_epoch)
        if number == len(batches) - 1:
            before_last()
        learner.step(batch)


def waits_on_gpu(
    learner: Learner, batches: Sequence[Batch], device: torch.device
) -> tuple[Counter[Wait], dict[str, int]]:
    """(where PyTorch saw a wait, calls that wait by name) of one step with a batch that is there."""
    take_steps(learner, batches, lambda: None)
    torch.cuda.synchronize(device)
    places: Counter[Wait] = Counter()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        torch.cuda.set_sync_debug_mode("warn")
        caught.clear()  # it says that it is a prototype
        try:
            learner.step(batches[-1])
        finally:
            torch.cuda.set_sync_debug_mode("default")
    for warning in caught:
        if "synchron" in str(warning.message):
            places[Wait("wait", _own_place(warning.filename, warning.lineno))] += 1
    activities = [torch.profiler.ProfilerActivity.CPU, torch.profiler.ProfilerActivity.CUDA]
    with torch.profiler.profile(activities=activities) as profile:
        learner.step(batches[-1])
    calls = {event.key: event.count for event in profile.key_averages()}
    named = {name: calls.get(name, 0) for name in WAITING_CALLS}
    return places, {name: count for name, count in named.items() if count}


def _own_place(file: str, line: int) -> str:
    return f"{file.rpartition(PACKAGE)[2]}:{line}" if PACKAGE in file else f"{re.sub(r'.*/', '', file)}:{line}"
