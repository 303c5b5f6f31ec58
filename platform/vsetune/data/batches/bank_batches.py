"""Batches gathered from the bank of a split: bit for bit equal to those of the shard reader, in the same order."""

from __future__ import annotations

import random
from collections.abc import Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, islice, pairwise
from typing import Generic, NamedTuple, TypeVar

import numpy as np
import torch

from vsetune.config.sources.trial_inputs import NetworkReads
from vsetune.data.batches.assembly import CaptionTables, padded_groups, phrases_of
from vsetune.data.batches.bank_arrays import BankArrays, bank_arrays
from vsetune.data.batches.batch import Batch
from vsetune.data.batches.epoch_shards import ShardPart, epoch_parts
from vsetune.data.batches.sample_stream import BatchUnit, buffer_size, shuffled, shuffled_images
from vsetune.data.captions.parses import joined_words
from vsetune.data.captions.word_pieces import words_of_ids
from vsetune.data.stored.bank_file import SplitBank
from vsetune.data.stored.banks import bank_of
from vsetune.data.stored.dataset import Dataset
from vsetune.data.stored.manifest import SplitInfo

Numbers = TypeVar("Numbers", np.ndarray, torch.Tensor)

_PLANNED = 8
"""Batches whose rows are looked up, and sent to a device, at once: that takes hardly longer than for one."""


@dataclass(frozen=True)
class BankRows:
    """A bank with its arrays where batches are gathered."""

    bank: SplitBank
    arrays: BankArrays


def bank_rows(
    dataset: Dataset, split: str, reads: NetworkReads, *, device: torch.device, semantics: np.ndarray | None = None
) -> BankRows | None:
    """Bank and arrays from which batches of a split are gathered, made first if needed. None if the batches come from
    the shards, as batches of photographs always do. Errors as in `bank_of`."""
    bank = None if reads.pixels is not None else bank_of(dataset, split)
    if bank is None:
        return None
    return BankRows(bank, bank_arrays(bank, semantics, device, device_share=dataset.reading.device_share))


class Plan(NamedTuple, Generic[Numbers]):
    """Indices and words of a batch, int64 as in `Batch`: on the host, or beside the arrays. ids: captions, numbered in
    the split."""

    images: Numbers
    ids: Numbers
    region_counts: Numbers
    captions: Numbers
    lengths: Numbers
    caption_rows: Numbers


