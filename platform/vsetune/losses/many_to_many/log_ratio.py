"""Log-ratio loss (Kim et al. 2019): ratios of the network's distances should be ratios of the targets.

For an anchor a and two others i, j: (ln(f_ai / f_aj) - ln(y_ai / y_aj))^2. It fixes ratios, not levels. Zhang et al.
apply it to similarities, with the anchor's own pair as j (`vsetune.losses.many_to_many.loss`).
"""

from __future__ import annotations

from torch import Tensor

SMALLEST = 1e-6  # below, values count as this, so that logarithms and their gradients stay finite


def log_ratios(network_i: Tensor, network_j: Tensor, target_i: Tensor, target_j: Tensor) -> Tensor:
    """(ln(f_ai / f_aj) - ln(y_ai / y_aj))^2, element by element, of tensors that broadcast.

    network_i, network_j: f >= 0, distances or similarities of the anchor to i and to j, with gradient. target_i,
    target_j: y >= 0 likewise.
    """
    return (log_levels(network_i, target_i) - log_levels(network_j, target_j)).square()


def log_levels(network: Tensor, target: Tensor) -> Tensor:
    """ln(f / y), whose differences the loss squares. Below 1e-6 both count as 1e-6 without gradient; a NaN stays."""
    return network.clamp(min=SMALLEST).log() - target.clamp(min=SMALLEST).log()
