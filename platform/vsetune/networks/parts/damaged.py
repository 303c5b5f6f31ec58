"""What reading a file of weights raises when the file is no such thing, or a broken one."""

from __future__ import annotations

import pickle

from safetensors import SafetensorError

DAMAGED = (
    OSError, RuntimeError, EOFError, ValueError, pickle.UnpicklingError, SafetensorError,
    TypeError, KeyError, IndexError, AttributeError, AssertionError,  # a broken stream of pickle instructions
)
