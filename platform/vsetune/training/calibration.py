"""The current speed of this machine: fixed work, timed beside the training that it is compared with.

For timings over seconds, also on a GPU, the work is a product of two matrices. For single steps on the CPU it is a
small step of plain torch, recurrent, forward and backward: contention for memory and caches slows it as it slows
training, and hardly slows a product.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass

import torch

from vsetune.training.device import wait_for

_SIZE = 832
"""Size of the two square float32 matrices: 1.15 billion multiplications and additions, 10 to 20 ms on one core."""
_CHAIN_ON_GPU = 100
"""Products in a row on a GPU, where a single one is too short for the clock."""
_REPETITIONS = 5
_SENTENCES, _WORDS, _WORD_SIZE, _UNITS = 50, 20, 64, 128
"""Sizes of the calibration step: 9 ms on one core."""


@dataclass(frozen=True)
class Calibration:
    """Seconds of one product or step. passed: wall-clock time. worked: the part of it in which the processor worked."""

    passed: float
    worked: float


def working_clock(device: torch.device) -> Callable[[], float]:
    """Seconds in which the processor works for this process; time taken by other processes does not count.

    Only the calling thread counts where operations use no others. A GPU is not shared: there all seconds count.
    """
    if device.type == "cuda":
        return time.perf_counter
    return time.thread_time if torch.get_num_threads() == 1 else time.process_time


def calibrate(device: torch.device) -> Calibration:
    """One calibration product with the threads of this process; medians over a few products.

    No random number is used, so training is not affected. The median includes the load of other processes, as the
    training beside it does; the minimum would not.
    """
    matrix = torch.linspace(-1.0, 1.0, _SIZE * _SIZE, device=device).reshape(_SIZE, _SIZE)
    clock = working_clock(device)
    _product(matrix, device, clock)  # the first one makes buffers
    timed = [_product(matrix, device, clock) for _ in range(_REPETITIONS)]
    return Calibration(statistics.median(t.passed for t in timed), statistics.median(t.worked for t in timed))


def step_timer() -> Callable[[], Calibration]:
    """Times one calibration step on the CPU per call; the first step, which allocates buffers, is already done.

    The state of the random generator is restored.
    """
    with torch.random.fork_rng(devices=[]):
        unit = torch.nn.GRU(_WORD_SIZE, _UNITS, batch_first=True)
    words = torch.linspace(-1.0, 1.0, _SENTENCES * _WORDS * _WORD_SIZE).reshape(_SENTENCES, _WORDS, _WORD_SIZE)
    clock = working_clock(torch.device("cpu"))

    def timed() -> Calibration:
        begin, working = time.perf_counter(), clock()
        unit.zero_grad()
        unit(words)[0].square().mean().backward()
        return Calibration(time.perf_counter() - begin, clock() - working)

    timed()
    return timed


def _product(matrix: torch.Tensor, device: torch.device, clock: Callable[[], float]) -> Calibration:
    products = _CHAIN_ON_GPU if device.type == "cuda" else 1
    wait_for(device)
    begin, worked = time.perf_counter(), clock()
    for _ in range(products):
        torch.mm(matrix, matrix)
    wait_for(device)
    return Calibration((time.perf_counter() - begin) / products, (clock() - worked) / products)
