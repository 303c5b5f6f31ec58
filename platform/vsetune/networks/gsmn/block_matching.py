"""Matching every word with every region and back, in blocks of dimensions (GSMN; Liu et al. 2020, section 3.2).

A word attends to the regions, a region to the words; the match of both sides of a block b is the cosine of its own and
the attended vector. The attended vector k = sum of a_j c_j itself is never formed, only what the cosine needs:

    q . k = sum_j a_j (q . c_j)        |k|^2 = a G a,  G = Gram matrix of the contexts in that block

Letters of shapes: N images, C captions, R regions, L words, B blocks, E dimensions of a block. Images stand last, so
that every sum over words or regions runs over long rows of memory.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional

from vsetune.networks.parts.gradients import hand_derived

_SLOPE = 0.1
_SMALLEST = 1e-8
_SMALLEST_SQUARE = 1e-24  # keeps the gradient of a root finite at 0


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
    by_item = parts.reshape(*parts.shape[:2], blocks, -1).transpose(1, 2)
    split = by_item.permute(1, 2, 0, 3).contiguous()
    mask = torch.arange(parts.shape[1], device=lengths.device)[:, None] < lengths
    grams = by_item @ by_item.transpose(2, 3)
    return Side(split, torch.linalg.vector_norm(split, dim=-1), grams, mask)


def matches(
    images: Side, captions: Sequence[Side], scale: float, *, is_kept: bool = False
) -> list[tuple[Tensor, Tensor]]:
    """For each group of captions: matches of regions (B, C, R, N) and of words (B, L, C, N), in [-1, 1].

    Anything where padded. scale: lambda, multiplies the normalised similarities in both softmaxes. The groups are taken
    one by one, and all that is as large as the block similarities (B, L, C, R, N) of a group exists for that one alone;
    is_kept: but for those themselves, when there will be a gradient.
    """
    if not hand_derived():
        return [_matches(images, side, scale) for side in captions]
    groups = [tensor for side in captions for tensor in (side.blocks, side.grams, side.mask)]
    found = _Products.apply(images.blocks, images.grams, images.mask, scale, is_kept, *groups)  # type: ignore[no-untyped-call]
    by_kind = (found[::4], found[1::4], found[2::4], found[3::4])
    return [
        (_cosines(dots, squares, images.norms[:, None]), _cosines(other_dots, other_squares, side.norms[..., None]))
        for side, dots, squares, other_dots, other_squares in zip(captions, *by_kind, strict=True)
    ]


def _matches(images: Side, captions: Side, scale: float) -> tuple[Tensor, Tensor]:
    """`matches` of one group, as automatic differentiation can follow it."""
    raw = _block_similarities(images.blocks, captions.blocks)
    over_words, over_regions = attentions(raw.sum(dim=0), captions.mask, images.mask, scale)
    region_squares = _quadratic_forms(_captions_first(over_words), captions.grams)
    word_squares = _quadratic_forms(_images_first(over_regions), images.grams)
    region_squares = region_squares.view(*region_squares.shape[:2], *images.mask.shape).transpose(0, 1)
    word_squares = word_squares.view(*word_squares.shape[:2], *captions.mask.shape).permute(1, 2, 3, 0)
    return (
        _cosines((raw * over_words).sum(dim=1), region_squares, images.norms[:, None]),
        _cosines((raw * over_regions).sum(dim=3), word_squares, captions.norms[..., None]),
    )


def _quadratic_forms(weights: Tensor, grams: Tensor) -> Tensor:
    """(n, B, X): a G a for every column a of weights (n, P, X); grams: (n, B, P, P)."""
    products = (grams.flatten(1, 2) @ weights).view(*grams.shape[:3], -1)
    return (products * weights[:, None]).sum(dim=2)


def _cosines(dots: Tensor, squares: Tensor, norms: Tensor) -> Tensor:
    return dots / (norms * squares.clamp_min(_SMALLEST**2).sqrt()).clamp_min(_SMALLEST)


def attentions(raw: Tensor, words: Tensor, regions: Tensor, scale: float) -> tuple[Tensor, Tensor]:
    """Weights (L, C, R, N) with which a region attends to words, and a word to regions.

    raw: (L, C, R, N) dot products, 0 where padded. words: (L, C) and regions: (R, N), bool, True for real ones. What is
    attended to is first normalised over those who attend: each word over the regions, each region over the words.
    """
    leaky = functional.leaky_relu(raw, _SLOPE)
    squares = leaky.square()
    to_words = leaky * (scale / (_root(squares.sum(dim=2, keepdim=True)) + _SMALLEST))
    to_regions = leaky * (scale / (_root(squares.sum(dim=0, keepdim=True)) + _SMALLEST))
    return (
        to_words.masked_fill(~words[..., None, None], float("-inf")).softmax(dim=0),
        to_regions.masked_fill(~regions, float("-inf")).softmax(dim=2),
    )


def _root(squares: Tensor) -> Tensor:
    return squares.clamp_min(_SMALLEST_SQUARE).sqrt()


class _Products(torch.autograd.Function):
    """What the cosines of `matches` are made of: q . k and |k|^2 of regions, (B, C, R, N), and of words, (B, L, C, N).

    Of all that is as large as the block similarities, at most those themselves are kept for backward, the rest is made
    again there. A group is small enough for the processor's cache, and one piece of memory serves all groups: this
    takes less time than keeping it.
    """

    @staticmethod
    def forward(
        ctx: Any, regions: Tensor, image_grams: Tensor, is_region: Tensor, scale: float, is_kept: bool,
        *groups: Tensor,
    ) -> tuple[Tensor, ...]:
        """regions: (B, R, N, E); image_grams, is_region: as in `Side`. groups: blocks, grams, mask of each in turn.

        Returns q . k and |k|^2 of the regions, then of the words, of the first group, of the second and so on.
        """
        ctx.save_for_backward(regions, image_grams, is_region, *groups)
        ctx.scale, ctx.kept = scale, []
        is_kept = is_kept and any(ctx.needs_input_grad)
        memory = _Memory(regions, groups[::3])
        found: list[Tensor] = []
        for words, grams, is_word in _in_threes(groups):
            raw = _block_similarities(regions, words) if is_kept else memory.block_similarities(regions, words)
            if is_kept:
                ctx.kept.append(raw)
            over_words, over_regions = attentions(raw.sum(dim=0), is_word, is_region, scale)
            word_dots = torch.mul(raw, over_regions, out=memory.like(raw)).sum(dim=3)
            region_dots = torch.mul(raw, over_words, out=memory.like(raw)).sum(dim=1)
            region_squares = memory.quadratic_forms(_captions_first(over_words), grams)
            word_squares = memory.quadratic_forms(_images_first(over_regions), image_grams)
            found += (region_dots, region_squares.view(*region_squares.shape[:2], *is_region.shape).transpose(0, 1))
            found += (word_dots, word_squares.view(*word_squares.shape[:2], *is_word.shape).permute(1, 2, 3, 0))
        return tuple(found)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        """gradients: of what `forward` returns."""
        regions, image_grams, is_region, *groups = ctx.saved_tensors
        memory, kept, ctx.kept = _Memory(regions, groups[::3]), ctx.kept, []  # changed below: good for one backward
        of_blocks = regions.new_zeros(len(regions), regions.shape[3], is_region.numel())  # (B, E, R N)
        of_image_grams = _like_transposed(image_grams)
        of_groups: list[Tensor | None] = []
        for place, (words, grams, is_word) in enumerate(_in_threes(groups)):
            region_dots, region_squares, word_dots, word_squares = gradients[4 * place : 4 * place + 4]
            region_dots, word_dots = region_dots[:, None], word_dots[:, :, :, None]
            raw = kept[place] if kept else memory.block_similarities(regions, words)
            with torch.enable_grad():
                total = raw.sum(dim=0).requires_grad_()
                attended = attentions(total, is_word, is_region, ctx.scale)
            over_words, over_regions = (weights.detach() for weights in attended)
            of_grams = _like_transposed(grams)
            of_words = memory.form_gradients(
                _captions_first(over_words), grams, region_squares.transpose(0, 1).flatten(2), of_grams
            ).view(len(grams), -1, *is_region.shape).transpose(0, 1)
            of_regions = memory.form_gradients(
                _images_first(over_regions), image_grams, word_squares.permute(3, 0, 1, 2).flatten(2), of_image_grams
            ).view(len(image_grams), -1, *is_word.shape).permute(2, 3, 1, 0)
            of_words = of_words + torch.mul(raw, region_dots, out=memory.like(raw)).sum(dim=0)
            of_regions = of_regions + torch.mul(raw, word_dots, out=memory.like(raw)).sum(dim=0)
            (of_total,) = torch.autograd.grad(attended, total, (of_words, of_regions))
            torch.mul(over_regions, word_dots, out=raw)
            raw.addcmul_(over_words.expand_as(raw), region_dots.expand_as(raw)).add_(of_total)
            of_raw = raw.flatten(3).flatten(1, 2)  # (B, L C, R N)
            of_blocks.baddbmm_(words.flatten(1, 2).mT, of_raw)
            of_groups += ((of_raw @ regions.flatten(1, 2)).view_as(words), _blocks_first(of_grams, grams), None)
        of_regions, of_image_grams = of_blocks.mT.reshape(regions.shape), _blocks_first(of_image_grams, image_grams)
        return of_regions, of_image_grams, None, None, None, *of_groups


class _Memory:
    """Two tensors as large as the block similarities of the largest group, used again by every group."""

    def __init__(self, regions: Tensor, words: Sequence[Tensor]) -> None:
        numbers = regions[..., 0].numel() * max(group[0, ..., 0].numel() for group in words)
        self._similarities: Tensor = regions.new_empty(numbers)
        self._rest: Tensor = regions.new_empty(numbers)

    def block_similarities(self, regions: Tensor, words: Tensor) -> Tensor:
        """(B, L, C, R, N), valid until called again. regions: (B, R, N, E); words: (B, L, C, E)."""
        shape = (*words.shape[:3], *regions.shape[1:3])
        return _block_similarities(regions, words, out=self._similarities[: math.prod(shape)].view(shape))

    def like(self, raw: Tensor) -> Tensor:
        """Unset, of that shape, valid until anything else is called."""
        return self._rest[: raw.numel()].view(raw.shape)

    def quadratic_forms(self, weights: Tensor, grams: Tensor) -> Tensor:
        """(n, B, X): a G a for every column a of weights (n, P, X); grams: (n, B, P, P), symmetric."""
        return self._products(weights, grams).mul_(weights[:, None]).sum(dim=2)

    def form_gradients(self, weights: Tensor, grams: Tensor, gradient: Tensor, of_grams: Tensor) -> Tensor:
        """Gradient of the weights above from that of the forms, (n, B, X); that of the grams is added to of_grams.

        of_grams: (n, P, B P), which is a faster product than (n, B P, P); each P x P is symmetric.
        """
        gradient = gradient[:, :, None]
        products = self._products(weights, grams).mul_(gradient)
        of_weights = products.sum(dim=1).mul_(2)
        torch.mul(weights[:, None], gradient, out=products)
        of_grams.baddbmm_(weights, products.flatten(1, 2).mT)
        return of_weights

    def _products(self, weights: Tensor, grams: Tensor) -> Tensor:
        """(n, B, P, X): G a."""
        shape = (*grams.shape[:3], weights.shape[2])
        products = self._rest[: math.prod(shape)].view(shape)
        torch.bmm(grams.flatten(1, 2), weights, out=products.flatten(1, 2))
        return products


def _block_similarities(regions: Tensor, words: Tensor, *, out: Tensor | None = None) -> Tensor:
    """(B, L, C, R, N). regions: (B, R, N, E); words: (B, L, C, E)."""
    if out is None:
        return (words.flatten(1, 2) @ regions.flatten(1, 2).mT).view(*words.shape[:3], *regions.shape[1:3])
    raw = out
    torch.bmm(words.flatten(1, 2), regions.flatten(1, 2).mT, out=raw.flatten(3).flatten(1, 2))
    return raw


def _in_threes(groups: Sequence[Tensor]) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
    return zip(groups[::3], groups[1::3], groups[2::3], strict=True)


def _like_transposed(grams: Tensor) -> Tensor:
    """(n, P, B P) zeros."""
    return grams.new_zeros(len(grams), grams.shape[3], grams.shape[1] * grams.shape[2])


def _blocks_first(of_grams: Tensor, grams: Tensor) -> Tensor:
    """(n, B, P, P) from (n, P, B P)."""
    return of_grams.view(len(grams), -1, *grams.shape[1:3]).transpose(1, 2)


def _captions_first(weights: Tensor) -> Tensor:
    """(C, L, R N) from (L, C, R, N)."""
    return weights.transpose(0, 1).flatten(2)


def _images_first(weights: Tensor) -> Tensor:
    """(N, R, L C) from (L, C, R, N)."""
    return weights.permute(3, 2, 0, 1).flatten(2).contiguous()
