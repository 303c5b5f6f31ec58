"""Linear maps with the papers' initialisation."""

from __future__ import annotations

from torch import nn


def xavier_linear(inputs: int, outputs: int, *, bias: bool = True) -> nn.Linear:
    """Xavier-uniform weights, zero bias."""
    linear = nn.Linear(inputs, outputs, bias=bias)
    nn.init.xavier_uniform_(linear.weight)
    if bias:
        nn.init.zeros_(linear.bias)
    return linear
