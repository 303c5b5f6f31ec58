"""Attention between words and regions (SCAN; SGRAF), for blocks of captions or for a few pairs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Literal

import torch
from torch import Tensor
from torch.nn.functional import leaky_relu

from vsetune.networks.encoded import Encoded
from vsetune.networks.network_base import at_least_float32, region_mask, word_mask
from vsetune.networks.parts.network_devices import beside

WORDS, REGIONS = 1, 3
"""Axes of (C, L, N, R) products."""

_SHORTEST_SQUARED = 1e-16
_SMALLEST_SQUARED = 1e-36
"""Keeps the gradient of a root finite at 0; negligible beside the number that it is added to."""


@dataclass(frozen=True)
class Attention:
    """How products of queries and contexts become weights.

    u = products clipped below 0 (slope `leak`), each context at unit length over the queries; weights are the softmax
    of scale * u over the contexts. Other `normalization`: one of the two, a softmax over the queries, neither. added:
    to the length of a context (`unit_length`).
    """

    scale: float
    leak: float = 0.1
    normalization: Literal["clipped_l2", "clipped", "l2", "softmax", "none"] = "clipped_l2"
    added: float = 0.0

    def of_words(self, products: Tensor, is_word: Tensor, is_region: Tensor | None) -> Tensor:
        """(C, L, N, R): words are queries, weights over regions sum to 1. Rows of padded words mean nothing.

        products: (C, L, N, R), 0 where padded; is_word: (C, L); is_region: (N, R), None where all are real.
        """
        strengths = self._strengths(products, WORDS, is_word[:, :, None, None])
        if is_region is not None:
            strengths = strengths.masked_fill(~is_region, float("-inf"))
        return strengths.softmax(dim=REGIONS)

    def of_regions(self, products: Tensor, is_word: Tensor, is_region: Tensor | None) -> Tensor:
        """(C, L, N, R): regions are queries, weights over words sum to 1. Columns of padded regions mean nothing."""
        strengths = self._strengths(products, REGIONS, is_region)
        return strengths.masked_fill(~is_word[:, :, None, None], float("-inf")).softmax(dim=WORDS)

    def _strengths(self, products: Tensor, queries: int, is_query: Tensor | None) -> Tensor:
        """scale * u. Padded queries are 0 in the products, so they do not change a length."""
        if self.normalization == "softmax":
            hidden = products if is_query is None else products.masked_fill(~is_query, float("-inf"))
            return self.scale * hidden.softmax(dim=queries)
        if self.normalization in ("clipped_l2", "clipped"):
            products = leaky_relu(products, self.leak)
        if self.normalization in ("clipped", "none"):
            return self.scale * products
        squared = products.square().sum(dim=queries, keepdim=True)
        return products * (self.scale * inverse_length(squared, added=self.added))


def word_attention(attention: Attention, images: Encoded, captions: Encoded) -> Tensor:
    """(N, M, L, R) weights with which words attend to regions, for `Network.attention`."""
    with torch.autocast(images.device.type, enabled=False):
        regions, words = at_least_float32(images.vectors), at_least_float32(captions.vectors)
        weights = attention.of_words(products_of(words, regions), word_mask_of(captions), region_mask_of(images))
    return weights.permute(2, 0, 1, 3)


def inverse_length(squared: Tensor, *, added: float = 0.0) -> Tensor:
    """1 / (length + added) from squared lengths; 0, and no gradient, where the length is 0 and nothing is added (see
    `unit_length`)."""
    if added:
        return (squared.clamp_min(_SMALLEST_SQUARED).sqrt() + added).reciprocal()
    inverse = squared.clamp_min(_SHORTEST_SQUARED).rsqrt()
    return torch.where(squared <= _SHORTEST_SQUARED, squared.new_zeros(()), inverse)


def products_of(words: Tensor, regions: Tensor) -> Tensor:
    """(C, L, N, R) dot products. words: (C, L, D); regions: (N, R, D)."""
    flat = words.flatten(end_dim=1) @ regions.flatten(end_dim=1).T
    return flat.view(*words.shape[:2], *regions.shape[:2])


def squared_region_lengths(weights: Tensor, regions_gram: Tensor) -> Tensor:
    """(N, C * L): |sum_r w_r v_r|^2 = w' G w of every word's weights, without forming the D-sized sum.

    weights: (N, C * L, R); regions_gram: (N, R, R) products of an image's regions.
    """
    return ((weights @ regions_gram) * weights).sum(dim=-1)


def region_mask_of(images: Encoded) -> Tensor | None:
    """(N, R) bool, True for real regions; None where all are, which saves work."""
    assert images.lengths is not None
    regions = images.vectors.shape[1]
    if bool((images.lengths_on_host >= regions).all()):
        return None
    return region_mask(images.lengths, regions)


def word_mask_of(captions: Encoded) -> Tensor:
    """(M, L) bool, True for real words."""
    assert captions.lengths is not None
    return word_mask(captions.lengths, captions.vectors.shape[1])


@dataclass(frozen=True)
class CaptionBlocks:
    """Captions longest first, cut into blocks of about `words_per_block` words, each padded to its own longest.

    Captions of like length share a block, so little is computed for padding.
    """

    captions: Encoded
    words_per_block: int

    def __iter__(self) -> Iterator[Encoded]:
        order = self._order()
        lengths_on_host = self.captions.lengths_on_host[order]
        ranked = self.captions[beside(order, self.captions.vectors)]
        assert ranked.lengths is not None
        sizes, longest = self._cuts(lengths_on_host.tolist())
        # one split for all blocks: its backward pass is one concatenation, that of slices a sum over full copies
        wholes = torch.split(ranked.whole, sizes) if ranked.whole is not None else [None] * len(sizes)
        parts = (torch.split(ranked.vectors, sizes), torch.split(ranked.lengths, sizes), wholes, longest)
        here = torch.split(lengths_on_host, sizes)
        for vectors, lengths, whole, most, host in zip(*parts, here, strict=True):
            yield replace(ranked, vectors=vectors[:, :most], lengths=lengths, whole=whole, host_lengths=host)

    def columns_of(self, scores: list[Tensor]) -> Tensor:
        """(N, M) scores in the order of the captions. scores: (N, C) of every block."""
        joined = torch.cat(scores, dim=1)
        return joined.index_select(1, beside(self._order().argsort(), joined))

    def _order(self) -> Tensor:
        """On the host."""
        return self.captions.lengths_on_host.argsort(descending=True, stable=True)

    def _cuts(self, lengths: list[int]) -> tuple[list[int], list[int]]:
        sizes, longest, start = [], [], 0
        while start < len(lengths):
            longest.append(max(1, lengths[start]))
            sizes.append(min(max(1, self.words_per_block // longest[-1]), len(lengths) - start))
            start += sizes[-1]
        return sizes, longest
