"""GSMN (Liu et al. 2020), dense and sparse: matches of words and regions that travel along two graphs to one score.

Letters of shapes: N images, M captions, R regions, L words, D dimensions.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from vsetune.config.networks.gsmn import GsmnSpec
from vsetune.errors import DataError
from vsetune.networks.block_matching import Side, matches, prepared
from vsetune.networks.encoded import Encoded
from vsetune.networks.inputs import CaptionInputs, ImageInputs
from vsetune.networks.match_graphs import BoxKernels, NodeScores, RegionPropagation, WordPropagation, word_links
from vsetune.networks.network import Network, at_least_float32, region_mask, unit_length
from vsetune.networks.registry import register
from vsetune.networks.words import embed_words, word_embedding, word_states

_NUMBERS_PER_STEP = 2**24
"""Block similarities of a step, 64 MiB in float32; five tensors of that size exist at once."""

_MOST_CAPTIONS, _MOST_IMAGES = 32, 128

_NUMBERS_KEPT = 3 * 2**28
"""What the steps together may keep for backward, 3 GiB in float32; beyond it they are computed a second time there."""

_TENSORS_KEPT = 3
"""Tensors of the size of the block similarities that a step keeps: 2.1 to 2.6 when counted, smaller ones included."""


@register(GsmnSpec)
class Gsmn(Network):
    """Score = mean over regions of a small network on their nodes, plus the same over words with other weights."""

    def __init__(self, spec: GsmnSpec, *, width: int, vocabulary_size: int) -> None:
        super().__init__(spec)
        self._spec = spec
        self.region_map = nn.Linear(width, spec.embedding_size)
        nn.init.xavier_uniform_(self.region_map.weight)
        nn.init.zeros_(self.region_map.bias)
        self.words = word_embedding(vocabulary_size, spec.word_size)
        self.gru = nn.GRU(spec.word_size, spec.embedding_size, batch_first=True, bidirectional=True)
        self.kernels = BoxKernels(spec.kernels, normalized_over=spec.kernel_normalization)
        self.region_graph = RegionPropagation(
            blocks=spec.blocks, kernels=spec.kernels, hidden_size=spec.hidden_size, variant=spec.propagation
        )
        self.region_scores = NodeScores(spec.hidden_size)
        self.word_graph = WordPropagation(blocks=spec.blocks, hidden_size=spec.hidden_size)
        self.word_scores = NodeScores(spec.hidden_size)

    def encode_images(self, images: ImageInputs) -> Encoded:
        """Regions with the centres of their boxes. DataError without boxes, unless the regions are a square grid."""
        mask = region_mask(images.counts, images.features.shape[1])
        regions = unit_length(self.region_map(images.features)) * mask[..., None]
        boxes = images.boxes
        if boxes is None:
            centres = grid_centres(images.features.shape[1]).to(regions).expand(len(regions), -1, -1)
        else:
            centres = ((boxes[..., :2] + boxes[..., 2:]) / 2).to(regions)
        return Encoded(regions, lengths=images.counts.clamp_min(1), centres=centres)

    def encode_captions(self, captions: CaptionInputs) -> Encoded:
        """Words, with the links between them in `paper` mode. DataError when `sparse` finds no parses."""
        dependencies = captions.dependencies
        if self._spec.text_graph == "sparse" and dependencies is None:
            raise DataError(
                "network.text_graph: sparse needs the dependency parse of every caption, the data set has none; "
                "ingest it with parses, or use dense."
            )
        states = word_states(self.gru, embed_words(self.words, captions.tokens, captions.lengths))
        words = unit_length(states)
        if self._spec.propagation == "released":
            return Encoded(words, lengths=captions.lengths)
        joined = None
        if self._spec.text_graph == "sparse" and dependencies is not None:
            joined = dependencies[:, : words.shape[1], : words.shape[1]]
        with torch.autocast(words.device.type, enabled=False):
            links = word_links(words, captions.lengths, joined, self._spec.attention_scale)
        return Encoded(words, lengths=captions.lengths, links=links)

    def similarity(self, images: Encoded, captions: Encoded) -> Tensor:
        """(N, M) scores, in steps of some images and some captions of similar length: memory has a bound."""
        assert captions.lengths is not None
        regions = images.vectors.shape[1]
        by_length = captions.lengths.argsort(descending=True, stable=True)
        lengths = captions.lengths[by_length].tolist()
        numbers = regions * self._spec.blocks  # of block similarities, for one image and one word
        is_recomputed = _TENSORS_KEPT * numbers * len(images) * sum(lengths) > _NUMBERS_KEPT
        columns = []
        with torch.autocast(images.vectors.device.type, enabled=False):
            rows = [self._prepared_images(images[block]) for block in _slices(len(images), _MOST_IMAGES)]
            for block in _steps(lengths, numbers * min(len(images), _MOST_IMAGES)):
                words = self._prepared_captions(captions[by_length[block]], longest=lengths[block.start])
                columns.append(torch.cat([self._scores(row, words, is_recomputed=is_recomputed) for row in rows]))
            return torch.cat(columns, dim=1)[:, by_length.argsort()]

    def _prepared_images(self, images: Encoded) -> tuple[Side, Tensor]:
        """Regions, and the edges between them."""
        assert images.lengths is not None
        assert images.centres is not None
        side = prepared(at_least_float32(images.vectors), images.lengths, self._spec.blocks)
        return side, self.kernels(at_least_float32(images.centres), side.mask.T)

    def _prepared_captions(self, captions: Encoded, *, longest: int) -> tuple[Side, Tensor | None]:
        """Words, and the links between them; padding behind the longest caption is cut off."""
        assert captions.lengths is not None
        side = prepared(at_least_float32(captions.vectors[:, :longest]), captions.lengths, self._spec.blocks)
        links = captions.links
        return side, None if links is None else at_least_float32(links[:, :longest, :longest])

    def _scores(
        self, images: tuple[Side, Tensor], captions: tuple[Side, Tensor | None], *, is_recomputed: bool
    ) -> Tensor:
        """(some images, some captions)."""
        if is_recomputed and torch.is_grad_enabled():
            scores: Tensor = checkpoint(self._step, images, captions, use_reentrant=False, preserve_rng_state=False)
            return scores
        return self._step(images, captions)

    def _step(self, images: tuple[Side, Tensor], captions: tuple[Side, Tensor | None]) -> Tensor:
        (regions, edges), (words, links) = images, captions
        of_regions, of_words = matches(regions, words, self._spec.attention_scale)
        region_scores: Tensor = self.region_scores(self.region_graph(of_regions, edges))  # (R, N, C)
        word_scores: Tensor = self.word_scores(self.word_graph(of_words, links))  # (N, L, C)
        region_mask, word_mask = regions.mask[..., None].to(region_scores), words.mask.to(word_scores)
        return (region_scores * region_mask).sum(dim=0) / region_mask.sum(dim=0) + (
            (word_scores * word_mask).sum(dim=1) / word_mask.sum(dim=0)
        )


def grid_centres(regions: int) -> Tensor:
    """(R, 2) x, y of the cells of a square grid, row by row. DataError when R is no square."""
    side = math.isqrt(regions)
    if side**2 != regions:
        raise DataError(
            f"network gsmn: {regions} regions without boxes are no square grid; ingest features with boxes, or a grid "
            "such as 6 x 6."
        )
    steps = (torch.arange(side) + 0.5) / side
    return torch.stack((steps.repeat(side), steps.repeat_interleave(side)), dim=1)


def _slices(number: int, size: int) -> Iterator[slice]:
    return (slice(start, min(start + size, number)) for start in range(0, number, size))


def _steps(lengths: list[int], numbers_per_word: int) -> Iterator[slice]:
    """Slices of captions, longest first, that keep a step within its numbers."""
    start = 0
    while start < len(lengths):
        fitting = _NUMBERS_PER_STEP // (numbers_per_word * lengths[start])
        stop = min(start + max(1, min(fitting, _MOST_CAPTIONS)), len(lengths))
        yield slice(start, stop)
        start = stop
