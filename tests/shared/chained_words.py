"""Parses without spaCy: `from chained_words import chain`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
import pytest

from vsetune.data.captions.parses import parse_dataset
from vsetune.data.captions.phrase_rules import Phrase
from vsetune.data.progress import SilentProgress


class Chain:
    """Every word depends on the one before it; its phrases are single words, the first is an object, all others are
    attributes. parsed: captions so far. stop_after: captions until it is killed."""

    version = "1"

    def __init__(self) -> None:
        self.parsed = 0
        self.stop_after: int | None = None

    def heads(self, captions: Iterable[list[str]]) -> Iterator[np.ndarray]:
        for words in captions:
            if self.parsed == self.stop_after:
                raise KeyboardInterrupt
            self.parsed += 1
            yield np.arange(-1, len(words) - 1, dtype=np.int16)

    def phrases(self, captions: Iterable[list[str]]) -> Iterator[list[Phrase]]:
        for heads in self.heads(captions):
            yield [Phrase("attribute" if word else "object", (word,)) for word in range(len(heads))]


@pytest.fixture
def chain(monkeypatch: pytest.MonkeyPatch) -> Chain:
    """Parses are made by a chain instead of spaCy."""
    parser = Chain()
    for loads in ("load_parser", "load_phrase_finder"):
        monkeypatch.setattr(f"vsetune.data.captions.parses.{loads}", lambda pipeline: parser)
    return parser


def parse_by_chain(path: str, *, phrases: bool = False) -> None:
    """Add parses to a data set; with the fixture `chain`."""
    parse_dataset(path, "chain", phrases=phrases, progress=SilentProgress())
