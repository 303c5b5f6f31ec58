"""The learned temperature of softmax losses: t = exp(-log_scale), log_scale <= ln 100 (the convention of CLIP)."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

_LARGEST_LOG_SCALE = math.log(100.0)  # CLIP: 1 / t stays below 100


def learned_log_scale(start: float) -> nn.Parameter:
    """Scalar parameter -ln t that starts at this temperature, or at the cap."""
    return nn.Parameter(torch.tensor(min(-math.log(start), _LARGEST_LOG_SCALE)))


def scaled_by(similarity: Tensor, log_scale: Tensor) -> tuple[Tensor, Tensor]:
    """Similarity over a learned temperature, and that temperature without gradient (scalar)."""
    capped = log_scale.float().clamp(max=_LARGEST_LOG_SCALE)
    return similarity * capped.exp(), (-capped.detach()).exp()


@torch.no_grad()
def cap(log_scale: Tensor) -> None:
    """Clamp a learned scale to its cap, in place; above the cap it would never get a gradient again."""
    log_scale.clamp_(max=_LARGEST_LOG_SCALE)
