"""The one place where losses ask which device numbers are on.

The answer may decide by which way a result is found, and what is asked before work is saved; never the result.
"""

from __future__ import annotations

from torch import Tensor


def is_on_cpu(tensor: Tensor) -> bool:
    """False on a GPU, which waits for every question about values and would rather compute too much."""
    return tensor.device.type == "cpu"
