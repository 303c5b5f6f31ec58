"""A split as plain arrays in one file, from which all processes of this node gather batches.

    features        (images, regions, width) float16, zero rows where an image has fewer regions; each image once
    region_counts   (images,) int64, regions that are real
    first_captions  (images + 1,) int64, index of the first caption of each image; last the number of captions
    starts          (captions + 1,) int64, place of the first id of each caption in `ids`; last the number of ids
    boxes           (images, regions, 4) float32, as in a batch; absent if the data set has none
    ids             (words,) int32, ids of the vocabulary of all captions, in sequence

Features are read with `pread`, the others are mapped; both use the page cache that the system shares among all
processes. A mapping of the features would count as memory of every trial that reads them, and a failing disk would kill
it.
"""

from __future__ import annotations

import math
import mmap
import os
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np

from vsetune.data.stored.plain_files import Flaw
from vsetune.data.stored.storage import read_failure
from vsetune.data.stored.vocabulary import PAD
from vsetune.errors import StorageError
from vsetune.home.node_cache import seal_of

_ALIGNED = mmap.ALLOCATIONGRANULARITY


@dataclass(frozen=True)
class BankShape:
    """words: ids of all captions together."""

    images: int
    captions: int
    regions: int
    width: int
    words: int
    has_boxes: bool

    def arrays(self) -> dict[str, tuple[str, tuple[int, ...]]]:
        """Type and shape of each array behind the features, in file order."""
        boxes = {"boxes": ("<f4", (self.images, self.regions, 4))} if self.has_boxes else {}
        return {
            "region_counts": ("<i8", (self.images,)), "first_captions": ("<i8", (self.images + 1,)),
            "starts": ("<i8", (self.captions + 1,)), **boxes, "ids": ("<i4", (self.words,)),
        }

    @property
    def image_bytes(self) -> int:
        """Bytes of the features of one image."""
        return self.regions * self.width * 2

    @property
    def tail(self) -> int:
        """Offset of the arrays behind the features, aligned so that it can be mapped."""
        return -(-self.images * self.image_bytes // _ALIGNED) * _ALIGNED

    @property
    def bytes(self) -> int:
        """Bytes of the whole file."""
        sizes = (math.prod(shape) * np.dtype(kind).itemsize for kind, shape in self.arrays().values())
        return self.tail + sum(sizes)


class SplitBank:
    """An opened bank; `region_counts`, `first_captions`, `starts`, `ids` and perhaps `boxes` are read-only arrays.

    Its file may be removed meanwhile: the system keeps it as long as it is open. path: for messages.
    """

    def __init__(self, path: Path, descriptor: int, shape: BankShape) -> None:
        """Takes over the descriptor. Flaw for a file of another size."""
        self.path, self.shape, self.descriptor = path, shape, descriptor
        found = os.fstat(descriptor).st_size
        if found != shape.bytes:
            raise Flaw(f"{found:,} bytes, need {shape.bytes:,}")
        tail = mmap.mmap(descriptor, shape.bytes - shape.tail, prot=mmap.PROT_READ, offset=shape.tail)
        arrays, place = {}, 0
        for name, (kind, sides) in shape.arrays().items():
            arrays[name] = np.frombuffer(tail, kind, count=math.prod(sides), offset=place).reshape(sides)
            place += arrays[name].nbytes
        self.region_counts, self.first_captions, self.starts, self.ids = (
            arrays[name] for name in ("region_counts", "first_captions", "starts", "ids")
        )
        self.boxes = arrays.get("boxes")

    @property
    def is_sealed(self) -> bool:
        """Whether the file has not been written to since its hash was verified."""
        about = os.fstat(self.descriptor)
        return about.st_mtime_ns == seal_of(self.path.stem) and about.st_size == self.shape.bytes

    def __del__(self) -> None:
        descriptor = self.__dict__.pop("descriptor", None)
        if descriptor is not None:
            os.close(descriptor)

    def read_features(self, images: np.ndarray, into: np.ndarray) -> None:
        """Read the features of these images (int64) in sequence, as float16 into a contiguous array of exactly that
        size. Consecutive images are read at once. StorageError if the disk fails, or the file was written to after it
        was verified."""
        row, target = self.shape.image_bytes, into.reshape(-1).view(np.uint8).data
        starts = np.concatenate([[0], np.flatnonzero(np.diff(images) != 1) + 1, [len(images)]]).tolist()
        first = images.tolist()
        for start, end in pairwise(starts):
            self._read(target[start * row : end * row], first[start] * row)
        if not self.is_sealed:
            raise StorageError("VSE-D005", "{file}: was changed while it was read; start again.", file=self.path)

    def _read(self, target: memoryview, place: int) -> None:
        while len(target):
            try:
                read = os.preadv(self.descriptor, [target], place)
            except OSError as error:
                raise read_failure(self.path, error) from error
            if not read:
                raise read_failure(self.path, OSError(0, "cut short while it is read"))
            target, place = target[read:], place + read

    def padded_captions(self, numbers: np.ndarray) -> np.ndarray:
        """(captions, longest) int64 ids of these captions, 0 after the end of each."""
        first, behind = self.starts[numbers, None], self.starts[numbers + 1, None]
        places = first + np.arange((behind - first).max())
        found = self.ids[np.minimum(places, len(self.ids) - 1)].astype(np.int64)
        return np.where(places < behind, found, PAD)

    def caption(self, number: int) -> np.ndarray:
        """The ids of one caption, int32."""
        ids: np.ndarray = self.ids[self.starts[number] : self.starts[number + 1]]
        return ids
