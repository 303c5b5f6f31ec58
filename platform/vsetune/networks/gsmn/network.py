"""GSMN (Liu et al. 2020), dense and sparse: matches of words and regions, propagated along two graphs to one score.

Letters of shapes: N images, M captions, R regions, L words, D dimensions.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor, nn

from vsetune.errors import DataError
from vsetune.networks.encoded import Encoded
from vsetune.networks.gsmn.matching import (
    KEPT_PER_SIMILARITY,
    BoxKernels,
    NodeScores,
    RegionPropagation,
    Side,
    WordPropagation,
    matches,
    pair_matches,
    prepared,
    prepared_for_pairs,
    word_links,
)
from vsetune.networks.gsmn.spec import GsmnSpec
from vsetune.networks.inputs import CaptionInputs, ImageInputs, square_side
from vsetune.networks.network_base import Network, known_counts, unit_length, word_mask
from vsetune.networks.network_building import register
from vsetune.networks.parts.cpu.pairs import Chosen, Seen, scores_by_pair
from vsetune.networks.parts.cross_attention import Attention, word_attention
from vsetune.networks.parts.layers import xavier_linear
from vsetune.networks.parts.network_devices import beside
from vsetune.networks.parts.recurrence import embed_words, word_embedding, word_states

_NUMBERS_PER_STEP = 2**21
"""Block similarities of a step: 8 MiB in float32. Smaller steps spend their time on calls, larger ones exceed the
processor's cache."""

_NUMBERS_KEPT = 2**29
"""Numbers that all steps together may store for the backward pass, 2 GiB in float32; beyond it all is computed
twice."""

_MOST_IMAGES, _MOST_CAPTIONS = 32, 128
"""Size of a tile of pairs, whose matches are in memory together: 12 MiB in float32 at 36 regions and 16 blocks."""


