"""Batches of a split: shuffled for training, in order for evaluation.

A pipeline of iterators: shards -> images (`sample_stream`) -> items (a pair, or an image with all its captions) ->
shuffle buffer -> batches, made ahead in a background thread.
"""

from __future__ import annotations

import math
import mmap
import random
from collections.abc import Generator, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import Literal, TypeVar

import numpy as np
import torch

from vsetune.data.batch import Batch
from vsetune.data.dataset import Dataset
from vsetune.data.manifest import SplitInfo
from vsetune.data.parses import joined_words, word_heads
from vsetune.data.prefetch import Prefetched
from vsetune.data.sample_stream import shuffled_images
from vsetune.data.shards import ImageSample, read_shard
from vsetune.data.vocabulary import PAD
from vsetune.errors import DataError

T = TypeVar("T")
BatchUnit = Literal["pairs", "images"]

_BATCHES_AHEAD = 3


@dataclass(frozen=True)
class _Item:
    """One row of a batch: an image and those of its captions that come with it (shared, not copied)."""

    image: ImageSample
    captions: range


@dataclass(frozen=True)
class _PerCaption:
    """What stands outside the shards, row = caption id; None where it is not asked for."""

    semantics: np.ndarray | None = None
    heads: np.ndarray | None = None


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
    semantics: np.ndarray | None = None,
    boxes: bool = False,
    dependencies: bool = False,
) -> Prefetched[Batch]:
    """Exactly one epoch: every pair once, the last short batch kept, in an order set by (seed, epoch) alone.

    batch_size counts pairs or images as batch_unit says. shuffle_pairs: pairs held in the shuffle buffer.
    skip_batches: leave out that many at the start, to resume; what follows equals the uninterrupted epoch.
    workers: processes that read shards; 0 reads in the background thread; the batches are the same.
    semantics: (captions of the split, k), row = caption id. boxes, dependencies: of `Batch`, read only when asked for.
    DataError for a missing or damaged split, or dependencies of a data set without parses; damage found later is
    raised by next(). Close the iterator (or drop it) to stop early.
    """
    info = dataset.split(split)
    if semantics is not None and len(semantics) != info.captions:
        raise DataError(
            f"{dataset.path}: semantic vectors have {len(semantics)} rows, split {split!r} has {info.captions} "
            "captions; fit them on this split."
        )
    read = partial(read_shard, dataset, boxes=boxes)
    images = shuffled_images(read, info.shards, seed=seed, epoch=epoch, workers=workers)
    buffer_size = _buffer_size(info, batch_unit, shuffle_pairs)
    items = _shuffled(_items(images, batch_unit), buffer_size, random.Random(f"items/{seed}/{epoch}"))
    per_caption = _PerCaption(semantics, word_heads(dataset, split) if dependencies else None)
    batches = _batches(dataset, items, batch_size, skip=skip_batches, per_caption=per_caption)
    return Prefetched(batches, depth=_BATCHES_AHEAD)


def evaluation_batches(
    dataset: Dataset, split: str, *, batch_size: int, boxes: bool = False, dependencies: bool = False
) -> Prefetched[Batch]:
    """Every image of the split once with all its captions, in split order; batch_size counts images.

    boxes, dependencies: as for `training_batches`.
    """
    images = (image for shard in dataset.split(split).shards for image in read_shard(dataset, shard, boxes=boxes))
    per_caption = _PerCaption(heads=word_heads(dataset, split) if dependencies else None)
    batches = _batches(dataset, _items(images, "images"), batch_size, skip=0, per_caption=per_caption)
    return Prefetched(batches, depth=_BATCHES_AHEAD)


def steps_per_epoch(dataset: Dataset, split: str, *, batch_size: int, batch_unit: BatchUnit) -> int:
    """Batches that `training_batches` gives per epoch."""
    info = dataset.split(split)
    return math.ceil((info.captions if batch_unit == "pairs" else info.images) / batch_size)


