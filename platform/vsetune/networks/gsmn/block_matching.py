"""Matching every word with every region and back, in blocks of dimensions (GSMN; Liu et al. 2020, section 3.2).

A word attends to the regions, a region to the words; the match of both sides of a block b is the cosine of its own and
the attended vector. The attended vector k = sum of a_j c_j itself is never formed, only what the cosine needs:

    q . k = sum_j a_j (q . c_j)        |k|^2 = a G a,  G = Gram matrix of the contexts in that block

Letters of shapes: N images, C captions, R regions, L words, B blocks, E dimensions of a block. Images stand last, so
that every sum over words or regions runs over long rows of memory.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from vsetune.networks.parts.pair_products import grouped_pair_products

KEPT_PER_SIMILARITY = 3
"""Numbers that `matches` stores by default for its backward pass: a block similarity and both products with Gram
matrices."""

_PAIRS_AT_ONCE = 32
"""Captions of a group, of similar length: little is computed for padding, and their intermediate values (2 MB at 36
regions, 16 blocks and 29 words) stay in the processor's cache."""

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
    images: Side, captions: Sequence[Side], scale: float, *, is_kept: bool = True
) -> list[tuple[Tensor, Tensor]]:
    """For each group of captions: matches of regions (B, C, R, N) and of words (B, L, C, N), in [-1, 1].

    Arbitrary where padded. scale: lambda, multiplies the normalised similarities in both softmaxes. Groups are
    processed one by one: without a gradient, tensors as large as the block similarities (B, L, C, R, N) of a group
    exist for that group alone. With a gradient, KEPT_PER_SIMILARITY are stored; not is_kept: none, and all is computed
    twice.
    """
    if is_kept:
        return [_matches(images, side, scale) for side in captions]
    return [
        checkpoint(_matches, images, side, scale, use_reentrant=False, preserve_rng_state=False) for side in captions
    ]


def _matches(images: Side, captions: Side, scale: float) -> tuple[Tensor, Tensor]:
    raw = _block_similarities(images.blocks, captions.blocks)
    over_words, over_regions = attentions(raw.sum(dim=0), captions.mask, images.mask, scale)
    # R N and L C as one dimension each
    region_squares = _quadratic_forms(over_words.transpose(0, 1).flatten(2), captions.grams)
    word_squares = _quadratic_forms(over_regions.permute(3, 2, 0, 1).flatten(2).contiguous(), images.grams)
    region_squares = region_squares.view(*region_squares.shape[:2], *images.mask.shape).transpose(0, 1)
    word_squares = word_squares.view(*word_squares.shape[:2], *captions.mask.shape).permute(1, 2, 3, 0)
    region_dots, word_dots = (raw * over_words).sum(dim=1), _times(raw, over_regions).sum(dim=3)
    return (
        _cosines(region_dots, region_squares, images.norms[:, None]),
        _cosines(word_dots, word_squares, captions.norms[..., None]),
    )


@dataclass(frozen=True)
class PairSide:
    """Regions of N images or words of M captions, prepared for the matches of few pairs.

    blocks: (n, B, P, E), zero where padded. norms: (n, B, P). grams: (n, B, P, P). mask: (n, P) bool, True for real
    parts.
    """

    blocks: Tensor
    norms: Tensor
    grams: Tensor
    mask: Tensor


def prepared_for_pairs(parts: Tensor, lengths: Tensor, blocks: int) -> PairSide:
    """As `prepared`."""
    split = parts.reshape(*parts.shape[:2], blocks, -1).transpose(1, 2).contiguous()
    mask = torch.arange(parts.shape[1], device=lengths.device) < lengths[:, None]
    return PairSide(split, torch.linalg.vector_norm(split, dim=-1), split @ split.mT, mask)


def pair_matches(
    images: PairSide, captions: PairSide, rows: Tensor, columns: Tensor, scale: float
) -> Iterator[tuple[Tensor, Tensor]]:
    """As `matches` of the images rows (P,) with the captions columns (P,), longest captions first: for each of some
    groups of the pairs, in order, (pairs, B, R) and (pairs, B, words of the longest)."""
    lengths, grams = captions.mask.sum(dim=1).tolist(), images.grams.index_select(0, rows)
    products = grouped_pair_products(images.blocks, captions.blocks, lengths, rows, columns, at_once=_PAIRS_AT_ONCE)
    parts = (torch.split(each, _PAIRS_AT_ONCE) for each in (rows, columns, grams))
    for raw, row, column, region_grams in zip(products, *parts, strict=True):
        longest = raw.shape[2]
        is_word, is_region = captions.mask[column, :longest], images.mask[row]
        word_grams = captions.grams[..., :longest, :longest].index_select(0, column)
        last = raw.sum(dim=1).permute(1, 2, 0)[:, None]  # (L, 1, R, P)
        found = attentions(last, is_word.T[:, None, None], is_region.T, scale)
        over_words, over_regions = (weights.squeeze(1).permute(2, 0, 1) for weights in found)  # (P, L, R)
        region_squares = _quadratic_forms(over_words, word_grams)
        word_squares = _quadratic_forms(over_regions.mT, region_grams)
        region_dots, word_dots = (raw * over_words[:, None]).sum(dim=2), (raw * over_regions[:, None]).sum(dim=3)
        yield (
            _cosines(region_dots, region_squares, images.norms[row]),
            _cosines(word_dots, word_squares, captions.norms[column, :, :longest]),
        )


def _block_similarities(regions: Tensor, words: Tensor) -> Tensor:
    """(B, L, C, R, N). regions: (B, R, N, E); words: (B, L, C, E)."""
    flat = words.flatten(1, 2) @ regions.flatten(1, 2).mT
    return flat.view(*words.shape[:3], *regions.shape[1:3])


def _quadratic_forms(weights: Tensor, grams: Tensor) -> Tensor:
    """(n, B, X): a G a for every column a of weights (n, P, X); grams: (n, B, P, P)."""
    products = (grams.flatten(1, 2) @ weights).view(*grams.shape[:3], -1)
    return _times(products, weights[:, None]).sum(dim=2)


def _times(values: Tensor, factors: Tensor) -> Tensor:
    """The products, which overwrite values that are no longer needed where there is no gradient."""
    return values * factors if torch.is_grad_enabled() else values.mul_(factors)


def _cosines(dots: Tensor, squares: Tensor, norms: Tensor) -> Tensor:
    return dots / (norms * squares.clamp_min(_SMALLEST**2).sqrt()).clamp_min(_SMALLEST)


def attentions(raw: Tensor, words: Tensor, regions: Tensor, scale: float) -> tuple[Tensor, Tensor]:
    """Weights (L, C, R, N) with which a region attends to words, and a word to regions.

    raw: (L, C, R, N) dot products, 0 where padded. words: (L, C), or (L, 1, 1, N), and regions: (R, N), bool, True for
    real ones. The attended items are first normalised over the attending ones: each word over the regions, each region
    over the words.
    """
    if words.ndim == 2:
        words = words[..., None, None]
    leaky = functional.leaky_relu(raw, _SLOPE)
    squares = leaky.square()
    to_words = leaky * (scale / (_root(squares.sum(dim=2, keepdim=True)) + _SMALLEST))
    to_regions = leaky * (scale / (_root(squares.sum(dim=0, keepdim=True)) + _SMALLEST))
    return (
        to_words.masked_fill(~words, float("-inf")).softmax(dim=0),
        to_regions.masked_fill(~regions, float("-inf")).softmax(dim=2),
    )


def _root(squares: Tensor) -> Tensor:
    return squares.clamp_min(_SMALLEST_SQUARE).sqrt()
