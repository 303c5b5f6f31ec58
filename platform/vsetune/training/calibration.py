"""How fast this machine is just now: one fixed product, timed beside the training that it is compared with."""

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


@dataclass(frozen=True)
class Calibration:
    """Seconds of one product. passed: by the clock on the wall. worked: those of them in which the processor worked."""

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


def _product(matrix: torch.Tensor, device: torch.device, clock: Callable[[], float]) -> Calibration:
    products = _CHAIN_ON_GPU if device.type == "cuda" else 1
    wait_for(device)
    begin, worked = time.perf_counter(), clock()
    for _ in range(products):
        torch.mm(matrix, matrix)
    wait_for(device)
    return Calibration((time.perf_counter() - begin) / products, (clock() - worked) / products)
