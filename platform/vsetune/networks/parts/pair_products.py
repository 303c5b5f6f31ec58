"""Products of words with regions for a few pairs of images and captions, without copies of their items.

Letters of shapes: N images, R regions, M captions, L words, D dimensions, P pairs.
"""

from __future__ import annotations

from itertools import chain
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

Pair = tuple[int, int, int]
"""Image, caption, words of the caption."""


def pair_products(regions: Tensor, words: Tensor, lengths: list[int], rows: Tensor, columns: Tensor) -> Tensor:
    """(P, L, R): w . v of all words of the captions columns (P,) with all regions of the images rows (P,), 0 where
    padded. Differentiable once, on a CPU.

    regions: (N, R, D); words: (M, L, D); lengths: words of each caption. Or with blocks of dimensions, (N, B, R, E) and
    (M, B, L, E), whose products are (P, B, L, R).
    """
    groups = [(len(rows), words.shape[-2])]
    return _Products.apply(regions, words, _pairs(lengths, rows, columns), groups)[0]  # type: ignore[no-any-return, no-untyped-call]


def grouped_pair_products(
    regions: Tensor, words: Tensor, lengths: list[int], rows: Tensor, columns: Tensor, *, at_once: int
) -> tuple[Tensor, ...]:
    """The same, `at_once` pairs after the other, each group without the padding behind its longest caption."""
    pairs = _pairs(lengths, rows, columns)
    some_pairs = (pairs[first : first + at_once] for first in range(0, len(pairs), at_once))
    groups = [(len(some), max(length for _, _, length in some)) for some in some_pairs]
    return _Products.apply(regions, words, pairs, groups)  # type: ignore[no-any-return, no-untyped-call]


def _pairs(lengths: list[int], rows: Tensor, columns: Tensor) -> list[Pair]:
    return [(row, column, lengths[column]) for row, column in zip(rows.tolist(), columns.tolist(), strict=True)]


class _Products(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, regions: Tensor, words: Tensor, pairs: list[Pair], groups: list[tuple[int, int]]
    ) -> tuple[Tensor, ...]:
        """groups: how many pairs, and for how many words there is room."""
        ctx.save_for_backward(regions, words)
        ctx.pairs = pairs
        found = tuple(
            words.new_zeros(count, *words.shape[1:-2], longest, regions.shape[-2]) for count, longest in groups
        )
        for pair, (row, column, length) in zip(chain.from_iterable(found), pairs, strict=True):
            torch.matmul(words[column, ..., :length, :], regions[row].mT, out=pair[..., :length, :])
        return found

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor, None, None]:
        """Each pair adds to what its image and its caption have from others."""
        regions, words = ctx.saved_tensors
        of_regions, of_words = torch.zeros_like(regions), torch.zeros_like(words)
        # torch takes block by block where what a product is added to has gaps
        real_words = {
            column: words.new_zeros(*words.shape[1:-2], length, words.shape[-1]) for _, column, length in ctx.pairs
        }
        for pair, (row, column, length) in zip(chain.from_iterable(gradients), ctx.pairs, strict=True):
            real = pair[..., :length, :]
            _add_product(of_regions[row], real.mT, words[column, ..., :length, :])
            _add_product(real_words[column], real, regions[row])
        for column, real in real_words.items():
            of_words[column, ..., : real.shape[-2], :] = real
        return of_regions, of_words, None, None


def _add_product(total: Tensor, left: Tensor, right: Tensor) -> None:
    if total.ndim == 2:
        total.addmm_(left, right)
    else:
        total.baddbmm_(left, right)
