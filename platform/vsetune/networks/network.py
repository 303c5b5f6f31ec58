"""What every network is: two towers into one space."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Literal

import torch
from torch import Tensor, nn

_SHORTEST = 1e-8


class Network(nn.Module, ABC):
    """Embeds images and captions in one space of `embedding_size` dimensions (D).

    Outputs are float32 or wider, also under autocast. In evaluation mode an embedding depends on its own image or
    caption alone, never on its batch nor on padding.
    """

    kind: Literal["embedding"] = "embedding"
    embedding_size: int

    @abstractmethod
    def encode_images(self, features: Tensor, region_counts: Tensor) -> Tensor:
        """(images, D). features: (images, regions, width); region_counts: (images,) rows that are real, from 1."""

    @abstractmethod
    def encode_captions(self, tokens: Tensor, lengths: Tensor) -> Tensor:
        """(captions, D). tokens: (captions, words) ids, start and end included; lengths: (captions,), from 1."""

    def similarity(self, images: Tensor, captions: Tensor) -> Tensor:
        """(images, captions) dot products, in float32 or wider: cosines where the embeddings have unit length."""
        with torch.autocast(images.device.type, enabled=False):
            return at_least_float32(images) @ at_least_float32(captions).T


def at_least_float32(values: Tensor) -> Tensor:
    """The values in float32; float64 stays."""
    return values if values.dtype == torch.float64 else values.float()


def unit_length(vectors: Tensor) -> Tensor:
    """Vectors along the last axis divided by their L2 norm; a zero vector stays zero and gets no gradient.

    The references either divide by zero here or add an epsilon, through which a zero vector receives a gradient of
    1/epsilon, and with clipping that one vector becomes the whole step.
    """
    vectors = at_least_float32(vectors)
    norms = torch.linalg.vector_norm(vectors, dim=-1, keepdim=True)
    return torch.where(norms > _SHORTEST, vectors / norms.clamp_min(_SHORTEST), vectors.new_zeros(()))


def region_mask(region_counts: Tensor, regions: int) -> Tensor:
    """(images, regions) bool, True for real regions. A count below 1 is read as 1: one region, all zero."""
    positions = torch.arange(regions, device=region_counts.device)
    return positions < region_counts.clamp_min(1)[:, None]
