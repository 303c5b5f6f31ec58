"""Batches of a split: shuffled for training, in order for evaluation, read ahead in a background thread."""

from __future__ import annotations

import random
import weakref
from bisect import bisect_left
from collections import deque
from collections.abc import Generator, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from itertools import islice, repeat
from typing import Any, Generic, TypeVar, cast

import numpy as np

from vsetune.config.sources.trial_inputs import FEATURES_AND_WORDS, NetworkReads, PixelInput
from vsetune.data.batches.assembly import Assembly, CaptionTables, Decode, Decoded, Row, caption_tables, decoders
from vsetune.data.batches.bank_batches import BankRows, Gathering, rows_of_epoch
from vsetune.data.batches.batch import Batch
from vsetune.data.batches.epoch_shards import ShardPart
from vsetune.data.batches.pixels import evaluation_pixels, require_photographs, training_pixels
from vsetune.data.batches.sample_stream import BatchUnit, EpochOrder, in_rows
from vsetune.data.stored.dataset import Dataset
from vsetune.data.stored.manifest import ShardInfo, SplitInfo
from vsetune.data.stored.shards import ImageSample, Photograph, read_shard
from vsetune.data.stored.storage import MISFIT
from vsetune.errors import DataError

T = TypeVar("T")

_CLOSE_S = 10.0
_END = object()


class Prefetched(Iterator[T], Generic[T]):
    """Items of a generator, up to `depth` of them made ahead by a thread.

    An exception of the generator is raised here, in its place. The generator is closed, in the thread, with the last
    item, with `close()`, and when this object is garbage-collected, so that its files and worker processes go too.
    """

    def __init__(self, items: Generator[T, None, None], *, depth: int) -> None:
        self._items, self._pool = items, ThreadPoolExecutor(1, thread_name_prefix="vsetune-reader")
        self._coming = deque(self._pool.submit(next, items, _END) for _ in range(depth))
        self._shut_down = weakref.finalize(self, _shut_down, self._pool, items, self._coming)

    def __next__(self) -> T:
        if not self._coming:
            raise StopIteration
        try:
            item = self._coming.popleft().result()
        except BaseException:
            self.close()
            raise
        if item is _END:
            self.close()
            raise StopIteration
        self._coming.append(self._pool.submit(next, self._items, _END))
        return cast(T, item)

    def close(self) -> None:
        """Stop the thread; later calls of next() find the end. Harmless when repeated."""
        closing = self._shut_down()
        if closing is not None:
            wait([closing], _CLOSE_S)

    def __enter__(self) -> Prefetched[T]:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _shut_down(
    pool: ThreadPoolExecutor, items: Generator[Any, None, None], coming: deque[Future[Any]]
) -> Future[None] | None:
    """The closing of the generator. Does not wait: the thread itself may run the garbage collection."""
    while coming:
        coming.pop().cancel()
    closing = None
    with suppress(RuntimeError):  # the interpreter ends, and the pool with it
        closing = pool.submit(items.close)
    pool.shutdown(wait=False)
    return closing


Batches = Prefetched[Batch] | Generator[Batch, None, None]
"""Batches of a split, one after the other; close them if they are not read to the end."""

_BATCHES_AHEAD = 3


def training_batches(
    dataset: Dataset,
    split: str,
    *,
    batch_size: int,
    batch_unit: BatchUnit,
    seed: int,
    epoch: int,
    shuffle_pairs: int,
    skip_batches: int = 0,
    workers: int = 0,
    drop_last: bool = False,
    semantics: np.ndarray | None = None,
    reads: NetworkReads = FEATURES_AND_WORDS,
    tables: CaptionTables | None = None,
    rows: BankRows | None = None,
) -> Batches:
    """Exactly one epoch: every pair once (or as its shard's weight says), a short last batch included, in an order set
    by (seed, epoch) alone.

    batch_size: pairs or images, depending on batch_unit. shuffle_pairs: pairs in the shuffle buffer.
    skip_batches: leave out that many at the start, to resume; the rest equals the uninterrupted epoch, and shards of
    which it has no image are not read.
    workers: processes that read shards, and threads that decode photographs; with 0 the background thread does both;
    the batches are the same. drop_last: leave out a last batch that is short.
    semantics: (captions of the split, k), row = caption id. reads: the other contents of a `Batch`; crops and flips of
    photographs depend on (seed, epoch, image, first caption of the row) alone. tables: result of `caption_tables` for
    the split, so that an epoch does not open them again; None: opened here. rows: result of `bank_rows` for this split,
    reads and semantics: the same batches are gathered from there instead of the shards, and may be on a device.
    DataError for a missing split, dependencies of a data set without parses or pixels of one without photographs,
    ConfigError for a text model that is not there; missing or damaged shards are reported by next(). Close the iterator
    (or drop it) to stop early.
    """
    info = dataset.split(split)
    if semantics is not None and len(semantics) != info.captions:
        raise DataError(MISFIT(
            where=dataset.path, found=f"{len(semantics)} semantic vectors",
            need=f"{info.captions}, one for each caption of split {split}", fix="fit them on this split.",
        ))
    if tables is None:
        tables = caption_tables(dataset, split, reads)
    order, skipped = EpochOrder(info, batch_unit, seed, epoch, shuffle_pairs), skip_batches * batch_size
    if rows is not None:
        gathering = Gathering(rows, reads, tables, has_semantics=semantics is not None)
        chosen = islice(rows_of_epoch(rows.bank, order), skipped, None)
        return gathering.batches(chosen, batch_unit, batch_size, drop_last=drop_last)
    decode = None if reads.pixels is None else _training_decoder(dataset, reads.pixels, seed=seed, epoch=epoch)
    assembly = Assembly(dataset, tables, semantics, decode, siblings=reads.siblings)
    passed = order.shards_within(skipped) if skipped else frozenset()
    images = order.images(
        partial(_read_part, dataset, reads, passed), workers=workers,
        fetched_ahead=partial(_fetched_ahead, dataset, passed),
    )
    in_order = order.shuffled(in_rows(images, lambda image: len(image.tokens), batch_unit))
    batches = _batches(
        assembly, islice(in_order, skipped, None), batch_size, drop_last=drop_last, threads=workers
    )
    return Prefetched(batches, depth=_BATCHES_AHEAD)


