"""The one switch between gradients written out by hand and automatic differentiation of the same formulas.

`VSETUNE_PLAIN_AUTOGRAD=1`, in the environment of the process that trains, turns every hand-derived gradient off: scores
and gradients stay equal up to rounding, steps on a CPU take longer. It is for finding out whether a surprise is the
model's or ours. What each of them saves: `python benchmarks/gradients.py` and decision 0034.
"""

from __future__ import annotations

import os

from torch import Tensor

from vsetune.errors import UsageError
from vsetune.networks.parts.network_devices import is_on_cpu

PLAIN_AUTOGRAD = "VSETUNE_PLAIN_AUTOGRAD"


def hand_derived(inputs: Tensor) -> bool:
    """Whether to use a gradient written out by hand: on a CPU, unless the switch is set; a GPU is faster without.

    UsageError unless the variable is unset, empty, 0 or 1.
    """
    value = os.environ.get(PLAIN_AUTOGRAD, "")
    if value not in ("", "0", "1"):
        raise UsageError(f"{PLAIN_AUTOGRAD}: got {value[:40]!r}, need 1 (automatic differentiation only), 0 or nothing")
    return value != "1" and is_on_cpu(inputs)
