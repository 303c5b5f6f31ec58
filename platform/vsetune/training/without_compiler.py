"""torch's compiler stays unloaded where nothing is compiled.

The methods of an optimizer load it when they are first called, only to be left out of what it compiles: 900 modules,
1.5 seconds of a worker's start.
"""

from __future__ import annotations

import inspect
from typing import Any

import torch
from torch.optim import Optimizer

_METHODS = ("add_param_group", "load_state_dict", "state_dict", "zero_grad")
_LEFT_OUT = "__dynamo_disable"
"""Where `torch._compile` keeps the method as the compiler has marked it; it looks there first."""


def leave_compiler_unloaded() -> None:
    """Have optimizers call their own methods. A torch that does it in another way goes on loading its compiler."""
    for name in _METHODS:
        method: Any = getattr(vars(Optimizer).get(name), "__wrapped__", None)
        if method is not None and not hasattr(method, _LEFT_OUT):
            setattr(method, _LEFT_OUT, method)


def plain_step(optimizer: Optimizer) -> None:
    """`optimizer.step()` without what torch has put around it: hooks that nobody has set, a label for its profiler, and
    marks for its compiler."""
    with torch.no_grad():
        inspect.unwrap(type(optimizer).step)(optimizer)
