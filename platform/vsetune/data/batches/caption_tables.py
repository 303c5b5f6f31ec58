"""Caption data stored outside the shards: parses, phrases and word pieces of all captions of a split."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from vsetune.config.sources.network_reads import NetworkReads
from vsetune.data.captions.parses import word_heads
from vsetune.data.captions.phrases import CaptionPhrases, caption_phrases
from vsetune.data.captions.piece_words import piece_words
from vsetune.data.captions.word_pieces import word_pieces
from vsetune.data.stored.dataset import Dataset


@dataclass(frozen=True)
class PieceTables:
    """ids: (captions, T) word pieces. words: (captions, T) the word of each piece; None where there are no phrases."""

    ids: np.ndarray
    words: np.ndarray | None = None


@dataclass(frozen=True)
class CaptionTables:
    """Row = caption id; None where the network does not read it. mirrored_pieces: of captions of mirrored images.

    phrases: None too where the data set has none.
    """

    heads: np.ndarray | None = None
    pieces: PieceTables | None = None
    mirrored_pieces: PieceTables | None = None
    phrases: CaptionPhrases | None = None


def caption_tables(dataset: Dataset, split: str, reads: NetworkReads, *, mirrored: bool = False) -> CaptionTables:
    """Open the tables, making them first if needed. Keep the result if the split is read more than once.

    mirrored: word pieces of mirrored captions too. DataError for a data set without parses of these captions, or with
    damaged phrases, ConfigError for a text model that is not there. Missing phrases are logged.
    """
    heads = word_heads(dataset, split) if reads.dependencies else None
    found = caption_phrases(dataset, split) if reads.phrases else None
    phrases = found if found is not None and found.codes is not None else None
    if reads.word_pieces is None:
        return CaptionTables(heads, phrases=phrases)
    turned = _pieces(dataset, split, reads, phrases, mirrored=True) if mirrored else None
    return CaptionTables(heads, _pieces(dataset, split, reads, phrases), turned, phrases)


def _pieces(
    dataset: Dataset, split: str, reads: NetworkReads, phrases: CaptionPhrases | None, *, mirrored: bool = False
) -> PieceTables:
    assert reads.word_pieces is not None
    ids = np.asarray(word_pieces(dataset, split, reads.word_pieces, mirrored=mirrored))
    if phrases is None:
        return PieceTables(ids)
    return PieceTables(ids, np.asarray(piece_words(dataset, split, reads.word_pieces, mirrored=mirrored)))
