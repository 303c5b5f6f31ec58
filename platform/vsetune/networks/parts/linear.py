"""A linear map as most papers here start it."""

from __future__ import annotations

from torch import Tensor, nn

from vsetune.networks.parts import matrix_products


class Linear(nn.Linear):
    """nn.Linear, faster on some CPUs (`vsetune.networks.parts.matrix_products`)."""

    def forward(self, input: Tensor) -> Tensor:  # named as by nn.Linear
        """(..., outputs). input: (..., inputs)."""
        return matrix_products.linear(input, self.weight, self.bias)


def xavier_linear(inputs: int, outputs: int, *, bias: bool = True) -> Linear:
    """Xavier-uniform weights, zero bias."""
    linear = Linear(inputs, outputs, bias=bias)
    nn.init.xavier_uniform_(linear.weight)
    if bias:
        nn.init.zeros_(linear.bias)
    return linear
