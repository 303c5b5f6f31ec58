"""SGRAF (Diao et al. 2021): similarity vectors of words and regions, and of whole image and caption, to one score.

Letters of shapes: N images, R regions, M captions, C captions of a block, L words of its longest, D dimensions,
P = L + 1 nodes, S similarity dimensions.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor, nn

from vsetune.config.networks.sgraf import SgrafSafSpec, SgrafSgrSpec
from vsetune.errors import DataError
from vsetune.networks.cross_attention import (
    Attention,
    CaptionBlocks,
    inverse_length,
    products_of,
    region_mask_of,
    squared_region_lengths,
    word_mask_of,
)
from vsetune.networks.encoded import Encoded
from vsetune.networks.inputs import CaptionInputs, ImageInputs
from vsetune.networks.masked_statistics import normalize_regions, normalize_rows
from vsetune.networks.network import Network, at_least_float32, region_mask, unit_length
from vsetune.networks.registry import register
from vsetune.networks.similarity_reasoning import (
    AttentionFiltration,
    GraphReasoning,
    Nodes,
    Reasoning,
    xavier_linear,
)
from vsetune.networks.squared_differences import mapped_squared_differences
from vsetune.networks.words import embed_words, word_embedding, word_states

# of a block's (N, C, P, S) nodes: 16 MiB of float32 on a CPU, 512 MiB on a GPU
_NUMBERS_PER_BLOCK_CPU, _NUMBERS_PER_BLOCK = 2**22, 2**27


@register(SgrafSafSpec)
@register(SgrafSgrSpec)
class Sgraf(Network):
    """S = reasoning over n(W_loc (k_l - w_l)^2) of all words l and n(W_glo (v* - t*)^2); SAF or SGR by its spec.

    k_l: the regions that word l attends to, unit length. v*, t*: image and caption, by self-attention.
    """

    needs_regions = True

    def __init__(
        self, spec: SgrafSafSpec | SgrafSgrSpec, *, regions: int, width: int, vocabulary_size: int
    ) -> None:
        super().__init__(spec)
        size = spec.embedding_size
        self._spec = spec
        self._attention = Attention(spec.attention_scale)
        self._regions = regions
        self.image_map = xavier_linear(width, size)
        self.words = word_embedding(vocabulary_size, spec.word_size)
        self.dropout = nn.Dropout(spec.dropout)
        self.gru = nn.GRU(spec.word_size, size, batch_first=True, bidirectional=True)
        self.image_attention = SelfAttention(size, spec.dropout, regions=regions)
        self.caption_attention = SelfAttention(size, spec.dropout)
        self.local_map = xavier_linear(size, spec.similarity_size, bias=spec.map_bias)
        self.global_map = xavier_linear(size, spec.similarity_size, bias=spec.map_bias)
        self.reasoning = _reasoning(spec)

    def encode_images(self, images: ImageInputs) -> Encoded:
        """v_r = n(W x_r + b) and v*. DataError for more regions than the network was made for."""
        regions = images.features.shape[1]
        if regions > self._regions:
            raise DataError(
                f"network: sgraf normalises every region index by its own statistics and has those of {self._regions}, "
                f"got {regions} regions; ingest features with at most {self._regions} regions, or train anew."
            )
        mask = region_mask(images.counts, regions)
        vectors = unit_length(self.image_map(images.features)).masked_fill(~mask[..., None], 0.0)
        return Encoded(vectors, mask.sum(dim=1), whole=self.image_attention(vectors, mask))

    def encode_captions(self, captions: CaptionInputs) -> Encoded:
        """w_l = n(state of a Bi-GRU at word l, mean of both directions) and t*."""
        packed = embed_words(self.words, captions.tokens, captions.lengths)
        vectors = unit_length(word_states(self.gru, packed._replace(data=self.dropout(packed.data))))
        mask = word_mask_of(Encoded(vectors, captions.lengths))
        return Encoded(vectors, captions.lengths, whole=self.caption_attention(vectors, mask))

    def similarity(self, images: Encoded, captions: Encoded) -> Tensor:
        """Scores in (0, 1), in blocks of captions. In training mode batch statistics move and enter (SAF).

        What training keeps is about 2 S + 7 R numbers per word and image; SGR up to 2 GiB more.
        """
        with torch.autocast(images.vectors.device.type, enabled=False):
            images, captions = _in_float32(images), _in_float32(captions)
            is_cpu = images.vectors.device.type == "cpu"
            numbers = _NUMBERS_PER_BLOCK_CPU if is_cpu else _NUMBERS_PER_BLOCK
            blocks = CaptionBlocks(captions, numbers // max(1, len(images) * self._spec.similarity_size))
            return blocks.columns_of(self.reasoning.columns(self._nodes(images, blocks)))

    def _nodes(self, images: Encoded, blocks: CaptionBlocks) -> Iterator[Nodes]:
        regions, is_region = images.vectors, region_mask_of(images)
        gram = regions @ regions.mT
        for block in blocks:
            is_word = word_mask_of(block)
            weights = self._attention.of_words(products_of(block.vectors, regions), is_word, is_region)
            local = self._local_nodes(weights, regions, gram, block)
            nodes = unit_length(torch.cat((self._global_node(images, block), local), dim=2))
            yield nodes, nn.functional.pad(is_word, (1, 0), value=True)

    def _local_nodes(self, weights: Tensor, regions: Tensor, gram: Tensor, block: Encoded) -> Tensor:
        """(N, C, L, S). weights: (C, L, N, R)."""
        by_image = weights.flatten(end_dim=1).transpose(0, 1)
        # n(k) = sum_r (weight_r / |k|) v_r, the length from products of regions
        by_image = by_image * inverse_length(squared_region_lengths(by_image, gram))[..., None]
        local = mapped_squared_differences(
            by_image, regions, block.vectors.flatten(end_dim=1), self.local_map.weight, self.local_map.bias
        )
        return local.view(len(regions), len(block), -1, local.shape[-1])

    def _global_node(self, images: Encoded, block: Encoded) -> Tensor:
        """(N, C, 1, S)."""
        assert images.whole is not None
        assert block.whole is not None
        one = images.whole.new_ones(()).expand(len(images), len(block), 1)
        return mapped_squared_differences(
            one, images.whole[:, None], block.whole, self.global_map.weight, self.global_map.bias
        )[:, :, None]


class SelfAttention(nn.Module):
    """One unit vector of a set: sum_p beta_p x_p, beta = softmax(c'(tanh(A x_p) * tanh(B mean(x)))).

    Of images both maps are batch-normalised before tanh: A x_p over each region index, B mean(x) over each dimension.
    """

    def __init__(self, size: int, dropout: float, *, regions: int | None = None) -> None:
        super().__init__()
        self.local = xavier_linear(size, size)
        self.whole = xavier_linear(size, size)
        self.common = xavier_linear(size, 1)
        self.dropout = nn.Dropout(dropout)
        self.local_norm = nn.BatchNorm1d(regions) if regions is not None else None
        self.whole_norm = nn.BatchNorm1d(size) if regions is not None else None

    def forward(self, vectors: Tensor, mask: Tensor) -> Tensor:
        """(n, D). vectors: (n, P, D), 0 where padded; mask: (n, P) bool."""
        mean = vectors.sum(dim=1) / mask.sum(dim=1, keepdim=True)
        local, whole = at_least_float32(self.local(vectors)), at_least_float32(self.whole(mean))
        if self.local_norm is not None and self.whole_norm is not None:
            local = normalize_regions(self.local_norm, local, mask)
            whole = normalize_rows(self.whole_norm, whole)
        common = self.dropout(local.tanh()) * self.dropout(whole.tanh())[:, None]
        scores = at_least_float32(self.common(common)).squeeze(-1)
        weights = scores.masked_fill(~mask, float("-inf")).softmax(dim=-1)
        return unit_length((weights[:, None] @ vectors).squeeze(1))


def _reasoning(spec: SgrafSafSpec | SgrafSgrSpec) -> Reasoning:
    if isinstance(spec, SgrafSgrSpec):
        return GraphReasoning(spec.similarity_size, spec.steps)
    return AttentionFiltration(
        spec.similarity_size, statistics=spec.gate_statistics, normalize=spec.normalize_filtered
    )


def _in_float32(items: Encoded) -> Encoded:
    return items if items.vectors.dtype == torch.float64 else items.to(torch.float32)
