"""Similarity of order embeddings (Vendrov et al. 2016; VSE++): minus how far a caption exceeds an image.

    S_ij = -|max(0, t_j - v_i)|

The B x B x D differences are never held at once: forward and backward go through them in blocks of images.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from vsetune.networks.parts.gradients import hand_derived

_NUMBERS_PER_BLOCK = 2**22  # 16 MiB of float32; a matter of memory only


def order_similarity(images: Tensor, captions: Tensor) -> Tensor:
    """(n, m) similarities, at most 0. images: (n, D). captions: (m, D). At a violation of 0 the gradient is 0."""
    if not hand_derived():
        return torch.cat([-torch.linalg.vector_norm((captions[None] - images[rows, None]).relu(), dim=-1)
                          for rows in _blocks(images, captions)])
    return _Order.apply(images, captions)  # type: ignore[no-any-return, no-untyped-call]


def _blocks(images: Tensor, captions: Tensor) -> list[slice]:
    band = max(1, _NUMBERS_PER_BLOCK // max(1, captions.numel()))
    return [slice(start, start + band) for start in range(0, images.shape[0], band)]


class _Order(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, images: Tensor, captions: Tensor) -> Tensor:
        violations = images.new_empty(images.shape[0], captions.shape[0])
        for rows in _blocks(images, captions):
            excess = (captions[None] - images[rows, None]).relu_()
            violations[rows] = torch.linalg.vector_norm(excess, dim=-1)
        ctx.save_for_backward(images, captions, violations)
        return -violations

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor]:
        images, captions, violations = ctx.saved_tensors
        scale = torch.where(violations > 0, gradient / violations, 0)  # of max(0, t - v)
        image_gradient, caption_gradient = torch.empty_like(images), torch.zeros_like(captions)
        for rows in _blocks(images, captions):
            pull = (captions[None] - images[rows, None]).relu_() * scale[rows, :, None]
            image_gradient[rows] = pull.sum(dim=1)
            caption_gradient -= pull.sum(dim=0)
        return image_gradient, caption_gradient
