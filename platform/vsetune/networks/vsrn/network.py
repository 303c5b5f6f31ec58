"""VSRN (Li et al. 2019): regions reason over a graph and are read in order by a GRU; a GRU reads the words.

Letters of shapes: N images, M captions, R regions, D dimensions.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor, nn

from vsetune.networks.encoded import Encoded
from vsetune.networks.inputs import CaptionInputs, ImageInputs
from vsetune.networks.network_base import Network, TrainingItems, at_least_float32, unit_length
from vsetune.networks.network_building import register
from vsetune.networks.network_spec import NetworkSpec
from vsetune.networks.parts.batch_normalization import normalize_rows
from vsetune.networks.parts.linear import xavier_linear
from vsetune.networks.parts.network_devices import on_host
from vsetune.networks.parts.packing import pack
from vsetune.networks.parts.real_parts import RealParts
from vsetune.networks.parts.region_graph import RegionGraph, normalized_regions
from vsetune.networks.parts.words import embed_words, last_state, word_embedding
from vsetune.networks.vsrn.captioning import CaptionGenerator
from vsetune.networks.vsrn.spec import VsrnSpec

_BLOCKS = 4


@dataclass(frozen=True)
class ReasonedImages(Encoded):
    """Embeddings with the regions they come from, which the caption generator reads; only made in training.

    regions: (N, R, D) after the graph, zero where padded. counts: (N,) real regions, and host_counts on the CPU.
    """

    regions: Tensor | None = None
    counts: Tensor | None = None
    host_counts: Tensor | None = None


@register(VsrnSpec)
class Vsrn(Network):
    """v = n(last state of a GRU over reasoned regions), t = n(last state of a GRU over words).

    The order of regions matters: of detections it is the order of the data set, of grid cells row by row.
    """

    def __init__(self, spec: VsrnSpec, *, width: int, vocabulary_size: int) -> None:
        super().__init__(spec)
        size = spec.embedding_size
        self._spec = spec
        self.region_map = xavier_linear(width, size)
        self.graph = nn.ModuleList(RegionGraph(size, variant=spec.graph) for _ in range(_BLOCKS))
        self.region_gru = nn.GRU(size, size, batch_first=True)
        self.image_norm = nn.BatchNorm1d(size) if spec.mode == "flickr30k" else None
        self.words = word_embedding(vocabulary_size, spec.word_size)
        self.word_gru = nn.GRU(spec.word_size, size, batch_first=True)
        # last, so that the parameters above are the same with and without it
        has_generator = spec.captioning_weight > 0
        self.generator = CaptionGenerator(spec, vocabulary_size=vocabulary_size) if has_generator else None

    def encode_images(self, images: ImageInputs) -> Encoded:
        """Embeddings; in training with the regions that `captioning_loss` needs."""
        counts = images.counts.clamp_min(1)
        regions = self.reasoned(images)
        known = images.counts_on_host.clamp_min(1)
        state = last_state(self.region_gru, pack(regions, known))
        if self.image_norm is not None:
            state = normalize_rows(self.image_norm, state)
        if self.training and self.generator is not None:
            return ReasonedImages(unit_length(state), regions=regions, counts=counts, host_counts=known)
        return Encoded(unit_length(state))

    def encode_captions(self, captions: CaptionInputs) -> Encoded:
        words = embed_words(self.words, captions.tokens, captions.lengths_on_host)
        return Encoded(unit_length(last_state(self.word_gru, words)))

    def begin_phase(self, spec: NetworkSpec) -> None:
        assert isinstance(spec, VsrnSpec)
        self._spec = spec

    def auxiliary_losses(self, items: TrainingItems) -> dict[str, Tensor]:
        """`captioning`, unless its weight is 0."""
        if self.generator is None or self._spec.captioning_weight == 0:
            return {}
        return {"captioning": self.captioning_loss(items.images, items.words, items.caption_rows)}

    def captioning_loss(self, images: Encoded, captions: CaptionInputs, caption_rows: Tensor) -> Tensor:
        """Scalar to add to the retrieval loss: `captioning_weight` times the loss of generating each caption.

        images: output of `encode_images` in training. caption_rows: (M,) row of each caption's image. The reference
        adds a mean over captions to a hinge summed over the batch, weight 1. Unlike it, parameters are registered once:
        its Adam takes two steps per batch on those of the generator.
        """
        if self.generator is None:
            return images.vectors.new_zeros(())
        if not isinstance(images, ReasonedImages) or images.regions is None or images.counts is None:
            raise TypeError("VSRN's captioning_loss needs images encoded in training mode")
        items = images.regions, on_host(images.counts, images.host_counts), captions.tokens, captions.lengths_on_host
        loss: Tensor = self.generator(*items, caption_rows)
        return self._spec.captioning_weight * loss

    def reasoned(self, images: ImageInputs) -> Tensor:
        """(N, R, D) regions behind the graph, normalised, zero where padded."""
        real = RealParts.of_lengths(images.counts_on_host.clamp_min(1), images.features.shape[1], images.features)
        regions = at_least_float32(self.region_map(images.features)).masked_fill(~real.mask[..., None], 0.0)
        if self._spec.mode == "coco":
            regions = normalized_regions(regions, self._spec.region_normalization)
        for block in self.graph:
            regions = block(regions, real)
        return normalized_regions(regions, self._spec.region_normalization)
