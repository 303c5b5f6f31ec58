"""Similarity vectors (SGRAF): n(W (k - w)^2 + b) of every image with every word, k a mix of the image's regions.

Letters of shapes: N images, R regions, T words, D dimensions, S similarity dimensions.

They are computed in tiles of images. For the backward pass 2 N x T x D numbers are stored, the differences and their
squares, or N x T x (R + S) where they are computed again.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from vsetune.networks.network_base import unit_length
from vsetune.networks.parts.network_devices import numbers_at_once

# of a tile's differences, a matter of memory and speed only: 4 MiB of float32 on a CPU, 512 MiB on a GPU
_NUMBERS_PER_TILE_CPU, _NUMBERS_PER_TILE = 2**20, 2**27


def similarity_vectors(
    weights: Tensor, regions: Tensor, words: Tensor, matrix: Tensor, bias: Tensor | None, *, is_kept: bool = True,
    added: float = 0.0,
) -> Tensor:
    """(N, T, S) of unit length, or 0: n(matrix (k - w)^2 + bias), k_nt = sum_r weights_ntr regions_nr, squares by
    element.

    weights: (N, T, R); regions: (N, R, D); words: (T, D), or (N, T, D) where each image has words of its own; matrix:
    (S, D); bias: (S,) or None. added: as of `unit_length`. is_kept: or else all is computed twice, which makes a step
    1.3 times as long.
    """
    numbers = numbers_at_once(words, cpu=_NUMBERS_PER_TILE_CPU, gpu=_NUMBERS_PER_TILE)
    images = max(1, numbers // max(1, words.shape[-2] * words.shape[-1]))
    theirs = torch.split(words, images) if words.ndim == 3 else [words] * math.ceil(len(weights) / images)
    tiles = [
        (*tile, matrix, bias, added)
        for tile in zip(torch.split(weights, images), torch.split(regions, images), theirs, strict=True)
    ]
    if is_kept:
        return torch.cat([_vectors(*tile) for tile in tiles])
    return torch.cat([checkpoint(_vectors, *tile, use_reentrant=False, preserve_rng_state=False) for tile in tiles])


def kept_numbers(images: int, words: int, size: int) -> int:
    """Numbers that `similarity_vectors` stores, for D = size."""
    return 2 * images * words * size


def _vectors(
    weights: Tensor, regions: Tensor, words: Tensor, matrix: Tensor, bias: Tensor | None, added: float
) -> Tensor:
    """(n, T, S)."""
    differences = torch.baddbmm(words.expand(len(weights), *words.shape[-2:]), weights, regions, beta=-1)
    return unit_length(functional.linear(differences.square(), matrix, bias), added=added)
