"""The images of a split in the shuffled order of one epoch, a function of seed, epoch and shards."""

from __future__ import annotations

import math
import random
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import dataclass
from itertools import chain, islice
from typing import Any, Literal, TypeVar

import numpy as np
import torch
from torch.utils.data import DataLoader, IterableDataset

from vsetune.data.batches.epoch_shards import ShardPart, epoch_parts
from vsetune.data.stored.manifest import SplitInfo
from vsetune.errors import StorageError, VsetuneError, one_line

T = TypeVar("T")
BatchUnit = Literal["pairs", "images"]

Chunk = list[T]
Lane = list[ShardPart]
Read = Callable[[ShardPart], Iterator[T]]
"""Gives the images of a shard, or stand-ins for them, in order; sent to worker processes."""
FetchedAhead = Callable[[Lane], AbstractContextManager[Iterable[ShardPart]]]
"""The shards of a lane in reading order, while the next one is downloaded; sent to worker processes."""


@dataclass(frozen=True)
class EpochOrder:
    """Order of the rows of one epoch."""

    info: SplitInfo
    unit: BatchUnit
    seed: int
    epoch: int
    shuffle_pairs: int

    def images(self, read: Read[T], *, workers: int = 0, fetched_ahead: FetchedAhead = nullcontext) -> Iterator[T]:
        """The images, or their stand-ins, as `read` gives them."""
        return shuffled_images(
            read, self._parts, seed=self.seed, epoch=self.epoch, workers=workers, fetched_ahead=fetched_ahead
        )

    def shuffled(self, rows: Iterable[T]) -> Iterator[T]:
        """The rows of these images. The buffer holds about `shuffle_pairs` pairs."""
        size = self.shuffle_pairs
        if self.unit == "images":
            size = max(1, size * self.info.images // self.info.captions)
        return shuffled(rows, size, random.Random(f"items/{self.seed}/{self.epoch}"))

    def shards_within(self, rows: int) -> frozenset[str]:
        """Files of the shards whose rows all lie within the first `rows` of the epoch. No shard is read for this. Empty
        if the order depends on numbers of captions that the manifest does not have."""
        if self.unit == "pairs" and self.info.captions_min != self.info.captions_max:
            return frozenset()
        images = self.images(ShardPart.indices)
        in_order = self.shuffled(in_rows(images, lambda _: self.info.captions_min, self.unit))
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


def in_rows(images: Iterable[T], captions_of: Callable[[T], int], unit: BatchUnit) -> Iterator[tuple[T, range]]:
    """(image, captions that come with it): one caption a row, or an image with all its captions."""
    if unit == "images":
        return ((image, range(captions_of(image))) for image in images)
    return ((image, range(number, number + 1)) for image in images for number in range(captions_of(image)))


def shuffled(rows: Iterable[T], size: int, rng: random.Random) -> Iterator[T]:
    """Every row once: a full buffer gives a random one of its rows for each that arrives.

    The sampled index equals `rng.randrange(size)`, which takes three times as long as the two lines here.
    """
    buffer: list[T] = []
    bits, draw = size.bit_length(), rng.getrandbits
    for row in rows:
        if len(buffer) < size:
            buffer.append(row)
            continue
        while (drawn := draw(bits)) >= size:
            pass
        yield buffer[drawn]
        buffer[drawn] = row
    rng.shuffle(buffer)
    while buffer:
        yield buffer.pop()


LANES = 4
"""Shards read side by side. Part of the order: another number gives another (equally good) shuffling."""
_CHUNK = 16
_CHUNKS_AHEAD = 2


def shuffled_images(
    read: Read[T], shards: Iterable[ShardPart], *, seed: int, epoch: int, workers: int,
    fetched_ahead: FetchedAhead = nullcontext,
) -> Iterator[T]:
    """Every image of the shards once. The order is a function of (seed, epoch); the same for any number of workers."""
    lanes = _lanes(list(shards), random.Random(f"shards/{seed}/{epoch}"))
    if workers:
        return chain.from_iterable(_chunks_by_workers(read, lanes, workers, fetched_ahead))
    return chain.from_iterable(_chunks_of(read, lanes, fetched_ahead))


def _lanes(shards: Lane, rng: random.Random) -> list[Lane]:
    rng.shuffle(shards)
    return [shards[lane::LANES] for lane in range(min(LANES, len(shards)))]


def _chunks_of(read: Read[T], lanes: list[Lane], fetched_ahead: FetchedAhead) -> Iterator[Chunk[T]]:
    with ExitStack() as stack:
        coming = [stack.enter_context(fetched_ahead(lane)) for lane in lanes]
        yield from _in_turn([_lane_chunks(read, lane) for lane in coming])


def _lane_chunks(read: Read[T], lane: Iterable[ShardPart]) -> Iterator[Chunk[T]]:
    for shard in lane:
        images = read(shard)
        while chunk := list(islice(images, _CHUNK)):
            yield chunk


def _in_turn(sources: Iterable[Iterator[T]]) -> Iterator[T]:
    """One item of each source in turn until all are empty."""
    waiting = deque(sources)
    while waiting:
        source = waiting.popleft()
        for item in islice(source, 1):
            yield item
            waiting.append(source)


@dataclass(frozen=True)
class _Failure:
    """An error on its way out of a worker process; DataLoader itself would bury it under the worker's traceback."""

    error: VsetuneError


class _WorkerLanes(IterableDataset[Any]):
    """The chunks that one worker process reads."""

    def __init__(self, read: Read[Any], lanes: list[Lane], fetched_ahead: FetchedAhead) -> None:
        self._read = read
        self._lanes = lanes
        self._fetched_ahead = fetched_ahead

    def __iter__(self) -> Iterator[Chunk[Any] | _Failure]:
        try:
            yield from _chunks_of(self._read, self._lanes, self._fetched_ahead)
        except VsetuneError as error:
            yield _Failure(type(error)(error.problem))


def _chunks_by_workers(
    read: Read[T], lanes: list[Lane], workers: int, fetched_ahead: FetchedAhead
) -> Iterator[Chunk[T]]:
    """The chunks of `_chunks_of`, in its order, read by one process per group of lanes."""
    groups = min(workers, len(lanes))
    loaders = [iter(_worker(read, lanes[group::groups], fetched_ahead)) for group in range(groups)]
    chunk_counts = (sum(math.ceil(shard.images / _CHUNK) for shard in lane) for lane in lanes)
    lane_sources = [islice(loaders[number % groups], count) for number, count in enumerate(chunk_counts)]
    try:
        # A damaged shard may contain more chunks than counted: workers are read to their end, so that no error is lost.
        for item in chain(_in_turn(lane_sources), *loaders):
            if isinstance(item, _Failure):
                raise item.error
            yield item
    except RuntimeError as error:
        if "DataLoader worker" not in str(error):
            raise
        raise StorageError(
            "VSE-D031", "a process that reads shards ended early ({reason}); start again, with fewer workers or more "
            "memory (shared memory too) when it happens again.", reason=one_line(error),
        ) from error
    finally:
        # An error keeps this frame, and with it the workers, alive until its traceback is dropped; by then the workers
        # no longer receive the request to end, and the process waits for them.
        loaders.clear()
        lane_sources.clear()


def _worker(read: Read[Any], lanes: list[Lane], fetched_ahead: FetchedAhead) -> DataLoader[Any]:
    return DataLoader(
        _WorkerLanes(read, lanes, fetched_ahead), batch_size=None, num_workers=1, prefetch_factor=_CHUNKS_AHEAD,
        collate_fn=_as_is,
        # without a generator of its own, DataLoader uses the global one, which dropout uses too
        generator=torch.Generator(),
    )


def _as_is(item: T) -> T:
    return item
