"""The CPU and a device train alike: loss curves of every network and every loss, in every precision.

All curves of a case start from the same weights, see the same batches and draw the same numbers. The yardstick of a
precision is measured in the same run, on the CPU: how far its curve lies from the curve in float64. For TF32 and
bfloat16 the CPU imitates the matrix units (`CoarseProducts`). A device may lie `FACTOR` times as far from float64 as
the CPU does in this case, or in the median case where this one came out lucky: sums in another order, other kernels and
other formulas of the same gradient round differently, but not worse. No bound is below `FLOOR`: the loss of a batch
is a sum of 16 numbers, and each addition may round it by half a unit in its last place.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from gpu.arithmetic import CoarseProducts, DrawnOnTheCpu
from gpu.cases import Case, trial_of
from gpu.side_by_side import side_by_side
from gpu.waits import KIND, counted_waits
from vsetune.config.study.training import TrialSpec
from vsetune.data.batches.assembly import caption_tables
from vsetune.data.batches.batch import Batch
from vsetune.data.batches.reader import training_batches
from vsetune.data.stored.dataset import Dataset
from vsetune.training.step import Learner

CPU = torch.device("cpu")
STEPS = 8
FACTOR = 4.0
FLOOR = 16 * 2.0**-24
SEMANTIC_SIZE = 16
MANTISSA = {"float32": 23, "tf32": 10, "bfloat16": 7}
"""Bits that the factors of a product keep, by precision."""


@dataclass(frozen=True)
class Compared:
    """One case in one precision. device: largest difference of the device's losses from those in float64, as a share of
    the largest loss. yardstick: likewise of the CPU in that precision. bound: what the device may reach."""

    case: str
    precision: str
    device: float
    yardstick: float
    bound: float

    @property
    def holds(self) -> bool:
        return self.device <= self.bound


def compare(
    cases: Mapping[str, Case], data: str, device: torch.device, precisions: Sequence[str], *, steps: int = STEPS,
    processes: int = 1,
) -> Iterator[Compared]:
    """Every case in every precision; the bounds need the yardsticks of all of them first."""
    measure = partial(distances, data=data, device=device, precisions=precisions, steps=steps)
    far = dict(zip(cases, side_by_side(measure, cases.values(), processes, device=device), strict=True))
    for precision in precisions:
        found = {name: by_precision[precision] for name, by_precision in far.items()}
        usual = statistics.median(yardstick for _, yardstick in found.values())
        for name, (there, here) in found.items():
            yield Compared(name, precision, there, here, max(FACTOR * here, FACTOR * usual, FLOOR))


def distances(
    case: Case, *, data: str, device: torch.device, precisions: Sequence[str], steps: int
) -> dict[str, tuple[float, float]]:
    """By precision: (the device's, the CPU's) distance from the curve in float64."""
    batches = batches_of(case, data, steps)
    exact = curve(case, data, batches, CPU, dtype=torch.float64)
    far = {}
    for precision in precisions:
        here = curve(case, data, batches, CPU, bits=MANTISSA[precision])
        there = curve(case, data, batches, device, precision=precision)
        far[precision] = distance(there, exact), distance(here, exact)
    return far


def distance(curve: Tensor, exact: Tensor) -> float:
    """Largest difference of two curves, as a share of the largest number of the exact one; NaN is infinitely far."""
    far = ((curve - exact).abs().max() / exact.abs().max()).item()
    return far if far == far else float("inf")


def batches_of(case: Case, data: str, steps: int) -> list[Batch]:
    """The first batches of a training, on the CPU. Semantic vectors are drawn: fitting them takes scikit-learn."""
    dataset, trial = Dataset.open(data), trial_of(data, case.network, case.loss, batch_unit=case.unit)
    count = dataset.split("train").captions
    semantics = np.random.default_rng(1).standard_normal((count, SEMANTIC_SIZE)).astype(np.float32)
    reads, training = trial.network.reads, trial.training
    with closing(training_batches(
        dataset, "train", batch_size=training.batch_size, batch_unit=training.batch_unit, seed=0, epoch=0,
        shuffle_pairs=training.shuffle_pairs, drop_last=training.batch_unit == "pairs",
        semantics=None if trial.semantic_source is None else semantics, reads=reads,
        tables=caption_tables(dataset, "train", reads),
    )) as found:
        batches = list(found)
    return [batches[number % len(batches)] for number in range(steps)]


def curve(
    case: Case, data: str, batches: Sequence[Batch], device: torch.device, *, dtype: torch.dtype = torch.float32,
    bits: int = 23, precision: str = "float32",
) -> Tensor:
    """(steps,) float64 losses. bits: of the factors of products, imitated. precision: that the trial asks for."""
    trial = trial_of(data, case.network, case.loss, batch_unit=case.unit, precision=precision)
    torch.manual_seed(0)
    losses = []
    with ExitStack() as stack:
        if device.type == KIND:
            stack.enter_context(counted_waits())
        stack.enter_context(DrawnOnTheCpu())
        stack.enter_context(sdpa_kernel(SDPBackend.MATH))  # the others draw their dropout inside the kernel
        if bits < MANTISSA["float32"]:
            stack.enter_context(CoarseProducts(bits))
        learner = learner_of(trial, device, dtype)
        for number, batch in enumerate(batches):
            learner.set_epoch(number / learner.steps_per_epoch)
            losses.append(learner.step(in_type(batch.to(device), dtype)).loss)
        return torch.tensor([loss.item() for loss in losses], dtype=torch.float64)


def learner_of(trial: TrialSpec, device: torch.device, dtype: torch.dtype = torch.float32) -> Learner:
    """As a training starts with it; the schedule of its loss begins at epoch 0."""
    learner = Learner.build(trial, Dataset.open(trial.data.path), device)
    learner.network.to(dtype)
    learner.loss.to(dtype)
    learner.loss.start_epoch(0)
    return learner


def in_type(batch: Batch, dtype: torch.dtype) -> Batch:
    """The batch with its floating numbers in this type."""
    images, vectors = batch.images, batch.semantic_vectors
    boxes = None if images.boxes is None else images.boxes.to(dtype)
    return replace(
        batch, images=replace(images, features=images.features.to(dtype), boxes=boxes),
        semantic_vectors=None if vectors is None else vectors.to(dtype),
    )


@contextmanager
def counting(device: torch.device) -> Iterator[None]:
    """Makes the stand-in device work; nothing for a real one."""
    with ExitStack() as stack:
        if device.type == KIND:
            stack.enter_context(counted_waits())
        yield
