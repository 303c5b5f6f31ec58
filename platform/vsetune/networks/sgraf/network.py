"""SGRAF (Diao et al. 2021): similarity vectors of words and regions, and of whole image and caption, to one score.

Letters of shapes: N images, R regions, M captions, C captions of a block, L words of its longest, D dimensions,
P = L + 1 nodes, S similarity dimensions.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor, nn

from vsetune.errors import DataError
from vsetune.networks.encoded import Encoded
from vsetune.networks.inputs import CaptionInputs, ImageInputs
from vsetune.networks.network_base import Network, at_least_float32, known_counts, region_mask, unit_length
from vsetune.networks.network_building import register
from vsetune.networks.parts.batch_normalization import SharedBatchNorm, normalize_rows
from vsetune.networks.parts.cpu.pairs import Seen, SideBySide, scores_by_pair
from vsetune.networks.parts.cross_attention import (
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
from vsetune.networks.parts.network_devices import is_on_cpu, numbers_at_once
from vsetune.networks.parts.network_fields import added_to_lengths
from vsetune.networks.parts.packing import RealParts
from vsetune.networks.parts.recurrence import drop_numbers, embed_words, word_embedding, word_states
from vsetune.networks.sgraf.similarity_reasoning import (
    AttentionFiltration,
    GraphReasoning,
    Nodes,
    Reasoning,
    kept_numbers,
    normalize_regions,
    similarity_vectors,
)
from vsetune.networks.sgraf.spec import SgrafSafSpec, SgrafSgrSpec

# of a block's (N, C, P, S) nodes: 8 MiB of float32 on a CPU, 512 MiB on a GPU
_NUMBERS_PER_BLOCK_CPU, _NUMBERS_PER_BLOCK = 2**21, 2**27

_MOST_KEPT = 2**29
"""Numbers (2 GiB of float32) of similarity vectors stored for the backward pass; the excess is computed twice."""


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
        self._added = added_to_lengths(spec.norm)
        self._attention = Attention(spec.attention_scale, added=self._added)
        self._regions = regions
        self.image_map = xavier_linear(width, size)
        self.words = word_embedding(vocabulary_size, spec.word_size)
        self.dropout = nn.Dropout(spec.dropout)
        self.gru = nn.GRU(spec.word_size, size, batch_first=True, bidirectional=True)
        self.image_attention = SelfAttention(size, spec.dropout, regions=regions, added=self._added)
        self.caption_attention = SelfAttention(size, spec.dropout, added=self._added)
        self.local_map = xavier_linear(size, spec.similarity_size, bias=spec.map_bias)
        self.global_map = xavier_linear(size, spec.similarity_size, bias=spec.map_bias)
        self.reasoning = _reasoning(spec)
        self._seen = Seen()

    def encode_images(self, images: ImageInputs) -> Encoded:
        """v_r = n(W x_r + b) and v*. DataError for more regions than the network was made for."""
        regions = images.features.shape[1]
        if regions > self._regions:
            raise DataError(
                "VSE-N004", "network: sgraf normalises every region index by its own statistics and has those of "
                "{most}, got {got} regions; ingest features with at most {most} regions, or train anew.",
                most=self._regions, got=regions,
            )
        mask = region_mask(images.counts, regions)
        vectors = unit_length(self.image_map(images.features), added=self._added).masked_fill(~mask[..., None], 0.0)
        whole = self.image_attention(vectors, mask)
        return Encoded(vectors, mask.sum(dim=1), whole=whole, host_lengths=known_counts(images))

    def encode_captions(self, captions: CaptionInputs) -> Encoded:
        """w_l = n(state of a Bi-GRU at word l, mean of both directions) and t*."""
        words = embed_words(self.words, captions.tokens, captions.lengths_on_host)
        vectors = unit_length(word_states(self.gru, drop_numbers(self.dropout, words)), added=self._added)
        mask = word_mask_of(Encoded(vectors, captions.lengths))
        is_here = is_on_cpu(vectors)  # a GPU would rather compute what is padded than sort it out
        real = RealParts.of_lengths(captions.lengths_on_host, mask.shape[1], vectors) if is_here else None
        whole = self.caption_attention(vectors, mask, real)
        return Encoded(vectors, captions.lengths, whole=whole, host_lengths=captions.host_lengths)

    def similarity(self, images: Encoded, captions: Encoded) -> Tensor:
        """Scores in (0, 1), in blocks of captions. In training mode batch statistics are updated and used (SAF).

        Training stores about 3 S + 7 R numbers per word and image, and up to 2 GiB of differences; SGR up to 2 GiB
        more.
        """
        images, captions = images.at_least_float32(), captions.at_least_float32()
        with torch.autocast(images.device.type, enabled=False):
            if isinstance(self.reasoning, AttentionFiltration) and self.training:
                return self._scores_of_all(images, captions)
            maps = (self.local_map, self.global_map, self.reasoning)
            weights = [one for part in maps for one in (*part.parameters(), *part.buffers())]
            ways = self._scores_of_all, SideBySide(self._scores_of_pairs)
            return scores_by_pair(*ways, images, captions, weights, self._seen)

    def _scores_of_all(self, images: Encoded, captions: Encoded) -> Tensor:
        numbers = numbers_at_once(images.vectors, cpu=_NUMBERS_PER_BLOCK_CPU, gpu=_NUMBERS_PER_BLOCK)
        blocks = CaptionBlocks(captions, numbers // max(1, len(images) * self._spec.similarity_size))
        return blocks.columns_of(self.reasoning.columns(self._nodes(images, blocks)))

    def _scores_of_pairs(self, images: Encoded, captions: Encoded) -> Tensor:
        """(P,)."""
        regions, words, is_word = images.vectors, captions.vectors, word_mask_of(captions)
        is_region = region_mask_of(images)
        of_pair = None if is_region is None else is_region[:, None, None]
        weights = self._attention.of_words((words @ regions.mT)[:, :, None], is_word, of_pair).squeeze(2)
        squares = (weights @ regions).square().sum(dim=-1)
        local = self._local_nodes(weights, squares, regions, words, is_kept=True)
        assert images.whole is not None
        assert captions.whole is not None
        one = regions.new_ones(()).expand(len(images), 1, 1)
        whole = self._vectors(self.global_map, one, images.whole[:, None], captions.whole[:, None])
        is_node = nn.functional.pad(is_word, (1, 0), value=True)
        nodes = torch.cat((whole, local), dim=1).masked_fill(~is_node[..., None], 0.0)
        return self.reasoning.columns([(nodes[None], is_node)])[0].squeeze(0)

    def attention(self, images: Encoded, captions: Encoded) -> Tensor | None:
        """Of the words, hence of all nodes but the one of whole image and whole caption."""
        return word_attention(self._attention, images, captions)

    def _nodes(self, images: Encoded, blocks: CaptionBlocks) -> Iterator[Nodes]:
        regions, is_region = images.vectors, region_mask_of(images)
        gram, kept = regions @ regions.mT, 0
        for block in blocks:
            is_word = word_mask_of(block)
            weights = self._attention.of_words(products_of(block.vectors, regions), is_word, is_region)
            is_node = nn.functional.pad(is_word, (1, 0), value=True)
            # real words only: padding would cost as much as they do
            real = RealParts.of_lengths(block.lengths_on_host, block.vectors.shape[1], regions)
            words = real.rows(block.vectors)
            kept += kept_numbers(len(regions), *words.shape)
            by_image = real.rows(weights).transpose(0, 1)
            squares = squared_region_lengths(by_image, gram)
            local = self._local_nodes(by_image, squares, regions, words, is_kept=kept <= _MOST_KEPT)
            yield self._placed(self._global_nodes(images, block), local, real), is_node

    def _local_nodes(
        self, weights: Tensor, squares: Tensor, regions: Tensor, words: Tensor, *, is_kept: bool
    ) -> Tensor:
        """(N, T, S) of unit length. weights: (N, T, R); squares: (N, T) |sum_r weight_r v_r|^2. words: (T, D), those
        of all captions of a block, or (N, T, D) where each image has words of its own."""
        weights = weights * inverse_length(squares, added=self._added)[..., None]
        return self._vectors(self.local_map, weights, regions, words, is_kept=is_kept)

    def _global_nodes(self, images: Encoded, block: Encoded) -> Tensor:
        """(N, C, S) of unit length."""
        assert images.whole is not None
        assert block.whole is not None
        one = images.whole.new_ones(()).expand(len(images), len(block), 1)
        return self._vectors(self.global_map, one, images.whole[:, None], block.whole)

    def _vectors(
        self, map: nn.Linear, weights: Tensor, regions: Tensor, words: Tensor, *, is_kept: bool = True
    ) -> Tensor:
        return similarity_vectors(weights, regions, words, map.weight, map.bias, is_kept=is_kept, added=self._added)

    def _placed(self, whole: Tensor, local: Tensor, real: RealParts) -> Tensor:
        """(N, C, P, S): node 0 from whole (N, C, S), then those of a caption's words from local (N, T, S); 0 behind."""
        captions, words = real.mask.shape
        nodes = words + 1
        firsts = torch.arange(0, captions * nodes, nodes, device=local.device)
        # the w-th word of the c-th caption stands at c * words + w among words, one place per caption later among nodes
        filled = torch.cat((firsts, real.places + real.places // words + 1))
        empty = local.new_zeros(len(local), captions * nodes, local.shape[-1])
        return empty.index_copy_(1, filled, torch.cat((whole, local), dim=1)).view(len(local), captions, nodes, -1)


class SelfAttention(nn.Module):
    """One unit vector of a set: sum_p beta_p x_p, beta = softmax(c'(tanh(A x_p) * tanh(B mean(x)))).

    Of images both maps are batch-normalised before tanh: A x_p over each region index, B mean(x) over each dimension.
    """

    def __init__(self, size: int, dropout: float, *, regions: int | None = None, added: float = 0.0) -> None:
        super().__init__()
        self._added = added
        self.local = xavier_linear(size, size)
        self.whole = xavier_linear(size, size)
        self.common = xavier_linear(size, 1)
        self.dropout = nn.Dropout(dropout)
        self.local_norm = SharedBatchNorm(regions) if regions is not None else None
        self.whole_norm = SharedBatchNorm(size) if regions is not None else None

    def forward(self, vectors: Tensor, mask: Tensor, real: RealParts | None = None) -> Tensor:
        """(n, D). vectors: (n, P, D), 0 where padded; mask: (n, P) bool. real: the same as the mask, where A x_p is to
        be formed of these parts alone; what is padded counts nowhere."""
        mean = vectors.sum(dim=1) / mask.sum(dim=1, keepdim=True)
        local = self.local(vectors) if real is None else real.placed(self.local(real.rows(vectors)))
        local, whole = at_least_float32(local), at_least_float32(self.whole(mean))
        if self.local_norm is not None and self.whole_norm is not None:
            local = normalize_regions(self.local_norm, local, mask)
            whole = normalize_rows(self.whole_norm, whole)
        common = self.dropout(local.tanh()) * self.dropout(whole.tanh())[:, None]
        scores = at_least_float32(self.common(common)).squeeze(-1)
        weights = scores.masked_fill(~mask, float("-inf")).softmax(dim=-1)
        return unit_length((weights[:, None] @ vectors).squeeze(1), added=self._added)


def _reasoning(spec: SgrafSafSpec | SgrafSgrSpec) -> Reasoning:
    if isinstance(spec, SgrafSgrSpec):
        return GraphReasoning(spec.similarity_size, spec.steps)
    return AttentionFiltration(
        spec.similarity_size, statistics=spec.gate_statistics, normalize=spec.normalize_filtered,
        added=added_to_lengths(spec.norm),
    )
