"""Exceptions raised by reading a file of weights that is invalid or damaged."""

from __future__ import annotations

import pickle

from safetensors import SafetensorError

DAMAGED = (
    OSError, RuntimeError, EOFError, ValueError, pickle.UnpicklingError, SafetensorError,
    TypeError, KeyError, IndexError, AttributeError, AssertionError,  # a broken stream of pickle instructions
)
