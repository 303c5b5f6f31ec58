"""How fast this machine is just now: one fixed product, timed beside the training that it is compared with."""

from __future__ import annotations

import statistics
import time

import torch

from vsetune.scoring.device import wait_for

_SIZE = 832
"""Of the two square float32 matrices: 1.15 billion multiplications and additions, 10 to 20 ms on one core."""
_CHAIN_ON_GPU = 100
"""Products in a row on a GPU, where a single one is over before a clock can tell."""
_REPETITIONS = 5


def calibration_seconds(device: torch.device) -> float:
    """Seconds of one calibration product with the threads of this process, the median of a few.

    No random number is drawn, so nothing that is trained changes. The median sees what else the machine does, as the
    training beside it does; the fastest would not.
    """
    matrix = torch.linspace(-1.0, 1.0, _SIZE * _SIZE, device=device).reshape(_SIZE, _SIZE)
    products = _CHAIN_ON_GPU if device.type == "cuda" else 1
    _product(matrix, device, products)  # the first one makes buffers
    return statistics.median(_product(matrix, device, products) for _ in range(_REPETITIONS))


def _product(matrix: torch.Tensor, device: torch.device, products: int) -> float:
    wait_for(device)
    begin = time.perf_counter()
    for _ in range(products):
        torch.mm(matrix, matrix)
    wait_for(device)
    return (time.perf_counter() - begin) / products
