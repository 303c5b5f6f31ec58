"""Phrases of captions, read for networks that mask them."""

from __future__ import annotations

import logging
from dataclasses import dataclass

import numpy as np

from vsetune.data.captions.parse_files import again
from vsetune.data.captions.parses import phrase_codes, read_parses
from vsetune.data.captions.phrase_rules import Phrase, decoded
from vsetune.data.stored.dataset import Dataset
from vsetune.errors import DataError

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class CaptionPhrases:
    """The phrases of a split. codes: row = caption id; None where there are only single words. place: for messages."""

    codes: np.ndarray | None
    place: str

    def of(self, caption: int, *, words: int) -> list[Phrase]:
        """The phrases found in a caption of `words` words; may be empty. DataError for damaged ones."""
        if self.codes is None:
            return []
        try:
            return decoded(self.codes[caption], words=words)
        except DataError as error:
            raise DataError(f"{self.place}: caption {caption}: {error}; {again(self.place, phrases=True)}") from error


def caption_phrases(dataset: Dataset, split: str) -> CaptionPhrases:
    """The phrases of a split. For a data set without phrases single words are used, which is logged.

    DataError if they are damaged or of other captions.
    """
    codes = phrase_codes(dataset, split)
    if codes is None:
        _log.warning("%s", lacks_phrases(dataset.path))
    return CaptionPhrases(codes, dataset.path)


def lacks_phrases(place: str) -> str:
    """The message for a data set that lacks the phrases a network reads."""
    return (
        f"{place}: has no phrases of its captions, single words are masked instead; add them: vsetune data parse "
        f"{place} --phrases"
    )


def phrases_name(dataset: Dataset) -> str:
    """The pipeline that found the phrases, or `single words`; for records of attempts."""
    parses = read_parses(dataset.path)
    return "single words" if parses is None or not parses.has_phrases else f"{parses.pipeline} {parses.version}"
