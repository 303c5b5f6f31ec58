"""What a network is that scores pairs from regions and words: no joint embedding."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Literal

from torch import Tensor, nn

from vsetune.networks.encoded import Encoded
from vsetune.networks.inputs import CaptionInputs, ImageInputs


class MatchingNetwork(nn.Module, ABC):
    """Encodes regions and words apart, then scores every image with every caption.

    In evaluation mode a score depends on its own image and caption alone, never on the batch nor on padding.
    """

    kind: Literal["score"] = "score"
    embedding_size: int

    @abstractmethod
    def encode_images(self, images: ImageInputs) -> Encoded:
        """Regions of every image."""

    @abstractmethod
    def encode_captions(self, captions: CaptionInputs) -> Encoded:
        """Words of every caption."""

    @abstractmethod
    def similarity(self, images: Encoded, captions: Encoded) -> Tensor:
        """(n, m) scores, larger is closer, float32 or wider, with gradient; vectorised over all pairs."""
