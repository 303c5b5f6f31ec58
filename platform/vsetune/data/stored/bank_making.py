"""A split read from its shards once, each shard compared with its hash, and written as a bank."""

from __future__ import annotations

from collections.abc import Iterator
from typing import IO, cast

import numpy as np

from vsetune.config.sources.network_reads import NetworkReads
from vsetune.data.stored.bank_file import BankShape
from vsetune.data.stored.dataset import Dataset
from vsetune.data.stored.manifest import SplitInfo
from vsetune.data.stored.shards import ImageSample, read_shard
from vsetune.files.hashes import HashingWriter

_BYTES_OF_A_CAPTION = 128
"""About what it takes: sixteen ids, and its place."""


def bytes_of(dataset: Dataset, split: SplitInfo) -> int:
    """About how large the bank of a split is, from the manifest alone."""
    features = dataset.manifest.features
    an_image = dataset.regions * (dataset.width * 2 + (16 if features.boxes else 0)) + 16
    return split.images * an_image + split.captions * _BYTES_OF_A_CAPTION


def write_bank(dataset: Dataset, split: SplitInfo, file: IO[bytes]) -> tuple[BankShape, str]:
    """(shape, SHA-256) of what was written into a file without content; room beyond its end is given back.

    DataError for a shard that is gone or damaged, StorageError where it cannot be reached, OSError of the file.
    """
    writer = HashingWriter(file)
    sink = cast(IO[bytes], writer)
    tails = _Tails(split, dataset.regions, has_boxes=dataset.manifest.features.boxes)
    for image in _images(dataset, split):
        padded = np.zeros((dataset.regions, dataset.width), "<f2")
        padded[: len(image.features)] = image.features
        sink.write(padded.tobytes())
        tails.add(image)
    shape = tails.shape(dataset.width)
    sink.write(bytes(shape.tail - writer.written))
    for array in tails.arrays(shape):
        sink.write(array.tobytes())
    file.truncate(shape.bytes)
    return shape, writer.sha256


def _images(dataset: Dataset, split: SplitInfo) -> Iterator[ImageSample]:
    with dataset.fetched_ahead(split.shards) as shards:
        for shard in shards:
            yield from read_shard(dataset, shard, reads=NetworkReads(boxes=True), hashed=True)


class _Tails:
    """What stands behind the features, collected image by image."""

    def __init__(self, split: SplitInfo, regions: int, *, has_boxes: bool) -> None:
        self._split, self._regions, self._has_boxes = split, regions, has_boxes
        self._counts: list[int] = []
        self._first_captions = [0]
        self._ids: list[np.ndarray] = []
        self._boxes: list[np.ndarray] = []

    def add(self, image: ImageSample) -> None:
        self._counts.append(len(image.features))
        self._first_captions.append(self._first_captions[-1] + len(image.tokens))
        self._ids += [ids.astype("<i4") for ids in image.tokens]
        if image.boxes is not None:
            padded = np.zeros((self._regions, 4), "<f4")
            padded[: len(image.boxes)] = image.boxes
            self._boxes.append(padded)

    def shape(self, width: int) -> BankShape:
        words = sum(map(len, self._ids))
        return BankShape(self._split.images, self._split.captions, self._regions, width, words, self._has_boxes)

    def arrays(self, shape: BankShape) -> Iterator[np.ndarray]:
        """In the order of the file."""
        lengths = np.array([0, *map(len, self._ids)], "<i8")
        made = {
            "region_counts": self._counts, "first_captions": self._first_captions, "starts": lengths.cumsum(),
            "boxes": self._boxes, "ids": np.concatenate(self._ids) if self._ids else [],
        }
        for name, (kind, sides) in shape.arrays().items():
            yield np.ascontiguousarray(np.asarray(made[name], kind).reshape(sides))
