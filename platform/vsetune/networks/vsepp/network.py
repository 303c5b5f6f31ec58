"""VSE++ (Faghri et al. 2018): a linear map of the image features, the last state of a GRU over the words."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from vsetune.errors import ConfigError, DataError
from vsetune.networks.encoded import Encoded
from vsetune.networks.inputs import CaptionInputs, ImageInputs
from vsetune.networks.network_base import (
    Network,
    NetworkGroup,
    at_least_float32,
    backbone_groups,
    groups_beside,
    region_mask,
    unit_length,
)
from vsetune.networks.network_building import register
from vsetune.networks.parts.backbone import Backbone
from vsetune.networks.parts.image_vectors import pixels_of
from vsetune.networks.parts.layers import xavier_linear
from vsetune.networks.parts.polysemous import mean_of_items
from vsetune.networks.parts.recurrence import embed_words, last_state, word_embedding
from vsetune.networks.vsepp.spec import VseppSpec


@register(VseppSpec)
class Vsepp(Network):
    """v = n(W x + b), t = n(last GRU state); x is the only vector, the mean of the regions, or all of them in a row.

    From photographs x is the unit-length vector of a CNN.
    """

    needs_regions = True

    def __init__(self, spec: VseppSpec, *, regions: int, width: int, vocabulary_size: int) -> None:
        super().__init__(spec)
        if spec.image_input == "global" and regions > 1:
            raise ConfigError(
                "VSE-N002", "network.image_input: global needs one vector per image, the data have {regions} regions; "
                "use mean or flatten, or ingest global features.", regions=regions,
            )
        self._spec = spec
        self._regions = regions
        self.backbone = Backbone(spec.backbone, gives="vector") if spec.image_input == "pixels" else None
        if self.backbone is not None:
            width = self.backbone.width
        self.image_map = xavier_linear(width * regions if spec.image_input == "flatten" else width, spec.embedding_size)
        self.words = word_embedding(vocabulary_size, spec.word_size)
        self.gru = nn.GRU(spec.word_size, spec.embedding_size, batch_first=True)

    def encode_images(self, images: ImageInputs) -> Encoded:
        """(n, D). DataError for `flatten` when an image has fewer regions than the others."""
        if self.backbone is not None:
            vectors = unit_length(self.backbone.vectors(pixels_of(images)[:, 0]))
        else:
            vectors = self._image_vectors(images)
        embedded = at_least_float32(self.image_map(vectors))
        if self._spec.normalize_images:
            embedded = unit_length(embedded)
        return Encoded(embedded.abs() if self._spec.absolute else embedded)

    def encode_captions(self, captions: CaptionInputs) -> Encoded:
        """(m, D)."""
        words = embed_words(self.words, captions.tokens, captions.lengths_on_host)
        embedded = unit_length(last_state(self.gru, words))
        return Encoded(embedded.abs() if self._spec.absolute else embedded)

    def parameter_groups(self) -> list[NetworkGroup]:
        """The CNN frozen at first; its linear map trains from the start."""
        return groups_beside(self, backbone_groups(self.backbone, self._spec.backbone))

    def similarity(self, images: Encoded, captions: Encoded) -> Tensor:
        """(images, captions), float32 or wider: dot products, or minus the order violations."""
        if self._spec.similarity == "cosine":
            return super().similarity(images, captions)
        return order_similarity(at_least_float32(images.vectors), at_least_float32(captions.vectors))

    def _image_vectors(self, images: ImageInputs) -> Tensor:
        features = images.features
        if self._spec.image_input == "global":
            return features[:, 0]
        if self._spec.image_input == "mean":
            return mean_of_items(features, region_mask(images.counts, features.shape[1]))
        fewest = int(images.counts_on_host.min())
        if features.shape[1] != self._regions or fewest != self._regions:
            raise DataError(
                "VSE-N003", "network.image_input: flatten needs {need} regions in every image, got one with {got}; use "
                "mean, or ingest features with a fixed number of regions.", need=self._regions, got=fewest,
            )
        return features.flatten(start_dim=1)


_NUMBERS_PER_BLOCK = 2**22  # 16 MiB of float32; a matter of memory only


def order_similarity(images: Tensor, captions: Tensor) -> Tensor:
    """(n, m) similarities, at most 0. images: (n, D). captions: (m, D). At a violation of 0 the gradient is 0."""
    band = max(1, _NUMBERS_PER_BLOCK // max(1, captions.numel()))
    blocks = [
        checkpoint(_violations, some, captions, use_reentrant=False, preserve_rng_state=False)
        for some in torch.split(images, band)
    ]
    return -torch.cat(blocks)


def _violations(images: Tensor, captions: Tensor) -> Tensor:
    lengths: Tensor = torch.linalg.vector_norm((captions[None] - images[:, None]).relu(), dim=-1)
    return lengths
