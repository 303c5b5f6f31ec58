"""Ids of captions in readable form: words of the data set, or pieces of a text model."""

from __future__ import annotations

from vsetune.config.sources.text_model import TextModel
from vsetune.data.captions.word_pieces import WordPieces
from vsetune.data.stored.dataset import Dataset
from vsetune.data.stored.vocabulary import SPECIAL_WORDS

_CONTINUES = "##"


class ReadableIds:
    """text_model: the model of the ids' pieces; None for words of the data set. ConfigError for a missing model."""

    def __init__(self, dataset: Dataset, text_model: TextModel | None) -> None:
        self._words = dataset.vocabulary.words
        self._pieces = None if text_model is None else WordPieces(text_model)

    @property
    def are_words(self) -> bool:
        """Whether each id is a word of the data set."""
        return self._pieces is None

    def text(self, number: int) -> tuple[str, bool]:
        """The word or piece, and whether it continues the one before it; special tokens are in brackets."""
        if self._pieces is None:
            word = self._words[number]
            return (f"[{word[1:-1]}]" if number < len(SPECIAL_WORDS) else word), False
        (piece,) = self._pieces.pieces([number])
        if piece.startswith(_CONTINUES):
            return piece.removeprefix(_CONTINUES), True
        return (piece.lower() if piece == "[MASK]" else piece), False
