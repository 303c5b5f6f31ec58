"""How fast this machine is just now: fixed work, timed beside the training that it is compared with.

A product of two matrices for what is timed over seconds, on a GPU too. For single steps on the CPU a small step of
plain torch, recurrent, forward and backward: what slows memory and caches slows it as it slows training, which a
product hardly notices.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass

import torch

from vsetune.scoring.device import wait_for

_SIZE = 832
"""Of the two square float32 matrices: 1.15 billion multiplications and additions, 10 to 20 ms on one core."""
_CHAIN_ON_GPU = 100
"""Products in a row on a GPU, where a single one is over before a clock can tell."""
_REPETITIONS = 5
_SENTENCES, _WORDS, _WORD_SIZE, _UNITS = 50, 20, 64, 128
"""Of the calibration step: 9 ms on one core."""


@dataclass(frozen=True)
class Calibration:
    """Seconds of one product or step. passed: by the clock on the wall. worked: those of them in which the processor
    worked."""

    passed: float
    worked: float


def working_clock(device: torch.device) -> Callable[[], float]:
    """Seconds in which the processor works for this process; what other processes take from it does not count.

    Of the calling thread alone where operations use no others. A GPU is nobody else's: there all seconds count.
    """
    if device.type == "cuda":
        return time.perf_counter
    return time.thread_time if torch.get_num_threads() == 1 else time.process_time


def calibrate(device: torch.device) -> Calibration:
    """One calibration product with the threads of this process, the medians of a few.

    No random number is drawn, so nothing that is trained changes. The median sees what else the machine does, as the
    training beside it does; the fastest would not.
    """
    matrix = torch.linspace(-1.0, 1.0, _SIZE * _SIZE, device=device).reshape(_SIZE, _SIZE)
    clock = working_clock(device)
    _product(matrix, device, clock)  # the first one makes buffers
    timed = [_product(matrix, device, clock) for _ in range(_REPETITIONS)]
    return Calibration(statistics.median(t.passed for t in timed), statistics.median(t.worked for t in timed))


def step_timer() -> Callable[[], Calibration]:
    """Times one calibration step on the CPU per call; the first one, which makes buffers, is over.

    The generator of random numbers is left as it was.
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