@register(GsmnSpec)
class Gsmn(Network):
    """Score = mean over regions of a small network on their nodes, plus the same over words with other weights."""

    def __init__(self, spec: GsmnSpec, *, width: int, vocabulary_size: int) -> None:
        super().__init__(spec)
        self._spec = spec
        self.region_map = xavier_linear(width, spec.embedding_size)
        self.words = word_embedding(vocabulary_size, spec.word_size)
        self.gru = nn.GRU(spec.word_size, spec.embedding_size, batch_first=True, bidirectional=True)
        self.kernels = BoxKernels(spec.kernels, normalized_over=spec.kernel_normalization)
        self.region_graph = RegionPropagation(
            blocks=spec.blocks, kernels=spec.kernels, hidden_size=spec.hidden_size, variant=spec.propagation
        )
        self.region_scores = NodeScores(spec.hidden_size)
        self.word_graph = WordPropagation(blocks=spec.blocks, hidden_size=spec.hidden_size)
        self.word_scores = NodeScores(spec.hidden_size)
        self._seen = Seen()

    def encode_images(self, images: ImageInputs) -> Encoded:
        """Regions with the centres of their boxes. DataError without boxes, unless the regions are a square grid."""
        regions = unit_length(self.region_map(images.features))
        boxes = images.boxes
        if boxes is None:
            cells = grid_centres(images.features.shape[1]).to(regions.dtype)
            centres = beside(cells, regions).expand(len(regions), -1, -1)
        else:
            centres = ((boxes[..., :2] + boxes[..., 2:]) / 2).to(regions)
        return Encoded(regions, lengths=images.counts.clamp_min(1), centres=centres, host_lengths=known_counts(images))

    def encode_captions(self, captions: CaptionInputs) -> Encoded:
        """Words, with the links between them in `paper` mode. DataError when `sparse` finds no parses."""
        dependencies = captions.dependencies
        if self._spec.text_graph == "sparse" and dependencies is None:
            raise DataError(
                "VSE-N006", "network.{key}: {value} needs the dependency parse of every caption, the data set has "
                "none; ingest it with parses, or use dense.", key="text_graph", value="sparse",
            )
        states = word_states(self.gru, embed_words(self.words, captions.tokens, captions.lengths_on_host))
        words = unit_length(states)
        if self._spec.propagation == "released":
            return Encoded(words, lengths=captions.lengths, host_lengths=captions.host_lengths)
        joined = None
        if self._spec.text_graph == "sparse" and dependencies is not None:
            joined = dependencies[:, : words.shape[1], : words.shape[1]]
        with torch.autocast(words.device.type, enabled=False):
            links = word_links(words, captions.lengths, joined, self._spec.attention_scale)
        return Encoded(words, lengths=captions.lengths, links=links, host_lengths=captions.host_lengths)

    def similarity(self, images: Encoded, captions: Encoded) -> Tensor:
        """(N, M) scores, in tiles of some images and some captions of similar length: memory has a bound."""
        parts = (self.region_graph, self.region_scores, self.word_graph, self.word_scores)
        parameters = [one for part in parts for one in part.parameters()]
        with torch.autocast(images.device.type, enabled=False):
            items = self._with_edges(images.at_least_float32()), captions.at_least_float32()
            ways = self._scores_of_all, Chosen(self._scores_of_chosen)
            return scores_by_pair(*ways, *items, parameters, self._seen)

    def _scores_of_all(self, images: Encoded, captions: Encoded) -> Tensor:
        lengths = captions.lengths_on_host
        by_length = lengths.argsort(descending=True, stable=True)
        order = beside(by_length, captions.vectors)
        rows = [self._prepared_images(some) for some in _split(images, _sizes(len(images), _MOST_IMAGES))]
        pairs = images.vectors.shape[1] * len(images) * int(lengths.sum())  # of words and regions
        is_kept = KEPT_PER_SIMILARITY * pairs * self._spec.blocks <= _NUMBERS_KEPT
        columns = []
        for some in _split(_in_order(captions, order, lengths[by_length]), _sizes(len(captions), _MOST_CAPTIONS)):
            columns.append(torch.cat([self._tile(row, some, is_kept=is_kept) for row in rows]))
        return torch.cat(columns, dim=1)[:, beside(by_length.argsort(), captions.vectors)]

    def _scores_of_chosen(self, images: Encoded, captions: Encoded, rows: Tensor, columns: Tensor) -> Tensor:
        """(P,)."""
        assert images.lengths is not None
        assert images.links is not None
        assert captions.lengths is not None
        regions = prepared_for_pairs(images.vectors, images.lengths, self._spec.blocks)
        words = prepared_for_pairs(captions.vectors, captions.lengths, self._spec.blocks)
        found, first = [], 0
        for of_regions, of_words in pair_matches(regions, words, rows, columns, self._spec.attention_scale):
            longest, end = of_words.shape[-1], first + len(of_words)
            row, column = rows[first:end], columns[first:end]
            links = None if captions.links is None else captions.links[column, :longest, :longest]
            region_nodes = self.region_graph.of_pairs(of_regions.mT, images.links.index_select(0, row))
            region_scores = self.region_scores.of_rows(region_nodes)
            word_scores = self.word_scores.of_rows(self.word_graph.of_pairs(of_words.mT, links))
            found.append(_mean(region_scores, regions.mask[row]) + _mean(word_scores, words.mask[column, :longest]))
            first = end
        return torch.cat(found)

    def attention(self, images: Encoded, captions: Encoded) -> Tensor:
        """Where words attend."""
        return word_attention(Attention(self._spec.attention_scale), images, captions)

    def _with_edges(self, images: Encoded) -> Encoded:
        """With links (N, K, R, R), which need to be found once per image."""
        assert images.lengths is not None
        assert images.centres is not None
        edges: Tensor = self.kernels(images.centres, word_mask(images.lengths, images.vectors.shape[1]))
        return replace(images, links=edges)

    def _prepared_images(self, images: Encoded) -> tuple[Side, Tensor]:
        """Regions, and the edges between them."""
        assert images.lengths is not None
        assert images.links is not None
        return prepared(images.vectors, images.lengths, self._spec.blocks), images.links

    def _tile(self, images: tuple[Side, Tensor], captions: Encoded, *, is_kept: bool) -> Tensor:
        """(some images, some captions), captions longest first."""
        regions, edges = images
        sizes = _step_sizes(captions.lengths_on_host.tolist(), regions.mask.numel() * self._spec.blocks)
        groups = [self._prepared_captions(some) for some in _split(captions, sizes)]
        found = matches(regions, [words for words, _ in groups], self._spec.attention_scale, is_kept=is_kept)
        of_regions = torch.cat([of_regions.permute(3, 0, 1, 2) for of_regions, _ in found], dim=2)
        word_scores = [
            self._word_scores(of_words.permute(2, 1, 0, 3), *group)
            for (_, of_words), group in zip(found, groups, strict=True)
        ]
        return self._region_scores(of_regions, regions, edges) + torch.cat(word_scores).T

    def _prepared_captions(self, captions: Encoded) -> tuple[Side, Tensor | None]:
        """Words, and the links between them; padding behind the first caption, the longest, is cut off."""
        assert captions.lengths is not None
        longest, links = int(captions.lengths_on_host[0]), captions.links
        side = prepared(captions.vectors[:, :longest], captions.lengths, self._spec.blocks)
        return side, None if links is None else links[:, :longest, :longest]

    def _word_scores(self, found: Tensor, words: Side, links: Tensor | None) -> Tensor:
        """(C, N). found: (C, L, B, N)."""
        nodes: Tensor = self.word_graph(found.contiguous(), links)  # (C, L, H, N)
        scores: Tensor = self.word_scores(nodes.flatten(0, 1)).reshape(*nodes.shape[:2], -1)
        mask = words.mask.T.to(scores)
        return (scores * mask[..., None]).sum(dim=1) / mask.sum(dim=1, keepdim=True)

    def _region_scores(self, found: Tensor, regions: Side, edges: Tensor) -> Tensor:
        """(N, C). found: (N, B, C, R)."""
        nodes: Tensor = self.region_graph(found, edges)  # (N, H, C, R)
        scores: Tensor = self.region_scores(nodes.flatten(2)).reshape(len(nodes), *nodes.shape[2:])
        mask = regions.mask.T.to(scores)
        return (scores * mask[:, None]).sum(dim=2) / mask.sum(dim=1, keepdim=True)


