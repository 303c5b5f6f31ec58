"""What batches take from beside the shards: parses and word pieces of all captions of a split."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from vsetune.config.sources.network_reads import NetworkReads
from vsetune.data.captions.parses import word_heads
from vsetune.data.captions.word_pieces import word_pieces
from vsetune.data.stored.dataset import Dataset


@dataclass(frozen=True)
class CaptionTables:
    """Row = caption id; None where the network does not read it. mirrored_pieces: of captions of mirrored images."""

    heads: np.ndarray | None = None
    pieces: np.ndarray | None = None
    mirrored_pieces: np.ndarray | None = None


def caption_tables(dataset: Dataset, split: str, reads: NetworkReads, *, mirrored: bool = False) -> CaptionTables:
    """Opened, and made first where need be; to be kept by whoever reads the split more than once.

    mirrored: word pieces of mirrored captions too. DataError for a data set without parses of these captions,
    ConfigError for a text model that is not there.
    """
    heads = word_heads(dataset, split) if reads.dependencies else None
    if reads.word_pieces is None:
        return CaptionTables(heads)
    pieces = np.asarray(word_pieces(dataset, split, reads.word_pieces))
    turned = np.asarray(word_pieces(dataset, split, reads.word_pieces, mirrored=True)) if mirrored else None
    return CaptionTables(heads, pieces, turned)
