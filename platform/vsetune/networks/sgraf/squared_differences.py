"""Similarity vectors (SGRAF): n(W (k - w)^2 + b) of every image with every word, k a mix of the image's regions.

Letters of shapes: N images, R regions, T words, D dimensions, S similarity dimensions.

The N x T x D differences are never held at once: both passes go through them in tiles of images, and the backward pass
forms them again, which costs R / S of the map itself. What is kept has N x T x (R + S) numbers.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn.functional import linear

from vsetune.networks.network_base import unit_length
from vsetune.networks.parts.cross_attention import inverse_length
from vsetune.networks.parts.gradients import hand_derived

# of a tile's differences, a matter of memory and speed only: 4 MiB of float32 on a CPU, 512 MiB on a GPU
_NUMBERS_PER_TILE_CPU, _NUMBERS_PER_TILE = 2**20, 2**27


def similarity_vectors(
    weights: Tensor, regions: Tensor, words: Tensor, matrix: Tensor, bias: Tensor | None
) -> Tensor:
    """(N, T, S) of unit length, or 0: n(matrix (k - w)^2 + bias), k_nt = sum_r weights_ntr regions_nr, squares by
    element.

    weights: (N, T, R); regions: (N, R, D); words: (T, D); matrix: (S, D); bias: (S,) or None. As with `unit_length` a
    vector of 0 gets no gradient.
    """
    if bias is None:
        bias = matrix.new_zeros(matrix.shape[0])
    if not hand_derived():
        tiles = _tiles(len(weights), words)
        return torch.cat([_vectors(weights[rows], regions[rows], words, matrix, bias) for rows in tiles])
    return _SimilarityVectors.apply(weights, regions, words, matrix, bias)  # type: ignore[no-any-return, no-untyped-call]


def _tiles(images: int, words: Tensor) -> Iterator[slice]:
    numbers = _NUMBERS_PER_TILE_CPU if words.device.type == "cpu" else _NUMBERS_PER_TILE
    band = max(1, numbers // max(1, words.numel()))
    return (slice(start, start + band) for start in range(0, images, band))


def _differences(weights: Tensor, regions: Tensor, words: Tensor) -> Tensor:
    """(n, T, D) k - w."""
    return torch.baddbmm(words.expand(len(weights), -1, -1), weights, regions, beta=-1)


def _vectors(weights: Tensor, regions: Tensor, words: Tensor, matrix: Tensor, bias: Tensor) -> Tensor:
    return unit_length(linear(_differences(weights, regions, words).square(), matrix, bias))


class _SimilarityVectors(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, weights: Tensor, regions: Tensor, words: Tensor, matrix: Tensor, bias: Tensor) -> Tensor:
        vectors = words.new_empty(*weights.shape[:2], matrix.shape[0])
        inverse = words.new_empty(*weights.shape[:2], 1)
        for rows in _tiles(len(weights), words):
            squares = _differences(weights[rows], regions[rows], words).square_()
            torch.addmm(bias, squares.flatten(end_dim=1), matrix.T, out=vectors[rows].flatten(end_dim=1))
            inverse[rows] = inverse_length(vectors[rows].square().sum(dim=-1, keepdim=True))
            vectors[rows] *= inverse[rows]
        ctx.save_for_backward(weights, regions, words, matrix, vectors, inverse)
        return vectors

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, ...]:
        weights, regions, words, matrix, vectors, inverse = ctx.saved_tensors
        of_weights, of_regions = torch.empty_like(weights), torch.empty_like(regions)
        of_words, of_matrix, of_bias = torch.zeros_like(words), torch.zeros_like(matrix), matrix.new_zeros(len(matrix))
        twice = 2 * matrix
        for rows in _tiles(len(weights), words):
            # of m / |m| = n: (g - n (n.g)) / |m|
            along = (vectors[rows] * gradient[rows]).sum(dim=-1, keepdim=True)
            arriving = torch.addcmul(gradient[rows], vectors[rows], along, value=-1).mul_(inverse[rows])
            arriving = arriving.flatten(end_dim=1)
            of_bias += arriving.sum(dim=0)
            differences = _differences(weights[rows], regions[rows], words)
            of_matrix.addmm_(arriving.T, differences.square().flatten(end_dim=1))
            # d/dx of m x^2 is 2 m x
            pull = (arriving @ twice).view_as(differences).mul_(differences)
            of_words -= pull.sum(dim=0)
            torch.bmm(pull, regions[rows].mT, out=of_weights[rows])
            torch.bmm(weights[rows].mT, pull, out=of_regions[rows])
        return of_weights, of_regions, of_words, of_matrix, of_bias