def _mean(scores: Tensor, mask: Tensor) -> Tensor:
    """(P,) means of the real ones of (P, nodes) scores."""
    is_real = mask.to(scores)
    return (scores * is_real).sum(dim=1) / is_real.sum(dim=1)


def grid_centres(regions: int) -> Tensor:
    """(R, 2) float64 x, y of the cells of a square grid, row by row. DataError when R is no square."""
    side = square_side(regions, where="network gsmn")
    steps = (torch.arange(side, dtype=torch.float64) + 0.5) / side
    return torch.stack((steps.repeat(side), steps.repeat_interleave(side)), dim=1)


def _in_order(items: Encoded, order: Tensor, lengths: Tensor) -> Encoded:
    """The items in another order; its backward pass adds rows, that of indexing adds numbers one by one. lengths: in
    that order, on the host."""
    named = {name: value for name, value in _tensors(items).items() if name != "host_lengths"}
    return Encoded(host_lengths=lengths, **{name: value.index_select(0, order) for name, value in named.items()})


def _split(items: Encoded, sizes: list[int]) -> list[Encoded]:
    """The items in groups; the backward pass of a split is one concatenation, that of slices a sum over full copies."""
    parts = {name: torch.split(value, sizes) for name, value in _tensors(items).items()}
    return [Encoded(**{name: groups[place] for name, groups in parts.items()}) for place in range(len(sizes))]


def _tensors(items: Encoded) -> dict[str, Tensor]:
    named = {name: getattr(items, name) for name in ("vectors", "lengths", "links", "centres", "host_lengths")}
    return {name: value for name, value in named.items() if value is not None}


def _sizes(number: int, most: int) -> list[int]:
    return [min(most, number - start) for start in range(0, number, most)]


def _step_sizes(lengths: list[int], numbers_per_word: int) -> list[int]:
    """Captions of each step, longest first, such that the step stays within its limit of numbers."""
    sizes, start = [], 0
    while start < len(lengths):
        fitting = max(1, _NUMBERS_PER_STEP // (numbers_per_word * lengths[start]))
        sizes.append(min(fitting, len(lengths) - start))
        start += sizes[-1]
    return sizes
