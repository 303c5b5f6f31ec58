"""SCAN (Lee et al. 2018): stacked cross attention, words to regions or regions to words.

Letters of shapes: N images, R regions, C captions of a block, L words of its longest, D dimensions.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

import torch
from torch import Tensor, nn
from torch.nn.utils.parametrizations import weight_norm

from vsetune.networks.encoded import Encoded
from vsetune.networks.inputs import CaptionInputs, ImageInputs
from vsetune.networks.network_base import Network, known_counts, region_mask, unit_length
from vsetune.networks.network_building import register
from vsetune.networks.parts.cpu.pairs import Seen, SideBySide, scores_by_pair
from vsetune.networks.parts.cross_attention import (
    REGIONS,
    WORDS,
    Attention,
    CaptionBlocks,
    inverse_length,
    products_of,
    region_mask_of,
    squared_region_lengths,
    word_attention,
    word_mask_of,
)
from vsetune.networks.parts.layers import xavier_linear
from vsetune.networks.parts.network_devices import numbers_at_once
from vsetune.networks.parts.network_fields import added_to_lengths
from vsetune.networks.parts.recurrence import embed_words, word_embedding, word_states
from vsetune.networks.scan.spec import ScanSpec

# of the (C, L, N, R) products: 4 MiB of float32 stay in a CPU's cache; 128 MiB keep a GPU busy
_NUMBERS_PER_BLOCK_CPU, _NUMBERS_PER_BLOCK = 2**20, 2**25

_LEAST = 1e-8

SquaresOf = Callable[[Tensor], Tensor]
"""(C, L, N, R) weights to the squared lengths of the attended vectors, times the squared lengths of the attending ones:
(C, L, N) of words, (C, N, R) of regions. With Gram matrices: |sum_j a_j x_j|^2 = a' G a, without forming the sum."""


