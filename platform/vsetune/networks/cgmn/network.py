"""CGMN (Cheng et al. 2022): graph convolution over regions and words, a GRU over the nodes, node matching."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor, nn

from vsetune.config.component_specs import NetworkSpec
from vsetune.errors import DataError
from vsetune.metrics.vectors import lengths
from vsetune.networks.cgmn.spec import CgmnSpec
from vsetune.networks.encoded import Encoded
from vsetune.networks.inputs import CaptionInputs, ImageInputs, square_side
from vsetune.networks.network_base import (
    Network,
    TrainingItems,
    at_least_float32,
    divided_by_length,
    region_mask,
    unit_length,
)
from vsetune.networks.network_building import register
from vsetune.networks.parts.batch_normalization import SharedBatchNorm, normalize_rows
from vsetune.networks.parts.layers import xavier_linear
from vsetune.networks.parts.packing import RealParts, pack
from vsetune.networks.parts.recurrence import embed_words, last_state, word_embedding, word_states
from vsetune.networks.parts.region_graph import RegionGraph, normalized_regions

_RELATION_BLOCKS, _SPATIAL_BLOCKS = 4, 2
_LEAST = 1e-8
"""Length of a node in the released node matching."""


@dataclass(frozen=True)
class GraphEncoded(Encoded):
    """Embeddings with the nodes they were read from, which `matching_loss` compares; only made in training.

    nodes: (n, P, D) regions or words after the convolutions, zero where padded. counts: (n,) real nodes.
    """

    nodes: Tensor | None = None
    counts: Tensor | None = None


@register(CgmnSpec)
class Cgmn(Network):
    """Blocks change nothing at the start, so a new network is a GRU over mapped regions and two GRUs over words.

    The order of regions matters: of detections it is the order of the data set, of grid cells row by row.
    """

    def __init__(self, spec: CgmnSpec, *, width: int, vocabulary_size: int) -> None:
        super().__init__(spec)
        size = spec.embedding_size
        self._spec = spec
        self._is_guarded = spec.norm == "guarded"
        self._unit = unit_length if self._is_guarded else divided_by_length
        self.region_map = xavier_linear(width, size)
        self.relations = nn.ModuleList(RegionGraph(size, variant="released") for _ in range(_RELATION_BLOCKS))
        self.image_gru = nn.GRU(size, size, batch_first=True)
        self.image_norm = SharedBatchNorm(size)
        self.words = word_embedding(vocabulary_size, spec.word_size)
        self.word_gru = nn.GRU(spec.word_size, size, batch_first=True, bidirectional=True)
        self.word_graph = WeightedGraph(size, counts_padding=spec.caption_statistics == "padded")
        self.caption_gru = nn.GRU(size, size, batch_first=True)
        # last, so that the parameters above are the same with and without it
        self.spatial = nn.ModuleList(WeightedGraph(size) for _ in range(_SPATIAL_BLOCKS if spec.spatial_graph else 0))

    def encode_images(self, images: ImageInputs) -> Encoded:
        """(n, D) unit vectors; in training with the nodes that `matching_loss` needs."""
        counts = images.counts.clamp_min(1)
        nodes = self.image_nodes(images)
        packed = pack(nodes, images.counts_on_host.clamp_min(1))
        state = normalize_rows(self.image_norm, last_state(self.image_gru, packed))
        return self._encoded(self._unit(state), nodes, counts)

    def encode_captions(self, captions: CaptionInputs) -> Encoded:
        """(m, D) unit vectors, likewise. DataError without parses, unless the caption graph is dense."""
        nodes = self.caption_nodes(captions)
        vectors = self._unit(last_state(self.caption_gru, pack(nodes, captions.lengths_on_host)))
        return self._encoded(vectors, nodes, captions.lengths)

    def begin_phase(self, spec: NetworkSpec) -> None:
        assert isinstance(spec, CgmnSpec)
        self._spec = spec

    def auxiliary_losses(self, items: TrainingItems) -> dict[str, Tensor]:
        """`matching`, unless its weight is 0. The batch consists of pairs."""
        if self._spec.matching_weight == 0:
            return {}
        return {"matching": self.matching_loss(items.images, items.captions, items.negatives)}

    def matching_loss(self, images: Encoded, captions: Encoded, negatives: Tensor) -> Tensor:
        """Scalar to add to the retrieval loss: `matching_weight` times the node-matching loss of B pairs.

        images, captions: outputs of both encoders in training. negatives: (B, B) bool, False on the diagonal and for
        pairs without a term, such as other captions of the same image. Raises TypeError for items without nodes.
        """
        if self._spec.matching_weight == 0:
            return images.vectors.new_zeros(())
        unit = unit_length if self._is_guarded else partial(divided_by_length, least=_LEAST)
        scores = node_matching_scores(*_nodes_and_mask(images), *_nodes_and_mask(captions), unit)
        return self._spec.matching_weight * node_matching_loss(scores, negatives, margin=self._spec.matching_margin)

    def image_nodes(self, images: ImageInputs) -> Tensor:
        """V: (n, R, D). DataError for the spatial graph of regions without boxes that are no square grid."""
        over = self._spec.region_normalization
        real = RealParts.of_lengths(images.counts_on_host.clamp_min(1), images.features.shape[1], images.features)
        mask = real.mask
        mapped = at_least_float32(self.region_map(images.features)).masked_fill(~mask[..., None], 0.0)
        start = nodes = normalized_regions(mapped, over, self._unit)
        for block in self.relations:
            nodes = block(nodes, real)
        if not self._spec.spatial_graph:
            return nodes
        weights = self._edge_weights(start).masked_fill(~self._are_near(images), 0.0)
        along_boxes = start
        for block in self.spatial:
            along_boxes = block(along_boxes, weights, mask, counted=real)
        return normalized_regions((nodes + along_boxes) / 2, over, self._unit)

    def caption_nodes(self, captions: CaptionInputs) -> Tensor:
        """U: (m, L, D), L the longest caption."""
        states = word_states(self.word_gru, embed_words(self.words, captions.tokens, captions.lengths_on_host))
        states = at_least_float32(states)
        real = RealParts.of_lengths(captions.lengths_on_host, states.shape[1], states)
        weights = self._edge_weights(states)
        if self._spec.caption_graph == "dependencies":
            weights = weights.masked_fill(~_are_joined(captions, states.shape[1]), 0.0)
        counted = real
        if self._spec.caption_statistics == "padded":
            counted = RealParts.of_mask(torch.ones(states.shape[:2], dtype=torch.bool), states)
        nodes: Tensor = self.word_graph(states, weights, real.mask, counted=counted)
        return nodes

    def _encoded(self, vectors: Tensor, nodes: Tensor, counts: Tensor) -> Encoded:
        if self.training and self._spec.matching_weight > 0:
            return GraphEncoded(vectors, nodes=nodes, counts=counts)
        return Encoded(vectors)

    def _edge_weights(self, nodes: Tensor) -> Tensor:
        if self._spec.edge_weights == "released":
            return released_weights(nodes, is_guarded=self._is_guarded)
        return cosine_weights(nodes)

    def _are_near(self, images: ImageInputs) -> Tensor:
        if images.boxes is not None:
            return overlapping(images.boxes, self._spec.box_overlap)
        side = square_side(
            images.features.shape[1], where="network.spatial_graph", instead=", or set spatial_graph: false"
        )
        return neighbouring(side, images.features.device)


def _are_joined(captions: CaptionInputs, words: int) -> Tensor:
    """(m, L, L) bool: the parse joins two words, or they are the same."""
    if captions.dependencies is None:
        raise DataError(
            "VSE-N006", "network.{key}: {value} needs the dependency parse of every caption, the data set has none; "
            "ingest it with parses, or use dense.", key="caption_graph", value="dependencies",
        )
    joined = captions.dependencies[:, :words, :words]
    return joined | torch.eye(words, dtype=torch.bool, device=joined.device)


def _nodes_and_mask(items: Encoded) -> tuple[Tensor, Tensor]:
    if not isinstance(items, GraphEncoded) or items.nodes is None or items.counts is None:
        raise TypeError("CGMN's matching_loss needs images and captions encoded in training mode")
    return items.nodes, region_mask(items.counts, items.nodes.shape[1])


_NUMBERS_PER_BLOCK = 2**24  # cosines in memory at once, 64 MiB of float32; a matter of memory only


def node_matching_scores(
    regions: Tensor, is_region: Tensor, words: Tensor, is_word: Tensor, unit: Callable[[Tensor], Tensor] = unit_length
) -> Tensor:
    """(n, m) Q, at most the number of words. regions: (n, R, D). words: (m, L, D). is_region, is_word: bool masks.

    unit: function that normalises vectors to unit length. The gradient of a word reaches one region, also on a tie.
    Computed in blocks of captions.
    """
    regions, words = unit(regions), unit(words)
    at_once = max(1, _NUMBERS_PER_BLOCK // (is_region.numel() * words.shape[1]))
    scores = []
    with torch.autocast(regions.device.type, enabled=False):
        for start in range(0, len(words), at_once):
            some, are_words = words[start : start + at_once], is_word[start : start + at_once]
            cosines = (regions.flatten(0, 1) @ some.flatten(0, 1).T).view(*is_region.shape, *are_words.shape)
            found = cosines.masked_fill(~is_region[:, :, None, None], float("-inf")).max(dim=1).values
            scores.append(found.masked_fill(~are_words, 0.0).sum(dim=2))
    return torch.cat(scores, dim=1)


def node_matching_loss(scores: Tensor, negatives: Tensor, *, margin: float) -> Tensor:
    """Sum of the hinges of both directions. Scalar >= 0.

    scores: (B, B) Q of pairs. negatives: (B, B) bool, False on the diagonal; where False there is no term.
    """
    matched = scores.diagonal()
    hinges = (margin + scores - matched[:, None]).relu() + (margin + scores - matched[None, :]).relu()
    return hinges.masked_fill(~negatives, 0.0).sum()


_SHORTEST = 1e-8


class WeightedGraph(nn.Module):
    """One block: x_a + BN(W y_a + b) with y_a = sum over b of w_ab g(x_b). A new block returns its input."""

    def __init__(self, size: int, *, counts_padding: bool = False) -> None:
        super().__init__()
        self.g, self.w = nn.Linear(size, size), nn.Linear(size, size)
        self.norm = nn.BatchNorm1d(size) if counts_padding else SharedBatchNorm(size)
        nn.init.zeros_(self.norm.weight)
        nn.init.zeros_(self.norm.bias)

    def forward(self, nodes: Tensor, weights: Tensor, mask: Tensor, *, counted: RealParts) -> Tensor:
        """(n, P, D), zero where padded. weights: (n, P, P), row a gathers from column b, 0 in padded columns.

        mask: (n, P) bool, True for real nodes. counted: the nodes that BN computes its statistics from: the real ones,
        or all; it includes the mask.
        """
        gathered = weights.to(nodes.dtype) @ self.g(nodes)
        rows = normalize_rows(self.norm, self.w(counted.rows(gathered)))
        return nodes + counted.placed(rows) * mask[..., None]


def released_weights(nodes: Tensor, *, is_guarded: bool = True) -> Tensor:
    """(n, P, P) x_a x_b / |x_b|^2, lengths at least 1e-8; 0 where x_b is zero. is_guarded: and no gradient there, where
    the released code has one of 1e16. nodes: float32 or wider."""
    norms = lengths(nodes)
    scaled = nodes / norms.clamp_min(_SHORTEST).square()
    if is_guarded:
        scaled = torch.where(norms <= _SHORTEST, nodes.new_zeros(()), scaled)
    with torch.autocast(nodes.device.type, enabled=False):
        return nodes @ scaled.mT


def cosine_weights(nodes: Tensor) -> Tensor:
    """(n, P, P) cosines of the nodes; 0 with a zero node. nodes: float32 or wider."""
    unit = unit_length(nodes)
    with torch.autocast(nodes.device.type, enabled=False):
        return unit @ unit.mT


def overlapping(boxes: Tensor, threshold: float) -> Tensor:
    """(n, R, R) bool: intersection over union of two boxes is at least the threshold; True on the diagonal.

    boxes: (n, R, 4) x1, y1, x2, y2. A box without area overlaps no other.
    """
    low = torch.maximum(boxes[:, :, None, :2], boxes[:, None, :, :2])
    high = torch.minimum(boxes[:, :, None, 2:], boxes[:, None, :, 2:])
    shared = (high - low).clamp_min(0).prod(dim=-1)
    areas = (boxes[..., 2:] - boxes[..., :2]).prod(dim=-1)
    union = areas[:, :, None] + areas[:, None, :] - shared
    overlap = torch.where(union > 0, shared / union, 0.0)
    return (overlap >= threshold) | torch.eye(boxes.shape[1], dtype=torch.bool, device=boxes.device)


def neighbouring(side: int, device: torch.device) -> Tensor:
    """(side^2, side^2) bool: two cells of a square grid, row by row, touch at an edge or a corner, or are the same."""
    cells = torch.arange(side * side, device=device)
    rows, columns = cells // side, cells % side
    is_near = (rows[:, None] - rows).abs() <= 1
    return is_near & ((columns[:, None] - columns).abs() <= 1)
