"""The switch between hand-written gradients and automatic differentiation of the same formulas.

`VSETUNE_PLAIN_AUTOGRAD=1`, in the environment of the process that trains, turns every hand-written gradient off: scores
and gradients stay equal up to rounding, steps on a CPU take longer. It helps to find out whether an unexpected result
comes from the model or from our gradients. `python benchmarks/gradients.py` and decision 0034 show the time each saves.
"""

from __future__ import annotations

import os

from torch import Tensor

from vsetune.errors import UsageError
from vsetune.networks.parts.network_devices import is_on_cpu

PLAIN_AUTOGRAD = "VSETUNE_PLAIN_AUTOGRAD"


def hand_derived(inputs: Tensor) -> bool:
    """Whether to use a hand-written gradient: on a CPU, unless the switch is set; a GPU is faster without.

    UsageError unless the variable is unset, empty, 0 or 1.
    """
    value = os.environ.get(PLAIN_AUTOGRAD, "")
    if value not in ("", "0", "1"):
        raise UsageError(f"{PLAIN_AUTOGRAD}: got {value[:40]!r}, need 1 (automatic differentiation only), 0 or nothing")
    return value != "1" and is_on_cpu(inputs)
