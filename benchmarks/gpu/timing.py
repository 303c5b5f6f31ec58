"""Seconds, arithmetic and memory of a training step, and what the device reaches in products of matrices alone."""

from __future__ import annotations

import gc
import itertools
import statistics
import time
from collections.abc import Callable
from typing import Any

import torch
from torch.utils.flop_counter import FlopCounterMode, mm_flop

from gpu.waits import KIND
from vsetune.config.study.training import TrainingSpec
from vsetune.training.device import product_precision, wait_for

PRODUCT = {"cuda": 8192, "cpu": 1024}
"""Rows and columns of the product that tells what the device can do, by the kind of device."""

MOST_S = 10.0
WARM = 4
"""Calls that are not timed: what they load and reserve stays."""


def median_seconds(run: Callable[[], object], device: torch.device, *, repeats: int, warm: int = 3) -> float:
    """Of one call, the queue of the device waited for. After MOST_S none is begun, once there is one to tell of."""
    seconds: list[float] = []
    first = time.perf_counter()
    for number in range(warm + repeats):
        if seconds and time.perf_counter() - first > MOST_S:
            break
        wait_for(device)
        begin = time.perf_counter()
        run()
        wait_for(device)
        if number >= warm:
            seconds.append(time.perf_counter() - begin)
    return statistics.median(seconds)


def queued_seconds(run: Callable[[int], object], device: torch.device, *, repeats: int, rounds: int = 3) -> float:
    """Of one call among `repeats` in a row, as a training makes them: the queue is waited for only at the end.

    The median of so many rounds, after a few calls that do not count; after MOST_S no round is begun, once there is
    one. run: takes the number of the call, counted through.
    """
    numbers = itertools.count()
    for _ in range(WARM):
        run(next(numbers))
    wait_for(device)
    seconds: list[float] = []
    first = time.perf_counter()
    while len(seconds) < rounds and not (seconds and time.perf_counter() - first > MOST_S):
        begin, done = time.perf_counter(), 0
        while done < repeats and time.perf_counter() - begin < MOST_S:
            run(next(numbers))
            done += 1
        wait_for(device)
        seconds.append((time.perf_counter() - begin) / done)
    return statistics.median(seconds)


def product_rate(device: torch.device, precision: str, *, repeats: int = 20) -> float:
    """Floating-point operations per second of one square product of drawn numbers in this precision."""
    size = PRODUCT.get(device.type, PRODUCT["cpu"])
    dtype = torch.bfloat16 if precision == "bfloat16" and device.type == "cuda" else torch.float32
    left, right = (torch.randn(size, size, device=device).to(dtype) for _ in range(2))
    with product_precision(TrainingSpec.model_validate({"precision": precision}), device):
        seconds = median_seconds(lambda: left @ right, device, repeats=repeats)
    return 2 * size**3 / seconds


def arithmetic(step: Callable[[], object]) -> float:
    """Floating-point operations of the products and convolutions of one step, from their shapes."""
    with FlopCounterMode(display=False, custom_mapping=MORE_PRODUCTS) as counter:
        step()
    return float(counter.get_total_flops())


def most_memory(device: torch.device) -> int | None:
    """Bytes that tensors held on the device at most since `forget_memory`; None on the CPU, where nobody counts."""
    return torch.cuda.max_memory_allocated(device) if device.type == "cuda" else None


def forget_memory(device: torch.device) -> None:
    """Count anew from here, with nothing kept that nobody uses."""
    gc.collect()
    if device.type == "cuda":
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats(device)


def device_title(device: torch.device) -> str:
    """For people: the name of the GPU and its memory, or that there is none."""
    if device.type == "cuda":
        about = torch.cuda.get_device_properties(device)
        return f"{about.name}, {about.total_memory / 2**30:.0f} GiB"
    return "a stand-in for a GPU" if device.type == KIND else "the CPU"


def _in_place(_: Any, one: Any, other: Any, **__: Any) -> int:
    return mm_flop(one, other)


def _cudnn_gru(inputs: Any, weights: Any, *_: Any, **__: Any) -> int:
    """A product of all elements (packed: the first dimension, else the first two) with every matrix of the layer."""
    elements = inputs[0] if len(inputs) == 2 else inputs[0] * inputs[1]
    return int(2 * elements * sum(shape[0] * shape[1] for shape in weights if len(shape) == 2))


def _cudnn_gru_backward(inputs: Any, weights: Any, *_: Any, **__: Any) -> int:
    """Of the gradients of the inputs and of the weights."""
    return 2 * _cudnn_gru(inputs, weights)


MORE_PRODUCTS = {
    torch.ops.aten.addmm_: _in_place, torch.ops.aten._cudnn_rnn: _cudnn_gru,
    torch.ops.aten._cudnn_rnn_backward: _cudnn_gru_backward,
}
"""Products that torch's own table leaves out: in place, and those inside cuDNN's recurrent layers."""
