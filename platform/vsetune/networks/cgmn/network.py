"""CGMN (Cheng et al. 2022): graph convolution over regions and over words, then a GRU over the nodes of each graph.

    image    E = W x + b, normalised over the regions; V = four learned-relation blocks on E
             with the spatial graph: V = normalised (V + two blocks on E along boxes that overlap) / 2
             v = n(BN(last state of a GRU over V))
    caption  h = word states of a Bi-GRU (mean of both directions); U = one block on h along the parse
             t = n(last state of a GRU over U)
    S_ij = v_i t_j

Retrieval compares v and t alone. The nodes V and U meet in `matching_loss`, in training only.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor, nn

from vsetune.errors import DataError
from vsetune.networks.cgmn.node_matching import node_matching_loss, node_matching_scores
from vsetune.networks.cgmn.spec import CgmnSpec
from vsetune.networks.cgmn.weighted_graph import (
    WeightedGraph,
    cosine_weights,
    neighbouring,
    overlapping,
    released_weights,
)
from vsetune.networks.encoded import Encoded
from vsetune.networks.inputs import CaptionInputs, ImageInputs
from vsetune.networks.network_base import (
    Network,
    TrainingItems,
    at_least_float32,
    divided_by_length,
    region_mask,
    unit_length,
)
from vsetune.networks.network_building import register
from vsetune.networks.network_spec import NetworkSpec
from vsetune.networks.parts.batch_normalization import normalize_rows
from vsetune.networks.parts.linear import xavier_linear
from vsetune.networks.parts.packing import pack
from vsetune.networks.parts.real_parts import RealParts
from vsetune.networks.parts.region_graph import RegionGraph, normalized_regions
from vsetune.networks.parts.words import embed_words, last_state, word_embedding, word_states

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
        self.image_norm = nn.BatchNorm1d(size)
        self.words = word_embedding(vocabulary_size, spec.word_size)
        self.word_gru = nn.GRU(spec.word_size, size, batch_first=True, bidirectional=True)
        self.word_graph = WeightedGraph(size)
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
        regions = images.features.shape[1]
        side = math.isqrt(regions)
        if side * side != regions:
            raise DataError(
                f"network.spatial_graph: got {regions} regions without boxes, need boxes or a square grid of cells; "
                "ingest features with boxes, or set spatial_graph: false."
            )
        return neighbouring(side, images.features.device)


def _are_joined(captions: CaptionInputs, words: int) -> Tensor:
    """(m, L, L) bool: the parse joins two words, or they are the same."""
    if captions.dependencies is None:
        raise DataError(
            "network.caption_graph: dependencies needs the parses of the captions, the data set has none; add them to "
            "the data set, or set caption_graph: dense."
        )
    joined = captions.dependencies[:, :words, :words]
    return joined | torch.eye(words, dtype=torch.bool, device=joined.device)


def _nodes_and_mask(items: Encoded) -> tuple[Tensor, Tensor]:
    if not isinstance(items, GraphEncoded) or items.nodes is None or items.counts is None:
        raise TypeError("CGMN's matching_loss needs images and captions encoded in training mode")
    return items.nodes, region_mask(items.counts, items.nodes.shape[1])
