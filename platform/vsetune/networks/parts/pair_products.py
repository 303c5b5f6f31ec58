"""Products of words with regions for a few pairs of images and captions, which nothing is copied for.

Letters of shapes: N images, R regions, M captions, L words, D dimensions, P pairs.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable


def pair_products(regions: Tensor, words: Tensor, lengths: list[int], rows: Tensor, columns: Tensor) -> Tensor:
    """(P, L, R): w . v of all words of the captions columns (P,) with all regions of the images rows (P,), 0 where
    padded. Differentiable once, on a CPU.

    regions: (N, R, D); words: (M, L, D); lengths: words of each caption. Or with blocks of dimensions, (N, B, R, E) and
    (M, B, L, E), whose products are (P, B, L, R).
    """
    pairs = list(zip(rows.tolist(), columns.tolist(), (lengths[column] for column in columns.tolist()), strict=True))
    return _Products.apply(regions, words, pairs)  # type: ignore[no-any-return, no-untyped-call]


class _Products(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, regions: Tensor, words: Tensor, pairs: list[tuple[int, int, int]]) -> Tensor:
        ctx.save_for_backward(regions, words)
        ctx.pairs = pairs
        found = words.new_zeros(len(pairs), *words.shape[1:-1], regions.shape[-2])
        for pair, (row, column, length) in zip(found, pairs, strict=True):
            torch.matmul(words[column, ..., :length, :], regions[row].mT, out=pair[..., :length, :])
        return found

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor, None]:
        """Each pair adds to what its image and its caption have from others."""
        regions, words = ctx.saved_tensors
        of_regions, of_words = torch.zeros_like(regions), torch.zeros_like(words)
        for pair, (row, column, length) in zip(gradient, ctx.pairs, strict=True):
            real = pair[..., :length, :]
            _add_product(of_regions[row], real.mT, words[column, ..., :length, :])
            _add_product(of_words[column, ..., :length, :], real, regions[row])
        return of_regions, of_words, None


def _add_product(total: Tensor, left: Tensor, right: Tensor) -> None:
    if total.ndim == 2:
        total.addmm_(left, right)
    else:
        total.baddbmm_(left, right)
