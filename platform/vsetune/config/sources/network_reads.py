"""The inputs of a network besides image features and caption words, as one value.

Its spec declares it (`NetworkSpec.reads`); validation, the reader of batches and the pages of a trial follow it.
"""

from __future__ import annotations

from dataclasses import dataclass

from vsetune.config.sources.pixel_input import PixelInput
from vsetune.config.sources.text_model import TextModel
from vsetune.errors import ConfigError


@dataclass(frozen=True)
class NetworkReads:
    """By default stored features of regions, and words as ids of the data set's vocabulary.

    boxes: of regions, if the data set has them; otherwise the regions are a grid. dependencies: parses of the captions.
    pixels: photographs instead of features and boxes. word_pieces: of this text model, instead of words. siblings: in
    training, beside each caption the ids of all other captions of its image. phrases: of the captions, in training and
    if the data set has them; without them the network uses single words.
    ConfigError for parses together with word pieces: parses join words.
    """

    boxes: bool = False
    dependencies: bool = False
    pixels: PixelInput | None = None
    word_pieces: TextModel | None = None
    siblings: bool = False
    phrases: bool = False

    def __post_init__(self) -> None:
        if self.dependencies and self.word_pieces is not None:
            raise ConfigError(
                "network: reads dependency parses and word pieces, need one of them: parses join words, not word "
                "pieces; leave one of them out."
            )

    @property
    def swaps_sides(self) -> bool:
        """Whether a photograph that is mirrored in training has other captions."""
        return self.pixels is not None and self.pixels.swaps_sides


FEATURES_AND_WORDS = NetworkReads()
"""Stored features and words only."""
