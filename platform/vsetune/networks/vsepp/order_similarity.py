"""Similarity of order embeddings (Vendrov et al. 2016; VSE++): minus the amount by which a caption exceeds an image.

    S_ij = -|max(0, t_j - v_i)|

The B x B x D differences never exist all at once: forward and backward pass process them in blocks of images.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

_NUMBERS_PER_BLOCK = 2**22  # 16 MiB of float32; a matter of memory only


def order_similarity(images: Tensor, captions: Tensor) -> Tensor:
    """(n, m) similarities, at most 0. images: (n, D). captions: (m, D). At a violation of 0 the gradient is 0."""
    band = max(1, _NUMBERS_PER_BLOCK // max(1, captions.numel()))
    blocks = [
        checkpoint(_violations, some, captions, use_reentrant=False, preserve_rng_state=False)
        for some in torch.split(images, band)
    ]
    return -torch.cat(blocks)


def _violations(images: Tensor, captions: Tensor) -> Tensor:
    lengths: Tensor = torch.linalg.vector_norm((captions[None] - images[:, None]).relu(), dim=-1)
    return lengths