def evaluation_batches(
    dataset: Dataset, split: str, *, batch_size: int, reads: NetworkReads = FEATURES_AND_WORDS, threads: int = 0,
    images: Sequence[int] | None = None, for_masking: bool = False, rows: BankRows | None = None,
) -> Batches:
    """Every image of the split once with all its captions, in split order; batch_size counts images.

    reads: as in `training_batches`, without phrases and siblings, which only training needs, unless `for_masking`; the
    crops of an image are the same every time. threads: number of threads that decode photographs; 0: the background
    thread. images: only these of the split, ascending; shards without any of them are not read. rows: as in
    `training_batches`.
    """
    if not for_masking:
        reads = replace(reads, phrases=False, siblings=False)
    if reads.pixels is not None:
        reads = replace(reads, pixels=replace(reads.pixels, swaps_sides=False))  # nothing is mirrored
    tables = caption_tables(dataset, split, reads)
    if rows is not None:
        chosen = iter(range(rows.bank.shape.images) if images is None else images)
        return Gathering(rows, reads, tables).batches(chosen, "images", batch_size)
    decode = None if reads.pixels is None else _evaluation_decoder(dataset, reads.pixels)
    assembly = Assembly(dataset, tables, decode=decode, siblings=reads.siblings)
    in_order = _images_in_order(dataset, dataset.split(split), reads, images)
    with_captions = ((image, range(len(image.tokens))) for image in in_order)
    batches = _batches(assembly, with_captions, batch_size, threads=threads)
    return Prefetched(batches, depth=_BATCHES_AHEAD)


def _read_part(
    dataset: Dataset, reads: NetworkReads, passed: frozenset[str], part: ShardPart
) -> Iterator[ImageSample]:
    """passed: files of shards that are not read, because none of their images comes into a batch."""
    if part.shard.file in passed:
        each = part.shard.captions // part.shard.images
        return repeat(ImageSample(0, 0, _NOTHING, [_NOTHING] * each), part.images)
    images = read_shard(dataset, part.shard, reads=reads)
    return (image for image in images if part.has(image.index))


_NOTHING = np.empty(0, np.int64)


@contextmanager
def _fetched_ahead(
    dataset: Dataset, passed: frozenset[str], parts: Sequence[ShardPart]
) -> Iterator[Iterable[ShardPart]]:
    wanted = [part.shard for part in parts if part.shard.file not in passed]
    with dataset.fetched_ahead(wanted) as shards:
        coming = iter(shards)
        yield (part for part in parts if part.shard.file in passed or next(coming))


def _images_in_order(
    dataset: Dataset, split: SplitInfo, reads: NetworkReads, wanted: Sequence[int] | None
) -> Iterator[ImageSample]:
    held = split.shards if wanted is None else [shard for shard in split.shards if _wanted_of(shard, wanted)]
    with dataset.fetched_ahead(held) as shards:
        for shard in shards:
            chosen = None if wanted is None else set(_wanted_of(shard, wanted))
            for image in read_shard(dataset, shard, reads=reads):
                if chosen is None or image.index in chosen:
                    yield image


def _wanted_of(shard: ShardInfo, wanted: Sequence[int]) -> Sequence[int]:
    """The wanted images that are in a shard, ascending."""
    return wanted[bisect_left(wanted, shard.first_image) : bisect_left(wanted, shard.first_image + shard.images)]


def _training_decoder(dataset: Dataset, pixels: PixelInput, *, seed: int, epoch: int) -> Decode:
    require_photographs(dataset)

    def decode(row: Row) -> Decoded:
        image, captions = row
        draw = random.Random(f"pixels/{seed}/{epoch}/{image.index}/{captions.start}")
        made, is_mirrored = training_pixels(_photograph(image), pixels, draw)
        return Decoded(made, is_mirrored and pixels.swaps_sides)

    return decode


def _evaluation_decoder(dataset: Dataset, pixels: PixelInput) -> Decode:
    require_photographs(dataset)

    def decode(row: Row) -> Decoded:
        image, _ = row
        draw = random.Random(f"evaluation pixels/{image.index}")
        return Decoded(evaluation_pixels(_photograph(image), pixels, draw), swaps_sides=False)

    return decode


def _photograph(image: ImageSample) -> Photograph:
    assert image.photograph is not None
    return image.photograph


def _batches(
    assembly: Assembly, in_order: Iterator[Row], size: int, *, threads: int, drop_last: bool = False
) -> Generator[Batch, None, None]:
    with decoders(threads if assembly.decode is not None else 0) as mapped:
        while rows := list(islice(in_order, size)):
            if drop_last and len(rows) < size:
                return
            yield assembly.batch(rows, mapped)
