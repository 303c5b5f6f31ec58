"""Parses without spaCy: every word depends on the one before it, the second one is an object."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pytest

from vsetune.data.captions.parses import parse_dataset
from vsetune.data.captions.phrase_rules import Phrase
from vsetune.data.progress import SilentProgress


class Chain:
    version = "1"

    def heads(self, captions: Sequence[Sequence[str]]) -> Iterator[np.ndarray]:
        return (np.arange(-1, len(words) - 1, dtype=np.int16) for words in captions)

    def phrases(self, captions: Sequence[Sequence[str]]) -> Iterator[list[Phrase]]:
        return ([Phrase("object", (1,))] for _ in captions)


def parse_by_chain(path: str, monkeypatch: pytest.MonkeyPatch, *, phrases: bool = False) -> None:
    """Add parses to a data set."""
    for loads in ("load_parser", "load_phrase_finder"):
        monkeypatch.setattr(f"vsetune.data.captions.parses.{loads}", lambda pipeline: Chain())
    parse_dataset(path, "chain", phrases=phrases, progress=SilentProgress())