@register(ScanSpec)
class Scan(Network):
    """S = pooled cosines of each word with the regions it attends to (text_to_image), or of each region with words."""

    def __init__(self, spec: ScanSpec, *, width: int, vocabulary_size: int) -> None:
        super().__init__(spec)
        self._spec = spec
        self._added = added_to_lengths(spec.norm)
        self._attention = Attention(
            spec.attention_scale, spec.leak, spec.attention_normalization, added=self._added
        )
        image_map = xavier_linear(width, spec.embedding_size)
        # torch's annotation leaves out None, which means one norm for the whole matrix
        self.image_map = weight_norm(image_map, dim=cast(int, None)) if spec.weight_norm else image_map
        self.words = word_embedding(vocabulary_size, spec.word_size)
        self.gru = nn.GRU(spec.word_size, spec.embedding_size, batch_first=True, bidirectional=True)
        self._seen = Seen()

    def encode_images(self, images: ImageInputs) -> Encoded:
        """v_r = n(W x_r + b)."""
        mask = region_mask(images.counts, images.features.shape[1])
        vectors = unit_length(self.image_map(images.features), added=self._added)
        return Encoded(vectors, mask.sum(dim=1), host_lengths=known_counts(images))

    def encode_captions(self, captions: CaptionInputs) -> Encoded:
        """w_l = n(state of a Bi-GRU at word l, mean of both directions). Start and end are words like others."""
        states = word_states(self.gru, embed_words(self.words, captions.tokens, captions.lengths_on_host))
        return Encoded(unit_length(states, added=self._added), captions.lengths, host_lengths=captions.host_lengths)

    def similarity(self, images: Encoded, captions: Encoded) -> Tensor:
        """In blocks of captions. Where a loss reads most scores, training keeps about 6 numbers per word, image and
        region."""
        with torch.autocast(images.device.type, enabled=False):
            items = images.at_least_float32(), captions.at_least_float32()
            return scores_by_pair(self._scores_of_all, SideBySide(self._scores_of_pairs), *items, (), self._seen)

    def _scores_of_all(self, images: Encoded, captions: Encoded) -> Tensor:
        regions, is_region = images.vectors, region_mask_of(images)
        budget = numbers_at_once(regions, cpu=_NUMBERS_PER_BLOCK_CPU, gpu=_NUMBERS_PER_BLOCK)
        blocks = CaptionBlocks(captions, budget // max(1, regions.shape[0] * regions.shape[1]))
        gram = regions @ regions.mT if self._spec.direction == "text_to_image" else None

        def scores_of(block: Encoded) -> Tensor:
            words = block.vectors

            def squares(weights: Tensor) -> Tensor:
                if gram is not None:
                    by_image = weights.flatten(end_dim=1).transpose(0, 1)
                    attended = squared_region_lengths(by_image, gram).T.view(weights.shape[:3])
                    return attended * words.square().sum(dim=-1)[..., None]
                by_caption = weights.flatten(start_dim=2)
                attended = (((words @ words.mT) @ by_caption) * by_caption).sum(dim=WORDS)
                return attended.view(len(words), *regions.shape[:2]) * regions.square().sum(dim=-1)

            return self._scores(products_of(words, regions), word_mask_of(block), is_region, squares)

        return blocks.columns_of([scores_of(block).T for block in blocks])

    def _scores_of_pairs(self, images: Encoded, captions: Encoded) -> Tensor:
        """(P,): each caption meets one image, so N = 1 and what differs by image differs by pair."""
        regions, words, is_region = images.vectors, captions.vectors, region_mask_of(images)

        def squares(weights: Tensor) -> Tensor:
            by_pair = weights.squeeze(2)
            if self._spec.direction == "text_to_image":
                attended = ((by_pair @ (regions @ regions.mT)) * by_pair).sum(dim=2)
                return (attended * words.square().sum(dim=-1))[..., None]
            attended = (((words @ words.mT) @ by_pair) * by_pair).sum(dim=WORDS)
            return (attended * regions.square().sum(dim=-1))[:, None]

        of_pair = None if is_region is None else is_region[:, None]
        return self._scores((words @ regions.mT)[:, :, None], word_mask_of(captions), of_pair, squares).squeeze(1)

    def attention(self, images: Encoded, captions: Encoded) -> Tensor | None:
        """Where words attend (text_to_image)."""
        if self._spec.direction != "text_to_image":
            return None
        return word_attention(self._attention, images, captions)

    def _scores(self, products: Tensor, is_word: Tensor, is_region: Tensor | None, squares: SquaresOf) -> Tensor:
        """(C, N) scores of a block: pooled cosines of what attends, q, with k = sum_j a_j c_j: q.k = sum_j a_j (q.c_j).

        products: (C, L, N, R); is_word: (C, L); is_region: (N, R), or of each caption its own, (C, 1, R).
        """
        of_strengths = is_region if is_region is None or is_region.ndim == 2 else is_region[:, None]
        if self._spec.direction == "text_to_image":
            weights, contexts = self._attention.of_words(products, is_word, of_strengths), REGIONS
        else:
            weights, contexts = self._attention.of_regions(products, is_word, of_strengths), WORDS
        squared = squares(weights)
        # released: by at least 1e-8, which nothing is added to
        inverse = squared.clamp_min(_LEAST**2).rsqrt() if self._added else inverse_length(squared)
        cosines = (weights * products).sum(dim=contexts) * inverse
        if contexts == REGIONS:
            return self._pooled(cosines, is_word[:, :, None], dim=WORDS)
        return self._pooled(cosines, is_region, dim=2)

    def _pooled(self, cosines: Tensor, mask: Tensor | None, *, dim: int) -> Tensor:
        """(C, N). mask: True for what counts, None for all."""
        pooling, scale = self._spec.pooling, self._spec.pooling_scale
        if pooling in ("lse", "max"):
            shown = cosines if mask is None else cosines.masked_fill(~mask, float("-inf"))
            return (scale * shown).logsumexp(dim=dim) / scale if pooling == "lse" else shown.amax(dim=dim)
        total = (cosines if mask is None else cosines.masked_fill(~mask, 0.0)).sum(dim=dim)
        if pooling == "sum":
            return total
        return total / (cosines.shape[dim] if mask is None else mask.sum(dim=dim - cosines.ndim))
