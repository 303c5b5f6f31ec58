"""Memory of batches that is used again as soon as a batch is dropped.

New memory comes page by page and empty from the system, which takes six times as long as filling it.
"""

from __future__ import annotations

import math
import mmap
import weakref
from collections import defaultdict

import numpy as np

_MOST_KEPT = 4
"""Of each size: a batch that is trained on, and some that somebody keeps a little longer."""


class RecycledBuffers:
    """`take` gives arrays with whatever an earlier batch left in them."""

    def __init__(self) -> None:
        self._free: defaultdict[int, list[mmap.mmap]] = defaultdict(list)

    def take(self, shape: tuple[int, ...], dtype: str) -> np.ndarray:
        """An array of its own until nothing refers to it, or to a view or tensor of it, any more."""
        size = math.prod(shape) * np.dtype(dtype).itemsize
        free = self._free[size]
        block = free.pop() if free else mmap.mmap(-1, max(1, size))
        owner = np.frombuffer(block, dtype, count=math.prod(shape))  # what every view and tensor holds on to
        weakref.finalize(owner, _give_back, free, block).atexit = False
        return owner.reshape(shape)


def _give_back(free: list[mmap.mmap], block: mmap.mmap) -> None:
    if len(free) < _MOST_KEPT:
        free.append(block)
