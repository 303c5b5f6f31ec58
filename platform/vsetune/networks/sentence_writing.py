"""What a network that writes sentences of its own shows of them, and of the words that it finds wrong in a sentence.

For people to look at, one image at a time. Letters of shapes: C sentences, L ids.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Literal

from torch import Tensor

from vsetune.networks.encoded import Encoded
from vsetune.networks.inputs import CaptionInputs

Verdict = Literal["kept", "not_among_best", "identical", "duplicate", "false_negative"]
"""What becomes of a sentence: it trains; it scores too low; it is the caption itself; it was written before; it is true
of the image, as far as its captions tell."""


@dataclass(frozen=True)
class WrittenSentences:
    """C sentences, each from a masked copy of one caption, in the order in which they were written.

    tokens: (C, L) ids, as many as the caption has. masked: (C, L) ids of the copy, the mask or a word in every place to
    fill. is_filled: (C, L) bool, these places. verdicts: C of them. scores: (C,) with the image.
    """

    tokens: Tensor
    masked: Tensor
    is_filled: Tensor
    verdicts: list[Verdict]
    scores: Tensor


@dataclass(frozen=True)
class WordFindings:
    """What a network says of the words of C sentences, beside one image.

    scores: (C,). is_judged: (C, L) bool, False for start, end, padding and what is never masked; there the others mean
    nothing. unchanged: (C, L) probability that a word was not replaced; None without such a head. mended: (C, L) ids,
    the word that it would write. certainty, present: (C, L) probabilities of that word and of the one there now; all
    three None without such a head.
    """

    scores: Tensor
    is_judged: Tensor
    unchanged: Tensor | None = None
    mended: Tensor | None = None
    certainty: Tensor | None = None
    present: Tensor | None = None


class SentenceWriting(ABC):
    """Asked of a network in evaluation mode; nothing that it gives has a gradient, and it changes no parameter.

    about: how it writes, a sentence for people. lacks: what it cannot show and why, one sentence each.
    """

    about: str
    lacks: list[str]

    @abstractmethod
    def write(self, image: Encoded, caption: CaptionInputs) -> WrittenSentences | None:
        """As in training, but without dropout; one image and one caption of it. None where it writes none.

        Draws from torch's global generator. Without `siblings` no other caption of the image is known.
        """

    @abstractmethod
    def judge_words(self, image: Encoded, sentences: CaptionInputs) -> WordFindings:
        """Of one image and any number of sentences."""
