"""Malali and Keller's network: a CNN's vector mapped to the joint space, both end states of a Bi-GRU over the words."""

from __future__ import annotations

from torch import nn

from vsetune.networks.encoded import Encoded
from vsetune.networks.inputs import CaptionInputs, ImageInputs
from vsetune.networks.malali_keller.spec import MalaliKellerSpec
from vsetune.networks.network_base import Network, NetworkGroup, backbone_groups, groups_beside, unit_length
from vsetune.networks.network_building import register
from vsetune.networks.parts.image_vectors import ImageVectors
from vsetune.networks.parts.polysemous import end_states
from vsetune.networks.parts.recurrence import embed_words, word_embedding


@register(MalaliKellerSpec)
class MalaliKeller(Network):
    """v = n(W n(x) + b), t = n(end states); x is the average of the CNN's last map, or of the stored regions.

    The paper gives the text branch 1,024 numbers: here 512 of each direction, side by side.
    """

    def __init__(self, spec: MalaliKellerSpec, *, width: int, vocabulary_size: int) -> None:
        super().__init__(spec)
        self._backbone = spec.backbone
        self.image_vectors = ImageVectors(
            spec.backbone if spec.image_input == "pixels" else None, width=width, embedding_size=spec.embedding_size
        )
        self.words = word_embedding(vocabulary_size, spec.word_size)
        self.gru = nn.GRU(spec.word_size, spec.embedding_size // 2, batch_first=True, bidirectional=True)

    def encode_images(self, images: ImageInputs) -> Encoded:
        """(n, D)."""
        return Encoded(self.image_vectors(images))

    def encode_captions(self, captions: CaptionInputs) -> Encoded:
        """(m, D)."""
        words = embed_words(self.words, captions.tokens, captions.lengths_on_host)
        return Encoded(unit_length(end_states(self.gru, words, "final")))

    def parameter_groups(self) -> list[NetworkGroup]:
        """The CNN frozen at first; its linear map trains from the start."""
        return groups_beside(self, backbone_groups(self.image_vectors.backbone, self._backbone))
