"""Batches gathered from the bank of a split: bit for bit equal to those of the shard reader, in the same order."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from dataclasses import dataclass
from itertools import chain, islice, pairwise
from typing import Generic, NamedTuple, TypeVar

import numpy as np
import torch

from vsetune.config.sources.trial_inputs import NetworkReads
from vsetune.data.batches.assembly import CaptionTables, padded_groups, phrases_of
from vsetune.data.batches.bank_arrays import BankArrays, bank_arrays
from vsetune.data.batches.batch import Batch
from vsetune.data.batches.epoch_shards import ShardPart
from vsetune.data.batches.sample_stream import BatchUnit, EpochOrder
from vsetune.data.captions.parses import joined_words
from vsetune.data.captions.word_pieces import words_of_ids
from vsetune.data.stored.bank_file import SplitBank
from vsetune.data.stored.banks import bank_of
from vsetune.data.stored.dataset import Dataset
from vsetune.networks.inputs import CaptionInputs, ImageInputs

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

    def batches(
        self, rows: Iterator[int], unit: BatchUnit, size: int, *, drop_last: bool = False
    ) -> Generator[Batch, None, None]:
        """Batches of `size` rows, on the device of the arrays, each gathered on request, which takes less time than a
        handover from a thread. rows: captions of the split, each with its image, or images with all of their captions.
        drop_last: leave out a last batch that is short."""
        while chosen := list(islice(rows, _PLANNED * size)):
            if drop_last:
                del chosen[len(chosen) // size * size :]
            if not chosen:
                return
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
        heads = tables.heads
        return Batch(
            images=ImageInputs(
                features=arrays.features(sent.images),
                counts=sent.region_counts,
                boxes=arrays.boxes(sent.images) if has_boxes else None,
                host_counts=None if is_here else torch.from_numpy(plan.region_counts),
            ),
            captions=CaptionInputs(
                tokens=sent.captions,
                lengths=sent.lengths,
                dependencies=None if heads is None else arrays.sent(joined_words(heads[ids], plan.lengths)),
                phrases=self._phrases(ids, plan.lengths),
                siblings=arrays.sent(self._siblings(plan)) if self.reads.siblings else None,
                host_lengths=None if is_here else torch.from_numpy(plan.lengths),
            ),
            image_ids=sent.images,
            caption_rows=sent.caption_rows,
            caption_ids=sent.ids,
            semantic_vectors=arrays.vectors(sent.ids) if self.has_semantics else None,
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


def rows_of_epoch(bank: SplitBank, order: EpochOrder) -> Iterator[int]:
    """Rows of an epoch in order: captions of the split, each with its image, or images with all their captions."""
    images = order.images(ShardPart.indices)
    if order.unit == "images":
        return order.shuffled(images)
    firsts = bank.first_captions.tolist()
    return order.shuffled(chain.from_iterable(range(firsts[image], firsts[image + 1]) for image in images))