def _items(images: Iterable[ImageSample], batch_unit: BatchUnit) -> Iterator[_Item]:
    for image in images:
        count = len(image.tokens)
        if batch_unit == "images":
            yield _Item(image, range(count))
            continue
        for caption in range(count):
            yield _Item(image, range(caption, caption + 1))


def _buffer_size(info: SplitInfo, batch_unit: BatchUnit, shuffle_pairs: int) -> int:
    """Items that hold about `shuffle_pairs` pairs."""
    if batch_unit == "pairs":
        return shuffle_pairs
    return max(1, shuffle_pairs * info.images // info.captions)


def _shuffled(items: Iterable[T], size: int, rng: random.Random) -> Iterator[T]:
    """Every item once: a full buffer gives a random one of its items for each that arrives."""
    buffer: list[T] = []
    for item in items:
        if len(buffer) < size:
            buffer.append(item)
            continue
        drawn = rng.randrange(size)
        yield buffer[drawn]
        buffer[drawn] = item
    rng.shuffle(buffer)
    while buffer:
        yield buffer.pop()


def _batches(
    dataset: Dataset, items: Iterator[_Item], size: int, *, skip: int, per_caption: _PerCaption
) -> Generator[Batch, None, None]:
    for _ in islice(items, skip * size):  # skipped items are read, but never put together
        pass
    while rows := list(islice(items, size)):
        yield _batch(dataset, rows, per_caption)


def _batch(dataset: Dataset, items: list[_Item], per_caption: _PerCaption) -> Batch:
    captions = [item.image.tokens[caption] for item in items for caption in item.captions]
    caption_ids = np.array([item.image.first_caption + number for item in items for number in item.captions], np.int64)
    lengths = np.array([len(caption) for caption in captions], np.int64)
    padded = np.full((len(captions), lengths.max()), PAD, np.int64)
    for row, caption in enumerate(captions):
        padded[row, : len(caption)] = caption
    semantics, heads = per_caption.semantics, per_caption.heads
    counts = np.array([len(item.image.features) for item in items], np.int64)
    return Batch(
        image_features=torch.from_numpy(_image_features(dataset, items)),
        region_counts=torch.from_numpy(counts),
        image_ids=torch.tensor([item.image.index for item in items]),
        captions=torch.from_numpy(padded),
        caption_lengths=torch.from_numpy(lengths),
        caption_rows=torch.from_numpy(np.repeat(np.arange(len(items)), [len(item.captions) for item in items])),
        caption_ids=torch.from_numpy(caption_ids),
        semantic_vectors=None if semantics is None else torch.from_numpy(semantics[caption_ids].astype(np.float32)),
        boxes=_boxes(dataset, items),
        dependencies=None if heads is None else torch.from_numpy(joined_words(heads[caption_ids], lengths)),
    )


def _image_features(dataset: Dataset, items: list[_Item]) -> np.ndarray:
    """(images, regions, width) float16. numpy, not torch: torch would start a second team of CPU threads here.

    A mapping of its own (zeros, given back when the batch is dropped): from the heap, batches this large leave holes
    that made a trial of 1,200 steps grow to 4 GB.
    """
    shape = (len(items), dataset.regions, dataset.width)
    features = np.frombuffer(mmap.mmap(-1, 2 * math.prod(shape)), np.float16).reshape(shape)
    for row, item in enumerate(items):
        features[row, : len(item.image.features)] = item.image.features
    return features


def _boxes(dataset: Dataset, items: list[_Item]) -> torch.Tensor | None:
    """(images, regions, 4) float32, zero rows where an image has fewer regions; None where no boxes were read."""
    read = [item.image.boxes for item in items]
    padded = np.zeros((len(items), dataset.regions, 4), np.float32)
    for row, boxes in enumerate(read):
        if boxes is None:
            return None
        padded[row, : len(boxes)] = boxes
    return torch.from_numpy(padded)
