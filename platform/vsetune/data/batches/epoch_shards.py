"""The shards that one epoch reads: all of a split, or more and fewer of some by their weights."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby
from typing import Literal, NamedTuple

from vsetune.data.stored.dataset import Dataset
from vsetune.data.stored.manifest import ShardInfo, SplitInfo


@dataclass(frozen=True)
class ShardPart:
    """A shard, or some images of it. chosen: their numbers in the shard; None: all."""

    shard: ShardInfo
    chosen: frozenset[int] | None = None

    @property
    def images(self) -> int:
        return self.shard.images if self.chosen is None else len(self.chosen)

    def indices(self) -> Iterator[int]:
        """Of its images in the split."""
        first = self.shard.first_image
        return filter(self.has, range(first, first + self.shard.images))

    def has(self, image: int) -> bool:
        """Whether this image of the split, which is in the shard, is in the part."""
        return self.chosen is None or image - self.shard.first_image in self.chosen


class EpochSize(NamedTuple):
    """Images and captions that an epoch reads, repetitions included."""

    images: int
    captions: int


def epoch_size(info: SplitInfo) -> EpochSize:
    """The same for every epoch."""
    found = EpochSize(0, 0)
    for weight, shards in _by_weight(info):
        images, captions = sum(shard.images for shard in shards), sum(shard.captions for shard in shards)
        rest = _rest(weight, images)
        found = EpochSize(
            found.images + int(weight) * images + rest,
            found.captions + int(weight) * captions + rest * captions // images,
        )
    return found


def steps_per_epoch(
    dataset: Dataset, split: str, *, batch_size: int, batch_unit: Literal["pairs", "images"], drop_last: bool = False
) -> int:
    """Batches that `training_batches` gives per epoch."""
    size = epoch_size(dataset.split(split))
    batches = (size.captions if batch_unit == "pairs" else size.images) / batch_size
    return math.floor(batches) if drop_last else math.ceil(batches)


def epoch_parts(info: SplitInfo, *, seed: int, epoch: int) -> list[ShardPart]:
    """The shards of an epoch, a function of (seed, epoch); not yet shuffled.

    A weight of 2.3 reads every image of its shards twice, and 3 in 10 of them once more: randomly chosen shards, the
    last one in part. Every image of such shards has as many captions as the others, as `epoch_size` assumes; `vsetune
    data index` checks it.
    """
    rng, parts = random.Random(f"weights/{seed}/{epoch}"), []
    for weight, shards in _by_weight(info):
        parts += [ShardPart(shard) for _ in range(int(weight)) for shard in shards]
        left = _rest(weight, sum(shard.images for shard in shards))
        for shard in rng.sample(shards, len(shards)) if left else ():
            if left >= shard.images:
                parts.append(ShardPart(shard))
            elif left:
                parts.append(ShardPart(shard, frozenset(rng.sample(range(shard.images), left))))
            left -= min(left, shard.images)
    return parts


def _by_weight(info: SplitInfo) -> Iterator[tuple[float, list[ShardInfo]]]:
    def weight_of(shard: ShardInfo) -> float:
        return 1.0 if shard.outside is None else shard.outside.weight

    for weight, shards in groupby(sorted(info.shards, key=weight_of), key=weight_of):
        yield weight, list(shards)


def _rest(weight: float, images: int) -> int:
    """Images that are read once more than the others."""
    return round((weight - int(weight)) * images)
