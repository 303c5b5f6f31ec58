"""What a training step of every network reaches on a device: pairs per second, waiting for data, share of the peak."""

from __future__ import annotations

import itertools
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import nan
from typing import Any

import torch

from gpu.cases import trial_of
from gpu.curves import learner_of
from gpu.timing import MOST_S, arithmetic, forget_memory, median_seconds, most_memory
from vsetune.config.study.training import TrialSpec
from vsetune.data.batches.batch import Batch
from vsetune.data.batches.reader import training_batches
from vsetune.data.stored.dataset import Dataset
from vsetune.scoring.device import wait_for
from vsetune.training.batches import TrainingBatches
from vsetune.training.step import Learner

RESIDENT = 4
"""Batches that lie on the device and are taken in turn, so that no step finds its numbers in a cache."""


@dataclass(frozen=True)
class Rate:
    """Of one network in one precision; NaN where it does not fit.

    pairs_s: per second, batches on the device. waiting: share of the time that goes to waiting for data when batches
    come from the reader. operations: of one step, in products. peak_share: of what one large product reaches in that
    precision. memory: bytes at most, None where nobody counts.
    """

    network: str
    precision: str
    batch: int
    step_s: float
    pairs_s: float
    waiting: float
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
            yield Rate(name, precision, batch, nan, nan, nan, nan, nan, None)


def _rate(name: str, trial: TrialSpec, device: torch.device, peak: float, repeats: int) -> Rate:
    forget_memory(device)
    learner, source = learner_of(trial, device), TrainingBatches(trial, opened(trial.data.path), device)
    try:
        resident = [source.take(number) for number in range(min(RESIDENT, source.steps_per_epoch))]
        turn = itertools.cycle(resident)
        seconds = median_seconds(lambda: learner.step(next(turn)), device, repeats=repeats)
        operations = arithmetic(lambda: learner.step(resident[0]))
        read = reader_seconds(learner, source, device, steps=repeats)
    finally:
        source.close()
    return Rate(
        name, trial.training.precision, trial.training.batch_size, seconds, resident[0].pairs / seconds,
        max(0.0, 1 - seconds / read), operations, operations / seconds / peak, most_memory(device),
    )


def opened(data: str) -> Dataset:
    """As a training opens it."""
    return Dataset.open(data)


def reader_seconds(learner: Learner, source: TrainingBatches, device: torch.device, *, steps: int) -> float:
    """Seconds per step when batches come from the reader, as in a training; its start is left out."""
    first = source.take(0)
    learner.step(first)
    wait_for(device)
    begin, pairs = time.perf_counter(), 0
    for step in range(1, 1 + min(steps, source.steps_per_epoch - 1)):
        if pairs and time.perf_counter() - begin > MOST_S:
            break
        batch = source.take(step)
        learner.step(batch)
        pairs += batch.pairs
    wait_for(device)
    return (time.perf_counter() - begin) / max(1, pairs) * first.pairs


def host_batches(data: str, batch: int) -> list[Batch]:
    """A few batches of the reader, on the CPU."""
    with training_batches(
        Dataset.open(data), "train", batch_size=batch, batch_unit="pairs", seed=0, epoch=0, shuffle_pairs=batch,
        drop_last=True,
    ) as found:
        return list(itertools.islice(found, RESIDENT))


@dataclass(frozen=True)
class Transfer:
    """Of one batch: megabytes, host seconds until `to` returns, and seconds until it is there."""

    megabytes: float
    host_s: float
    there_s: float


def transfer(batches: Sequence[Batch], device: torch.device) -> Transfer:
    """How long a batch takes to the device. Pinned and asynchronous, the host is free long before it is there."""
    tensors = [value for value in vars(batches[0]).values() if isinstance(value, torch.Tensor)]
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
