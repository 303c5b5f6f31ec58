"""What a training step of every network reaches on a device: pairs per second, waiting for data, share of the peak."""

from __future__ import annotations

import itertools
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from math import nan
from typing import Any

import torch

from gpu.cases import trial_of
from gpu.curves import learner_of
from gpu.products import alone_seconds
from gpu.timing import WARM, arithmetic, forget_memory, median_seconds, most_memory, queued_seconds
from vsetune.config.sources.trial_inputs import Reading
from vsetune.config.study.training import TrialSpec
from vsetune.data.batches.batch import Batch
from vsetune.data.batches.reader import training_batches
from vsetune.data.stored.dataset import Dataset
from vsetune.training.batches import TrainingBatches
from vsetune.training.device import product_precision, wait_for
from vsetune.training.step import Learner

BANK = Reading("bank", device_share=0.9)
"""As a study reads a data set that fits: from arrays that stay on the GPU."""
RESIDENT = 4
"""Batches that lie on the device and are taken in turn, so that no step finds its numbers in a cache."""


@dataclass(frozen=True)
class Rate:
    """Of one network in one precision; NaN where it does not fit.

    pairs_s: per second, batches on the device. waiting: share of the time that goes to waiting for data when batches
    come from the bank as in a training. products: share of the step that its products take when they run alone.
    operations: of one step, in products. peak_share: of what one large product reaches in that precision. memory: bytes
    at most, None where nobody counts.
    """

    network: str
    precision: str
    batch: int
    step_s: float
    pairs_s: float
    waiting: float
    products: float
    operations: float
    peak_share: float
    memory: int | None


def rates(
    networks: dict[str, dict[str, Any]], data: str, device: torch.device, peaks: dict[str, float], *, batch: int,
    repeats: int,
) -> Iterator[Rate]:
    """Every network in every precision that `peaks` (operations per second of a product) has."""
    for (name, settings), precision in itertools.product(networks.items(), peaks):
        trial = trial_of(data, settings, {"name": "lmh"}, batch_size=batch, precision=precision, shuffle_pairs=10_000)
        try:
            yield _rate(name, trial, device, peaks[precision], repeats)
        except torch.OutOfMemoryError as error:
            print(f"{name} in {precision}, B = {batch}: {str(error).partition('. ')[0]}", file=sys.stderr)
            yield Rate(name, precision, batch, nan, nan, nan, nan, nan, nan, None)


def _rate(name: str, trial: TrialSpec, device: torch.device, peak: float, repeats: int) -> Rate:
    forget_memory(device)
    learner, source = learner_of(trial, device), TrainingBatches(trial, opened(trial.data.path), device)
    try:
        resident = [source.take(number) for number in range(min(RESIDENT, source.steps_per_epoch))]
        seconds = queued_seconds(lambda number: learner.step(resident[number % len(resident)]), device, repeats=repeats)
        operations = arithmetic(lambda: learner.step(resident[0]))
        memory = most_memory(device)
        read = fed_seconds(learner, source, device, steps=repeats)
        products = products_seconds(learner, resident[0], device, repeats=repeats)
    finally:
        source.close()
    return Rate(
        name, trial.training.precision, trial.training.batch_size, seconds, resident[0].pairs / seconds,
        max(0.0, 1 - seconds / read), products / seconds, operations, operations / seconds / peak, memory,
    )


def opened(data: str) -> Dataset:
    """As a training opens it."""
    return Dataset.open(data, reading=BANK)


def fed_seconds(learner: Learner, source: TrainingBatches, device: torch.device, *, steps: int) -> float:
    """Seconds per step when each batch is made for it, as in a training; the start of the epoch is left out."""
    source.take(0)
    return queued_seconds(
        lambda number: learner.step(source.take(1 + number)), device,
        repeats=min(steps, source.steps_per_epoch - 1 - WARM), rounds=1,
    )


def products_seconds(learner: Learner, batch: Batch, device: torch.device, *, repeats: int) -> float:
    """Of the products of a step alone; NaN where what they are given does not fit beside the step."""
    try:
        with product_precision(learner.trial.training, device):
            return alone_seconds(lambda: learner.step(batch), device, repeats=repeats)
    except torch.OutOfMemoryError:
        return nan


def host_batches(data: str, batch: int) -> list[Batch]:
    """A few batches of the reader, on the CPU."""
    with closing(training_batches(
        Dataset.open(data), "train", batch_size=batch, batch_unit="pairs", seed=0, epoch=0, shuffle_pairs=batch,
        drop_last=True,
    )) as found:
        return list(itertools.islice(found, RESIDENT))


@dataclass(frozen=True)
class Transfer:
    """Of one batch: megabytes, host seconds until `to` returns, and seconds until it is there."""

    megabytes: float
    host_s: float
    there_s: float


def transfer(batches: Sequence[Batch], device: torch.device) -> Transfer:
    """How long a batch takes to the device. Pinned and asynchronous, the host is free long before it is there."""
    parts = (batches[0], batches[0].images, batches[0].captions)
    tensors = [value for part in parts for value in vars(part).values() if isinstance(value, torch.Tensor)]
    size = sum(value.numel() * value.element_size() for value in tensors) / 1e6
    turn = itertools.cycle(batches)
    next(turn).to(device)
    wait_for(device)
    host = []
    for _ in range(5):
        begin = time.perf_counter()
        next(turn).to(device)
        host.append(time.perf_counter() - begin)
        wait_for(device)
    return Transfer(size, min(host), median_seconds(lambda: next(turn).to(device), device, repeats=5))
