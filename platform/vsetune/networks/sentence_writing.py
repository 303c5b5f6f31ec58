"""Sentences written by a network, for display.

One image at a time. Letters of shapes: C sentences, L ids.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Literal

from torch import Tensor

from vsetune.networks.encoded import Encoded
from vsetune.networks.inputs import CaptionInputs

Verdict = Literal["kept", "not_among_best", "identical", "duplicate", "false_negative"]
"""The use of a sentence: it trains; it scores too low; it equals the caption; it equals an earlier one; it is true of
the image, judged by its captions."""


@dataclass(frozen=True)
class WrittenSentences:
    """C sentences, each from a masked copy of one caption, in the order in which they were written.

    tokens: (C, L) ids, as many as the caption has. masked: (C, L) ids of the copy, with the mask or a word in every
    place to fill. is_filled: (C, L) bool, these places. verdicts: C of them. scores: (C,) with the image.
    """

    tokens: Tensor
    masked: Tensor
    is_filled: Tensor
    verdicts: list[Verdict]
    scores: Tensor


class SentenceWriting(ABC):
    """Requires a network in evaluation mode; its results have no gradient, and it changes no parameter.

    about: how it writes, a sentence for people. lacks: what it cannot show and why, one sentence each.
    """

    about: str
    lacks: list[str]

    @abstractmethod
    def write(self, image: Encoded, caption: CaptionInputs) -> WrittenSentences | None:
        """As in training, but without dropout; one image and one caption of it. None where it writes none.

        Uses torch's global generator. Without `siblings` no other caption of the image is known.
        """
