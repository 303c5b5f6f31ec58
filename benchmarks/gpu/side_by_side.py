"""The same measurement of many cases, in several processes at once."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from typing import TypeVar

import torch

from gpu.waits import KIND, stand_in_device
from vsetune.training.device import choose_device

Asked = TypeVar("Asked")
Found = TypeVar("Found")


def side_by_side(
    measure: Callable[[Asked], Found], asked: Iterable[Asked], processes: int, *, device: torch.device
) -> Iterator[Found]:
    """What `measure` finds of each, in their order. Each process computes with one thread of the CPU; with one process
    it is this one, as it is. measure: a function of a module or a `partial` of one, as it travels. device: where it
    computes, which each process makes ready (`choose_device`).
    """
    if processes == 1:
        yield from map(measure, asked)
        return
    fresh = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(processes, mp_context=fresh, initializer=_begin, initargs=(str(device),)) as pool:
        yield from pool.map(measure, asked)


def _begin(device: str) -> None:
    torch.set_num_threads(1)
    if device.startswith(KIND):
        stand_in_device()
    else:
        choose_device(device)
