"""Batches of a split: shuffled for training, in order for evaluation, read ahead in a background thread."""

from __future__ import annotations

import random
import weakref
from bisect import bisect_left
from collections import Counter, deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice, repeat
from typing import Any, Generic, TypeVar, cast

import numpy as np

from vsetune.config.sources.trial_inputs import FEATURES_AND_WORDS, NetworkReads, PixelInput
from vsetune.data.batches.assembly import Assembly, CaptionTables, Decode, Decoded, Item, caption_tables, decoders
from vsetune.data.batches.bank_batches import BankRows, GatheredBatches, Gathering, rows_in_order, shuffled_rows
from vsetune.data.batches.batch import Batch
from vsetune.data.batches.epoch_shards import ShardPart, epoch_parts
from vsetune.data.batches.pixels import evaluation_pixels, require_photographs, training_pixels
from vsetune.data.batches.sample_stream import (
    BatchUnit,
    FetchedAhead,
    Read,
    buffer_size,
    in_rows,
    shuffled,
    shuffled_images,
)
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


Batches = Prefetched[Batch] | GatheredBatches
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
        tables = caption_tables(dataset, split, reads, mirrored=reads.swaps_sides)
    if rows is not None:
        in_order = shuffled_rows(
            rows.bank, info, batch_unit=batch_unit, seed=seed, epoch=epoch, shuffle_pairs=shuffle_pairs
        )
        gathering = Gathering(rows, reads, tables, has_semantics=semantics is not None)
        return GatheredBatches(gathering, in_order, batch_size, skip=skip_batches, drop_last=drop_last)
    decode = None if reads.pixels is None else _training_decoder(dataset, reads.pixels, seed=seed, epoch=epoch)
    assembly = Assembly(dataset, tables, semantics, decode, siblings=reads.siblings)
    order = _EpochOrder(info, batch_unit, seed, epoch, shuffle_pairs)
    passed = order.shards_within(skip_batches * batch_size) if skip_batches else frozenset()
    image_rows = order.rows(
        partial(_read_part, dataset, reads, passed), _caption_count, workers=workers,
        fetched_ahead=partial(_fetched_ahead, dataset, passed),
    )
    batches = _batches(assembly, image_rows, batch_size, skip=skip_batches, drop_last=drop_last, threads=workers)
    return Prefetched(batches, depth=_BATCHES_AHEAD)


@dataclass(frozen=True)
class _EpochOrder:
    """Order of the rows of one epoch."""

    info: SplitInfo
    unit: BatchUnit
    seed: int
    epoch: int
    shuffle_pairs: int

    def rows(
        self, read: Read[T], captions_of: Callable[[T], int], *, workers: int = 0,
        fetched_ahead: FetchedAhead = nullcontext,
    ) -> Iterator[tuple[T, range]]:
        """Each row's image, or its stand-in, with the captions that come with it."""
        images = shuffled_images(
            read, self._parts, seed=self.seed, epoch=self.epoch, workers=workers, fetched_ahead=fetched_ahead
        )
        rng = random.Random(f"items/{self.seed}/{self.epoch}")
        size = buffer_size(self.info, self.unit, self.shuffle_pairs)
        return shuffled(in_rows(images, captions_of, self.unit), size, rng)

    def shards_within(self, rows: int) -> frozenset[str]:
        """Files of the shards whose rows are all among this many first ones, found without reading a shard. Empty if
        the order depends on numbers of captions that the manifest does not have."""
        if self.unit == "pairs" and self.info.captions_min != self.info.captions_max:
            return frozenset()
        in_order = self.rows(ShardPart.indices, lambda _: self.info.captions_min)
        first = np.fromiter((index for index, _ in islice(in_order, rows)), np.int64)
        shards = self.info.shards
        places = np.searchsorted([shard.first_image for shard in shards], first, side="right") - 1
        given = np.bincount(places, minlength=len(shards)).tolist()
        whole: Counter[str] = Counter()
        for part in self._parts:
            an_image = part.shard.captions // part.shard.images if self.unit == "pairs" else 1
            whole[part.shard.file] += an_image * part.images
        return frozenset(
            shard.file for shard, count in zip(shards, given, strict=True) if 0 < count == whole[shard.file]
        )

    @property
    def _parts(self) -> list[ShardPart]:
        return epoch_parts(self.info, seed=self.seed, epoch=self.epoch)


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
    tables = caption_tables(dataset, split, reads)
    if rows is not None:
        return GatheredBatches(Gathering(rows, reads, tables), rows_in_order(rows.bank, images), batch_size)
    decode = None if reads.pixels is None else _evaluation_decoder(dataset, reads.pixels)
    assembly = Assembly(dataset, tables, decode=decode, siblings=reads.siblings)
    in_order = _images_in_order(dataset, dataset.split(split), reads, images)
    with_captions = in_rows(in_order, _caption_count, "images")
    batches = _batches(assembly, with_captions, batch_size, threads=threads)
    return Prefetched(batches, depth=_BATCHES_AHEAD)


def _read_part(
    dataset: Dataset, reads: NetworkReads, passed: frozenset[str], part: ShardPart
) -> Iterator[ImageSample]:
    """passed: files of shards that are not read, because none of their images comes into a batch."""
    if part.shard.file in passed:
        each = part.shard.captions // part.shard.images
        yield from repeat(ImageSample(0, 0, _NOTHING, [_NOTHING] * each), part.images)
        return
    for image in read_shard(dataset, part.shard, reads=reads, mirrored=reads.swaps_sides):
        if part.has(image.index):
            yield image


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

    def decode(item: Item) -> Decoded:
        draw = random.Random(f"pixels/{seed}/{epoch}/{item.image.index}/{item.captions.start}")
        made, is_mirrored = training_pixels(_photograph(item), pixels, draw)
        return Decoded(made, is_mirrored and pixels.swaps_sides)

    return decode


def _evaluation_decoder(dataset: Dataset, pixels: PixelInput) -> Decode:
    require_photographs(dataset)

    def decode(item: Item) -> Decoded:
        draw = random.Random(f"evaluation pixels/{item.image.index}")
        return Decoded(evaluation_pixels(_photograph(item), pixels, draw), swaps_sides=False)

    return decode


def _photograph(item: Item) -> Photograph:
    assert item.image.photograph is not None
    return item.image.photograph


def _caption_count(image: ImageSample) -> int:
    return len(image.tokens)


def _batches(
    assembly: Assembly, in_order: Iterator[tuple[ImageSample, range]], size: int, *, threads: int, skip: int = 0,
    drop_last: bool = False,
) -> Generator[Batch, None, None]:
    for _ in islice(in_order, skip * size):  # skipped rows are not assembled
        pass
    with decoders(threads if assembly.decode is not None else 0) as mapped:
        while rows := [Item(*row) for row in islice(in_order, size)]:
            if drop_last and len(rows) < size:
                return
            yield assembly.batch(rows, mapped)
