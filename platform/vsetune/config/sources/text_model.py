"""The pre-trained text model whose tokeniser splits the captions of a network (`vsetune.data.captions.word_pieces`)."""

from __future__ import annotations

from dataclasses import dataclass

from vsetune.errors import ConfigError

KEY = "network.text_model"
"""Key of a study that names the text model of a network."""
_WORD_PIECE_TYPES = ("bert", "distilbert", "electra", "mobilebert")
"""Models whose tokeniser marks every piece of a word after the first by `##`."""


@dataclass(frozen=True)
class TextModel:
    """name: package:NAME, folder or hub id. revision: commit of the hub repository; None: its newest."""

    name: str
    revision: str | None = None

    def __str__(self) -> str:
        return self.name


def require_word_pieces(model_type: str, place: str) -> None:
    """ConfigError for a model of `transformers` of another kind. place: its place, for the message."""
    if model_type not in _WORD_PIECE_TYPES:
        raise ConfigError(
            f"{KEY}: {place}: is a {model_type}; need one that reads word pieces: {', '.join(_WORD_PIECE_TYPES)}"
        )
