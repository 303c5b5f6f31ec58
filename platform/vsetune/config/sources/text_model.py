"""The pre-trained text model whose tokeniser splits the captions of a network (`vsetune.data.captions.word_pieces`)."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class TextModel:
    """name: package:NAME, folder or hub id. revision: commit of the hub repository; None: its newest."""

    name: str
    revision: str | None = None

    def __str__(self) -> str:
        return self.name