@dataclass(frozen=True)
class Gathering:
    """Sources of batches. has_semantics: the arrays have them, and they are requested."""

    rows: BankRows
    reads: NetworkReads
    tables: CaptionTables
    has_semantics: bool = False

    def batches(self, chosen: Sequence[int], unit: BatchUnit, size: int) -> Iterator[Batch]:
        """Batches of `size` rows, on the device of the arrays. chosen: captions of the split, each with its image, or
        images with all of their captions."""
        plans = list(self._plans(np.array(chosen, np.int64), unit, size))
        sent = iter(self.rows.arrays.sent_together(*chain.from_iterable(plans)))
        for plan in plans:
            yield self._batch(plan, Plan(*islice(sent, len(plan))))

    def _plans(self, chosen: np.ndarray, unit: BatchUnit, size: int) -> Iterator[Plan[np.ndarray]]:
        firsts = self.rows.bank.first_captions
        if unit == "pairs":
            ids, images = chosen, np.searchsorted(firsts, chosen, side="right") - 1
            counts = np.ones_like(chosen)
        else:
            images, counts = chosen, firsts[chosen + 1] - firsts[chosen]
            ids = np.arange(counts.sum()) + np.repeat(firsts[chosen] - (counts.cumsum() - counts), counts)
        lengths, words = self._words(ids)
        region_counts, rows_of = self.rows.bank.region_counts[images], np.repeat(np.arange(len(images)), counts)
        row_ends = [*range(0, len(images), size), len(images)]
        caption_ends = np.concatenate(([0], counts.cumsum()))[row_ends].tolist()
        for (row, row_end), (first, end) in zip(pairwise(row_ends), pairwise(caption_ends), strict=True):
            longest = lengths[first:end].max()
            yield Plan(
                images[row:row_end], ids[first:end], region_counts[row:row_end],
                np.ascontiguousarray(words[first:end, :longest]), lengths[first:end], rows_of[first:end] - row,
            )

    def _batch(self, plan: Plan[np.ndarray], sent: Plan[torch.Tensor]) -> Batch:
        bank, arrays, tables, ids = self.rows.bank, self.rows.arrays, self.tables, plan.ids
        has_boxes = self.reads.boxes and bank.boxes is not None
        is_here = sent.images.device.type == "cpu"
        return Batch(
            image_features=arrays.features(sent.images),
            region_counts=sent.region_counts,
            image_ids=sent.images,
            captions=sent.captions,
            caption_lengths=sent.lengths,
            caption_rows=sent.caption_rows,
            caption_ids=sent.ids,
            semantic_vectors=arrays.vectors(sent.ids) if self.has_semantics else None,
            boxes=arrays.boxes(sent.images) if has_boxes else None,
            dependencies=None if tables.heads is None else arrays.sent(joined_words(tables.heads[ids], plan.lengths)),
            phrases=self._phrases(ids, plan.lengths),
            siblings=arrays.sent(self._siblings(plan)) if self.reads.siblings else None,
            host_region_counts=None if is_here else torch.from_numpy(plan.region_counts),
            host_caption_lengths=None if is_here else torch.from_numpy(plan.lengths),
        )

    def _words(self, ids: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """((captions,) lengths, (captions, longest) ids of words, or of word pieces if the network reads those), int64.
        """
        if self.tables.pieces is None:
            return self._own_lengths(ids), self.rows.bank.padded_captions(ids)
        pieces = self.tables.pieces.ids[ids]
        lengths = np.count_nonzero(pieces, axis=1).astype(np.int64)
        pieces = pieces[:, : lengths.max()].astype(np.int64)
        pieces[np.arange(pieces.shape[1]) >= lengths[:, None]] = 0
        return lengths, pieces

    def _own_lengths(self, ids: np.ndarray) -> np.ndarray:
        starts = self.rows.bank.starts
        found: np.ndarray = starts[ids + 1] - starts[ids]
        return found

    def _phrases(self, ids: np.ndarray, lengths: np.ndarray) -> torch.Tensor | None:
        if self.tables.phrases is None:
            return None
        words, pieces = words_of_ids(lengths), self.tables.pieces
        if pieces is not None and pieces.words is not None:
            words = pieces.words[ids, : lengths.max()]
        found = phrases_of(self.tables.phrases, ids.tolist(), (self._own_lengths(ids) - 2).tolist(), words)
        return self.rows.arrays.sent(found)

    def _siblings(self, plan: Plan[np.ndarray]) -> np.ndarray:
        """(captions, others, words) int64."""
        firsts = self.rows.bank.first_captions
        return padded_groups([
            [self._caption(other) for other in range(firsts[image], firsts[image + 1]) if other != own]
            for image, own in zip(plan.images[plan.caption_rows].tolist(), plan.ids.tolist(), strict=True)
        ])

    def _caption(self, number: int) -> np.ndarray:
        if self.tables.pieces is None:
            return self.rows.bank.caption(number)
        ids: np.ndarray = self.tables.pieces.ids[number]
        return ids[: np.count_nonzero(ids)]


@dataclass(frozen=True)
class Rows:
    """Rows of an epoch in order: captions of the split, each with its image, or images with all their captions."""

    numbers: Iterator[int]
    unit: BatchUnit


def shuffled_rows(
    bank: SplitBank, info: SplitInfo, *, batch_unit: BatchUnit, seed: int, epoch: int, shuffle_pairs: int
) -> Rows:
    """Rows of one epoch, in the order of the shard reader."""
    parts = epoch_parts(info, seed=seed, epoch=epoch)
    images: Iterable[int] = shuffled_images(ShardPart.indices, parts, seed=seed, epoch=epoch, workers=0)
    numbers = images
    if batch_unit == "pairs":
        firsts = bank.first_captions.tolist()
        numbers = chain.from_iterable(range(firsts[image], firsts[image + 1]) for image in images)
    rng, size = random.Random(f"items/{seed}/{epoch}"), buffer_size(info, batch_unit, shuffle_pairs)
    return Rows(shuffled(numbers, size, rng), batch_unit)


def rows_in_order(bank: SplitBank, images: Sequence[int] | None) -> Rows:
    """Every image with all its captions, or only these images."""
    return Rows(iter(range(bank.shape.images) if images is None else images), "images")


class GatheredBatches(Iterator[Batch]):
    """Batches of `size` rows, each gathered on request, which takes less time than a handover from a thread.

    skip: leave out that many batches at the start. drop_last: leave out a last batch that is short.
    """

    def __init__(
        self, gathering: Gathering, rows: Rows, size: int, *, skip: int = 0, drop_last: bool = False
    ) -> None:
        for _ in islice(rows.numbers, skip * size):
            pass
        self._batches = _gathered(gathering, rows, size, drop_last=drop_last)

    def __next__(self) -> Batch:
        return next(self._batches)

    def close(self) -> None:
        """Later calls of next() find the end."""
        self._batches.close()

    def __enter__(self) -> GatheredBatches:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _gathered(gathering: Gathering, rows: Rows, size: int, *, drop_last: bool) -> Generator[Batch, None, None]:
    while numbers := list(islice(rows.numbers, _PLANNED * size)):
        if drop_last:
            del numbers[len(numbers) // size * size :]
        if numbers:
            yield from gathering.batches(numbers, rows.unit, size)

