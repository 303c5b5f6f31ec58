"""Batches gathered from the bank of a split: bit for bit those that the reader of shards makes, in its order."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

import numpy as np
import torch

from vsetune.config.sources.network_reads import NetworkReads
from vsetune.data.batches.assembly import padded_groups, phrases_of
from vsetune.data.batches.bank_arrays import BankArrays, bank_arrays
from vsetune.data.batches.batch import Batch
from vsetune.data.batches.caption_tables import CaptionTables
from vsetune.data.batches.order import BatchUnit, buffer_size, in_rows, shuffled
from vsetune.data.batches.sample_stream import shuffled_images
from vsetune.data.captions.parses import joined_words
from vsetune.data.captions.piece_words import words_of_ids
from vsetune.data.stored.bank_file import SplitBank
from vsetune.data.stored.banks import bank_of
from vsetune.data.stored.dataset import Dataset
from vsetune.data.stored.manifest import ShardInfo, SplitInfo

Row = tuple[int, range]
"""An image of the split, and those of its captions that come with it."""


@dataclass(frozen=True)
class BankRows:
    """A bank with its arrays where batches are gathered."""

    bank: SplitBank
    arrays: BankArrays


def bank_rows(
    dataset: Dataset, split: str, reads: NetworkReads, *, device: torch.device, semantics: np.ndarray | None = None
) -> BankRows | None:
    """What batches of a split can be gathered from, made first where need be; None where they come from the shards:
    those of photographs always do. Errors as of `bank_of`."""
    bank = None if reads.pixels is not None else bank_of(dataset, split)
    if bank is None:
        return None
    return BankRows(bank, bank_arrays(bank, semantics, device, device_share=dataset.reading.device_share))


@dataclass(frozen=True)
class Gathering:
    """What batches are made of. has_semantics: the arrays bring them, and they are asked for."""

    rows: BankRows
    reads: NetworkReads
    tables: CaptionTables
    has_semantics: bool = False

    def batch(self, chosen: list[Row]) -> Batch:
        """These rows as one batch, on the device of the arrays."""
        bank, arrays, tables = self.rows.bank, self.rows.arrays, self.tables
        counts = [len(captions) for _, captions in chosen]
        rows = np.array([image for image, _ in chosen], np.int64)
        ids = np.repeat(bank.first_captions[rows], counts)
        ids += np.array([number for _, captions in chosen for number in captions], np.int64)
        own_lengths = bank.starts[ids + 1] - bank.starts[ids]
        lengths, words = self._words(ids, own_lengths)
        region_counts, caption_rows = bank.region_counts[rows], np.repeat(np.arange(len(rows)), counts)
        images, captions, *others = arrays.sent_together(rows, ids, region_counts, words, lengths, caption_rows)
        has_boxes = self.reads.boxes and bank.boxes is not None
        is_here = images.device.type == "cpu"
        return Batch(
            image_features=arrays.features(images),
            region_counts=others[0],
            image_ids=images,
            captions=others[1],
            caption_lengths=others[2],
            caption_rows=others[3],
            caption_ids=captions,
            semantic_vectors=arrays.vectors(captions) if self.has_semantics else None,
            boxes=arrays.boxes(images) if has_boxes else None,
            dependencies=None if tables.heads is None else arrays.sent(joined_words(tables.heads[ids], lengths)),
            phrases=self._phrases(ids, own_lengths, lengths),
            siblings=arrays.sent(self._siblings(rows, counts, ids)) if self.reads.siblings else None,
            host_region_counts=None if is_here else torch.from_numpy(region_counts),
            host_caption_lengths=None if is_here else torch.from_numpy(lengths),
        )

    def _words(self, ids: np.ndarray, own_lengths: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """((captions,) lengths, (captions, longest) ids of words, or of word pieces where they are read), int64."""
        if self.tables.pieces is None:
            return own_lengths, self.rows.bank.padded_captions(ids)
        pieces = self.tables.pieces.ids[ids]
        lengths = np.count_nonzero(pieces, axis=1).astype(np.int64)
        pieces = pieces[:, : lengths.max()].astype(np.int64)
        pieces[np.arange(pieces.shape[1]) >= lengths[:, None]] = 0
        return lengths, pieces

    def _phrases(self, ids: np.ndarray, own_lengths: np.ndarray, lengths: np.ndarray) -> torch.Tensor | None:
        if self.tables.phrases is None:
            return None
        words, pieces = words_of_ids(lengths), self.tables.pieces
        if pieces is not None and pieces.words is not None:
            words = pieces.words[ids, : lengths.max()]
        found = phrases_of(self.tables.phrases, ids.tolist(), (own_lengths - 2).tolist(), words)
        return self.rows.arrays.sent(found)

    def _siblings(self, rows: np.ndarray, counts: list[int], ids: np.ndarray) -> np.ndarray:
        """(captions, others, words) int64."""
        firsts = self.rows.bank.first_captions
        images = np.repeat(rows, counts).tolist()
        return padded_groups([
            [self._caption(other) for other in range(firsts[image], firsts[image + 1]) if other != own]
            for image, own in zip(images, ids.tolist(), strict=True)
        ])

    def _caption(self, number: int) -> np.ndarray:
        if self.tables.pieces is None:
            return self.rows.bank.caption(number)
        ids: np.ndarray = self.tables.pieces.ids[number]
        return ids[: np.count_nonzero(ids)]


def shuffled_rows(
    bank: SplitBank, info: SplitInfo, *, batch_unit: BatchUnit, seed: int, epoch: int, shuffle_pairs: int
) -> Iterator[Row]:
    """Those of one epoch, in the order of the reader of shards."""
    images = shuffled_images(_indices, info.shards, seed=seed, epoch=epoch, workers=0)
    counts = np.diff(bank.first_captions).tolist()
    rng, size = random.Random(f"items/{seed}/{epoch}"), buffer_size(info, batch_unit, shuffle_pairs)
    return shuffled(in_rows(images, counts.__getitem__, batch_unit), size, rng)


def rows_in_order(bank: SplitBank, images: Sequence[int] | None) -> Iterator[Row]:
    """Every image with all its captions, or only these."""
    wanted = range(bank.shape.images) if images is None else images
    counts = np.diff(bank.first_captions).tolist()
    return in_rows(wanted, counts.__getitem__, "images")


class GatheredBatches(Iterator[Batch]):
    """Batches of so many rows, each made when it is asked for: that takes less time than handing it over from a thread.

    skip: leave out that many batches at the start. drop_last: and a last one that is short.
    """

    def __init__(
        self, gathering: Gathering, rows: Iterator[Row], size: int, *, skip: int = 0, drop_last: bool = False
    ) -> None:
        self._gathering, self._rows, self._size, self._drop_last = gathering, rows, size, drop_last
        for _ in islice(rows, skip * size):
            pass

    def __next__(self) -> Batch:
        chosen = list(islice(self._rows, self._size))
        if not chosen or (self._drop_last and len(chosen) < self._size):
            self.close()
            raise StopIteration
        return self._gathering.batch(chosen)

    def close(self) -> None:
        """Later calls of next() find the end."""
        self._rows = iter(())

    def __enter__(self) -> GatheredBatches:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _indices(shard: ShardInfo) -> Iterator[int]:
    return iter(range(shard.first_image, shard.first_image + shard.images))
