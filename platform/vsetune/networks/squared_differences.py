"""Maps of squared differences (SGRAF): W (k - w)^2 + b of every image with every word, k a mix of the image's regions.

Letters of shapes: N images, R regions, T words, D dimensions, S similarity dimensions.

The N x T x D differences are never held at once: both passes go through them in tiles of images, and the backward pass
forms them again, which costs R / S of the map itself. What is kept has N x T x R numbers.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

# of a tile's differences, a matter of memory and speed only: 4 MiB of float32 on a CPU, 512 MiB on a GPU
_NUMBERS_PER_TILE_CPU, _NUMBERS_PER_TILE = 2**20, 2**27


def mapped_squared_differences(
    weights: Tensor, regions: Tensor, words: Tensor, matrix: Tensor, bias: Tensor | None
) -> Tensor:
    """(N, T, S): matrix (k - w)^2 + bias with k_nt = sum_r weights_ntr regions_nr, squares taken element by element.

    weights: (N, T, R); regions: (N, R, D); words: (T, D); matrix: (S, D); bias: (S,) or None.
    """
    if bias is None:
        bias = matrix.new_zeros(matrix.shape[0])
    return _Mapped.apply(weights, regions, words, matrix, bias)  # type: ignore[no-any-return, no-untyped-call]


def _tiles(images: int, words: Tensor) -> Iterator[slice]:
    numbers = _NUMBERS_PER_TILE_CPU if words.device.type == "cpu" else _NUMBERS_PER_TILE
    band = max(1, numbers // max(1, words.numel()))
    return (slice(start, start + band) for start in range(0, images, band))


def _differences(weights: Tensor, regions: Tensor, words: Tensor) -> Tensor:
    """(n, T, D) k - w."""
    return torch.baddbmm(words.expand(len(weights), -1, -1), weights, regions, beta=-1)


class _Mapped(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, weights: Tensor, regions: Tensor, words: Tensor, matrix: Tensor, bias: Tensor) -> Tensor:
        mapped = words.new_empty(*weights.shape[:2], matrix.shape[0])
        for rows in _tiles(len(weights), words):
            squares = _differences(weights[rows], regions[rows], words).square_()
            torch.addmm(bias, squares.flatten(end_dim=1), matrix.T, out=mapped[rows].flatten(end_dim=1))
        ctx.save_for_backward(weights, regions, words, matrix)
        return mapped

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, ...]:
        weights, regions, words, matrix = ctx.saved_tensors
        gradient = gradient.contiguous()
        of_weights, of_regions = torch.empty_like(weights), torch.empty_like(regions)
        of_words, of_matrix = torch.zeros_like(words), torch.zeros_like(matrix)
        for rows in _tiles(len(weights), words):
            differences = _differences(weights[rows], regions[rows], words)
            arriving = gradient[rows].flatten(end_dim=1)
            of_matrix.addmm_(arriving.T, differences.square().flatten(end_dim=1))
            # d/dx of m x^2 is 2 m x
            pull = (arriving @ (2 * matrix)).view_as(differences).mul_(differences)
            of_words -= pull.sum(dim=0)
            of_weights[rows] = pull @ regions[rows].mT
            of_regions[rows] = weights[rows].mT @ pull
        return of_weights, of_regions, of_words, of_matrix, gradient.sum(dim=(0, 1))
