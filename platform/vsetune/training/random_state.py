"""The random state of an attempt, separate from that of its process.

Python, numpy and torch keep global generators. An attempt installs its own state when it works and restores the
caller's when it pauses, so that warm workers, other attempts in the process and interruptions do not change its
numbers.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch


class RandomState:
    """State of the global generators as this attempt left them. device: its cuda generator is included."""

    def __init__(self, seed: int, device: torch.device) -> None:
        self._device = device
        outside = _capture(device)
        random.seed(seed)
        np.random.seed(seed % 2**32)
        torch.manual_seed(seed)
        self._state = _capture(device)
        _restore(outside, device)

    @contextmanager
    def active(self) -> Iterator[None]:
        """Use the attempt's state of the global generators inside, and the caller's again afterwards."""
        outside = _capture(self._device)
        _restore(self._state, self._device)
        try:
            yield
        finally:
            self._state = _capture(self._device)
            _restore(outside, self._device)

    def state_dict(self) -> dict[str, Any]:
        """Plain data and tensors. Call it outside `active`, where the state is up to date."""
        return dict(self._state)

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from a saved state. A checkpoint made on the CPU leaves the cuda generator as it was seeded."""
        self._state = {**self._state, **state}


@contextmanager
def undisturbed(device: torch.device) -> Iterator[None]:
    """Restore the global generators afterwards, so that random numbers used inside leave no trace."""
    outside = _capture(device)
    try:
        yield
    finally:
        _restore(outside, device)


def _capture(device: torch.device) -> dict[str, Any]:
    version, words, gauss = random.getstate()
    name, keys, position, has_gauss, cached = np.random.get_state(legacy=True)
    state: dict[str, Any] = {
        "python": [version, torch.tensor(words, dtype=torch.int64), gauss],
        "numpy": [str(name), torch.from_numpy(np.asarray(keys, np.int64)), position, has_gauss, cached],
        "torch": torch.get_rng_state(),
    }
    if device.type == "cuda":
        state["cuda"] = torch.cuda.get_rng_state(device)
    return state


def _restore(state: dict[str, Any], device: torch.device) -> None:
    version, words, gauss = state["python"]
    random.setstate((version, tuple(words.tolist()), gauss))
    name, keys, position, has_gauss, cached = state["numpy"]
    np.random.set_state((name, keys.numpy().astype(np.uint32), position, has_gauss, cached))
    torch.set_rng_state(state["torch"])
    if device.type == "cuda" and "cuda" in state:
        torch.cuda.set_rng_state(state["cuda"], device)
