"""Memory that a training step frees is reused by the next one.

The C library returns large freed blocks to the system and takes them again page by page; steps that make and free the
same tensors then wait for the system, longer on a busier machine: a small SCAN step on one core took 60 ms instead of
36, larger ones up to 1.2 times as long (`benchmarks/freed_memory.py`). Features of images by EfficientNet-Lite0 took
9.5 seconds of a processor for 96 images instead of 4.4.
"""

from __future__ import annotations

import ctypes
import platform

import torch

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # of mallopt(3)
_NEVER = 2**31 - 1
_LARGEST_KEPT = 2**30
"""Bytes of a block; larger blocks are still returned to the system."""


def keep_freed_memory() -> bool:
    """From now on keep freed memory in this process; False if its C library (not glibc) has no such switch. Peak memory
    does not change, as kept memory is reused; call `give_back_freed_memory` at the end of a trial."""
    if not _is_glibc():
        return False
    library = ctypes.CDLL(None)
    return bool(library.mallopt(_TRIM_THRESHOLD, _NEVER)) and bool(library.mallopt(_MMAP_THRESHOLD, _LARGEST_KEPT))


def give_back_freed_memory() -> None:
    """Return all unused memory to the system at once; on a GPU too, where trials beside this one may need it."""
    if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        torch.cuda.empty_cache()
    if _is_glibc():
        ctypes.CDLL(None).malloc_trim(0)


def _is_glibc() -> bool:
    return platform.libc_ver()[0] == "glibc"
