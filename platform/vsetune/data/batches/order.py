"""The order of the rows of batches, whatever the images are: a function of (seed, epoch) and the shards only."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator
from typing import Literal, TypeVar

from vsetune.data.stored.manifest import SplitInfo

T = TypeVar("T")
BatchUnit = Literal["pairs", "images"]


def in_rows(images: Iterable[T], captions_of: Callable[[T], int], unit: BatchUnit) -> Iterator[tuple[T, range]]:
    """(image, captions that come with it): one caption a row, or an image with all its captions."""
    for image in images:
        count = captions_of(image)
        if unit == "images":
            yield image, range(count)
            continue
        for caption in range(count):
            yield image, range(caption, caption + 1)


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


def buffer_size(info: SplitInfo, unit: BatchUnit, shuffle_pairs: int) -> int:
    """Rows that hold about `shuffle_pairs` pairs."""
    if unit == "pairs":
        return shuffle_pairs
    return max(1, shuffle_pairs * info.images // info.captions)
