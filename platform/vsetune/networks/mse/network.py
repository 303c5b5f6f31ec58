"""MSE** (Huteau et al. 2023): a CNN's vector mapped to the joint space, end states of a GRU over the words."""

from __future__ import annotations

import math

from torch import nn

from vsetune.networks.encoded import Encoded
from vsetune.networks.inputs import CaptionInputs, ImageInputs
from vsetune.networks.mse.spec import MseSpec
from vsetune.networks.network_base import Network, NetworkGroup, backbone_groups, groups_beside, unit_length
from vsetune.networks.network_building import register
from vsetune.networks.parts.image_vectors import ImageVectors
from vsetune.networks.parts.recurrence import embed_words, run_gru

_RELEASED_MEAN = 1.0
"""Of word embeddings in the released code, where the paper has 0."""


@register(MseSpec)
class Mse(Network):
    """v = n(W n(x) + b), t = n(last GRU state); x is the average of the CNN's last map, or of the stored regions.

    `bi_sum`: t = n(last state forwards + last state backwards), both of D numbers.
    """

    def __init__(self, spec: MseSpec, *, width: int, vocabulary_size: int) -> None:
        super().__init__(spec)
        self._backbone = spec.backbone
        self.image_vectors = ImageVectors(
            spec.backbone if spec.image_input == "pixels" else None, width=width, embedding_size=spec.embedding_size
        )
        self.words = nn.Embedding(vocabulary_size, spec.word_size)
        mean = _RELEASED_MEAN if spec.embedding_start == "released" else 0.0
        nn.init.normal_(self.words.weight, mean, math.sqrt(1 / spec.word_size))
        is_both = spec.text == "bi_sum"
        self.gru = nn.GRU(spec.word_size, spec.embedding_size, batch_first=True, bidirectional=is_both)

    def encode_images(self, images: ImageInputs) -> Encoded:
        """(n, D)."""
        return Encoded(self.image_vectors(images))

    def encode_captions(self, captions: CaptionInputs) -> Encoded:
        """(m, D)."""
        words = embed_words(self.words, captions.tokens, captions.lengths_on_host)
        _, ends = run_gru(self.gru, words)  # (directions, m, D)
        return Encoded(unit_length(ends.sum(dim=0)))

    def parameter_groups(self) -> list[NetworkGroup]:
        """The CNN frozen until late; its linear map trains from the start."""
        return groups_beside(self, backbone_groups(self.image_vectors.backbone, self._backbone))
