"""Matching every word with every region and back, in blocks of dimensions (GSMN; Liu et al. 2020, section 3.2).

A word attends to the regions, a region to the words; the match of both sides of a block b is the cosine of its own and
the attended vector. The attended vector k = sum of a_j c_j itself is never formed, only what the cosine needs:

    q . k = sum_j a_j (q . c_j)        |k|^2 = a G a,  G = Gram matrix of the contexts in that block

Letters of shapes: N images, C captions, R regions, L words, B blocks, E dimensions of a block. Batches stand last, so
that every sum over words or regions runs over long rows of memory.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional

_SLOPE = 0.1
_SMALLEST = 1e-8


@dataclass(frozen=True)
class Side:
    """Regions of N images or words of C captions, P parts each, prepared for matching.

    blocks: (B, P, n, E), zero where padded. norms: (B, P, n) lengths of the blocks. grams: (n, B, P, P). mask: (P, n)
    bool, True for real parts.
    """

    blocks: Tensor
    norms: Tensor
    grams: Tensor
    mask: Tensor


def prepared(parts: Tensor, lengths: Tensor, blocks: int) -> Side:
    """parts: (n, P, D), zero where padded; lengths: (n,) real parts."""
    split = parts.reshape(*parts.shape[:2], blocks, -1).permute(2, 1, 0, 3).contiguous()
    by_item = parts.reshape(*parts.shape[:2], blocks, -1).transpose(1, 2)
    mask = torch.arange(parts.shape[1], device=lengths.device)[:, None] < lengths
    grams = by_item @ by_item.transpose(2, 3)
    return Side(split, torch.linalg.vector_norm(split, dim=-1), grams, mask)


def matches(images: Side, captions: Side, scale: float) -> tuple[Tensor, Tensor]:
    """Matches of regions (B, R, N, C) and of words (B, N, L, C), in [-1, 1], anything where padded.

    scale: lambda, multiplies the normalised similarities in both softmaxes.
    """
    _, regions, number, _ = images.blocks.shape
    words = captions.blocks.shape[1]
    raw = images.blocks.flatten(1, 2) @ captions.blocks.flatten(1, 2).transpose(1, 2)
    raw = raw.reshape(-1, regions, number, words, raw.shape[2] // words)  # (B, R, N, L, C)
    over_words, over_regions = attentions(raw.sum(dim=0), images.mask, captions.mask, scale)
    region_norms = attended_norms(over_words.permute(3, 2, 0, 1), captions.grams).permute(1, 2, 3, 0)
    word_norms = attended_norms(over_regions.permute(1, 0, 2, 3), images.grams).permute(1, 0, 2, 3)
    region_dots = (raw * over_words).sum(dim=3)
    word_dots = (raw * over_regions).sum(dim=1)
    return (
        region_dots / (images.norms[..., None] * region_norms).clamp_min(_SMALLEST),
        word_dots / (captions.norms[:, None] * word_norms).clamp_min(_SMALLEST),
    )


def attentions(raw: Tensor, regions: Tensor, words: Tensor, scale: float) -> tuple[Tensor, Tensor]:
    """Weights (R, N, L, C) with which a region attends to words, and a word to regions.

    raw: (R, N, L, C) dot products, 0 where padded. regions: (R, N) and words: (L, C), bool, True for real ones. What is
    attended to is first normalised over those who attend: each word over the regions, each region over the words.
    """
    leaky = functional.leaky_relu(raw, _SLOPE)
    to_words = scale * leaky / (torch.linalg.vector_norm(leaky, dim=0, keepdim=True) + _SMALLEST)
    to_regions = scale * leaky / (torch.linalg.vector_norm(leaky, dim=2, keepdim=True) + _SMALLEST)
    return (
        to_words.masked_fill(~words, float("-inf")).softmax(dim=2),
        to_regions.masked_fill(~regions[..., None, None], float("-inf")).softmax(dim=0),
    )


def attended_norms(weights: Tensor, grams: Tensor) -> Tensor:
    """(n, B, ...): lengths of the attended vectors, at least 1e-8. weights: (n, P, two axes); grams: (n, B, P, P)."""
    squares = quadratic_forms(weights.flatten(2), grams)
    return squares.clamp_min(_SMALLEST**2).sqrt().reshape(*squares.shape[:2], *weights.shape[2:])


def quadratic_forms(weights: Tensor, grams: Tensor) -> Tensor:
    """(n, B, X): a G a for every column a of weights (n, P, X); grams: (n, B, P, P), symmetric.

    G a, as large as the block similarities, is computed again for backward instead of kept; autograd would keep it.
    """
    return _QuadraticForms.apply(weights, grams)  # type: ignore[no-any-return, no-untyped-call]


class _QuadraticForms(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, weights: Tensor, grams: Tensor) -> Tensor:
        ctx.save_for_backward(weights, grams)
        return _products(weights, grams).mul_(weights[:, None]).sum(dim=2)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor | None]:
        weights, grams = ctx.saved_tensors
        gradient = gradient[:, :, None]
        of_weights = 2 * _products(weights, grams).mul_(gradient).sum(dim=1)
        if not ctx.needs_input_grad[1]:
            return of_weights, None
        of_grams = (weights[:, None] * gradient).flatten(1, 2) @ weights.transpose(1, 2)
        return of_weights, of_grams.reshape(grams.shape)


def _products(weights: Tensor, grams: Tensor) -> Tensor:
    """(n, B, P, X): G a."""
    return (grams.flatten(1, 2) @ weights).reshape(*grams.shape[:3], -1)
