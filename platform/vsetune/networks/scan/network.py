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
from vsetune.networks.parts.linear import xavier_linear
from vsetune.networks.parts.network_devices import numbers_at_once
from vsetune.networks.parts.pair_gradients import Seen, scores_by_pair
from vsetune.networks.parts.words import embed_words, word_embedding, word_states
from vsetune.networks.scan.spec import ScanSpec

# of the (C, L, N, R) products: 4 MiB of float32 stay in a CPU's cache; 128 MiB keep a GPU busy
_NUMBERS_PER_BLOCK_CPU, _NUMBERS_PER_BLOCK = 2**20, 2**25

SquaresOf = Callable[[Tensor], Tensor]
"""(C, L, N, R) weights of words to the (C, L, N) squared lengths of what they attend to."""


@register(ScanSpec)
class Scan(Network):
    """S = pooled cosines of each word with the regions it attends to (text_to_image), or of each region with words."""

    def __init__(self, spec: ScanSpec, *, width: int, vocabulary_size: int) -> None:
        super().__init__(spec)
        self._spec = spec
        self._attention = Attention(spec.attention_scale, spec.leak, spec.attention_normalization)
        image_map = xavier_linear(width, spec.embedding_size)
        # torch's annotation leaves out None, which means one norm for the whole matrix
        self.image_map = weight_norm(image_map, dim=cast(int, None)) if spec.weight_norm else image_map
        self.words = word_embedding(vocabulary_size, spec.word_size)
        self.gru = nn.GRU(spec.word_size, spec.embedding_size, batch_first=True, bidirectional=True)
        self._seen = Seen()

    def encode_images(self, images: ImageInputs) -> Encoded:
        """v_r = n(W x_r + b)."""
        mask = region_mask(images.counts, images.features.shape[1])
        vectors = unit_length(self.image_map(images.features))
        return Encoded(vectors, mask.sum(dim=1), host_lengths=known_counts(images))

    def encode_captions(self, captions: CaptionInputs) -> Encoded:
        """w_l = n(state of a Bi-GRU at word l, mean of both directions). Start and end are words like others."""
        states = word_states(self.gru, embed_words(self.words, captions.tokens, captions.lengths_on_host))
        return Encoded(unit_length(states), captions.lengths, host_lengths=captions.host_lengths)

    def similarity(self, images: Encoded, captions: Encoded) -> Tensor:
        """In blocks of captions. Where a loss reads most scores, training keeps about 6 numbers per word, image and
        region."""
        with torch.autocast(images.device.type, enabled=False):
            items = images.at_least_float32(), captions.at_least_float32()
            return scores_by_pair(self._scores_of_all, self._scores_of_pairs, *items, (), self._seen)

    def _scores_of_all(self, images: Encoded, captions: Encoded) -> Tensor:
        regions, is_region = images.vectors, region_mask_of(images)
        budget = numbers_at_once(regions, cpu=_NUMBERS_PER_BLOCK_CPU, gpu=_NUMBERS_PER_BLOCK)
        blocks = CaptionBlocks(captions, budget // max(1, regions.shape[0] * regions.shape[1]))
        gram = regions @ regions.mT if self._spec.direction == "text_to_image" else None

        def squares(weights: Tensor) -> Tensor:
            """|k|^2 = weight' G weight."""
            assert gram is not None
            by_image = weights.flatten(end_dim=1).transpose(0, 1)
            return squared_region_lengths(by_image, gram).T.view(weights.shape[:3])

        return blocks.columns_of([
            self._scores(products_of(block.vectors, regions), regions, is_region, squares, block).T for block in blocks
        ])

    def _scores_of_pairs(self, images: Encoded, captions: Encoded) -> Tensor:
        """(P,): each caption meets one image, so N = 1 and what differs by image differs by caption."""
        regions, is_region = images.vectors, region_mask_of(images)
        products = (captions.vectors @ regions.mT)[:, :, None]
        is_region = None if is_region is None else is_region[:, None]

        def squares(weights: Tensor) -> Tensor:
            """Of k itself, of which there is one per word here."""
            return (weights.squeeze(2) @ regions).square().sum(dim=-1, keepdim=True)

        return self._scores(products, regions[:, None], is_region, squares, captions).squeeze(1)

    def attention(self, images: Encoded, captions: Encoded) -> Tensor | None:
        """Where words attend (text_to_image)."""
        if self._spec.direction != "text_to_image":
            return None
        return word_attention(self._attention, images, captions)

    def _scores(
        self, products: Tensor, regions: Tensor, is_region: Tensor | None, squares: SquaresOf, block: Encoded
    ) -> Tensor:
        """(C, N) scores of a block. products: (C, L, N, R). regions: (N, R, D) and is_region: (N, R), or of each
        caption its own, (C, 1, R, D) and (C, 1, R)."""
        words, is_word = block.vectors, word_mask_of(block)
        of_strengths = is_region if is_region is None or is_region.ndim == 2 else is_region[:, None]
        if self._spec.direction == "text_to_image":
            weights = self._attention.of_words(products, is_word, of_strengths)
            cosines = word_cosines(products, weights, words, squares(weights))
            return self._pooled(cosines, is_word[:, :, None], dim=WORDS)
        weights = self._attention.of_regions(products, is_word, of_strengths)
        cosines = region_cosines(products, weights, words, regions)
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


def word_cosines(products: Tensor, weights: Tensor, words: Tensor, squares: Tensor) -> Tensor:
    """(C, L, N): cosine of each word w with k = sum_r weight_r v_r: w.k = sum_r weight_r (w.v_r).

    products, weights: (C, L, N, R); words: (C, L, D); squares: (C, L, N) |k|^2.
    """
    inner = (weights * products).sum(dim=REGIONS)
    return inner * inverse_length(squares * words.square().sum(dim=-1)[..., None])


def region_cosines(products: Tensor, weights: Tensor, words: Tensor, regions: Tensor) -> Tensor:
    """(C, N, R): cosine of each region v with k = sum_l weight_l w_l, without forming k (Gram shortcut).

    products, weights: (C, L, N, R); words: (C, L, D); regions: (N, R, D), or (C, 1, R, D).
    """
    inner = (weights * products).sum(dim=WORDS)
    by_caption = weights.flatten(start_dim=2)
    squared = (((words @ words.mT) @ by_caption) * by_caption).sum(dim=WORDS).view_as(inner)
    return inner * inverse_length(squared * regions.square().sum(dim=-1))
