"""The assignment of images to shards, made before any image is read: the same on every machine."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from vsetune.config.sources.recipe import IngestRecipe, ShardSpec
from vsetune.data.making.raw import RawDataset
from vsetune.data.making.shard_writer import TAR_END_BYTES, sample_bytes_bound
from vsetune.data.stored.manifest import FeatureInfo


@dataclass(frozen=True)
class PlannedShard:
    """Which images of a split go into one shard."""

    split: str
    number: int
    start: int
    stop: int
    bytes_bound: int

    @property
    def name(self) -> str:
        return f"{self.split}-{self.number:06d}"

    @property
    def images(self) -> int:
        """Number of source images; some may turn out to be unreadable."""
        return self.stop - self.start


@dataclass(frozen=True)
class FirstIndices:
    """Index of a shard's first image and first caption in its split."""

    image: int
    caption: int


def plan_shards(raw: RawDataset, recipe: IngestRecipe, features: FeatureInfo) -> dict[str, list[PlannedShard]]:
    """Every split cut into shards within the bounds of the recipe."""
    return {split: _plan_split(split, raw, recipe, features) for split in raw.splits}


def first_indices(
    plans: Iterable[PlannedShard], raw: RawDataset, skipped: Mapping[str, Iterable[str]]
) -> Iterator[tuple[PlannedShard, FirstIndices]]:
    """The first indices of each shard of one split, in order. skipped: ids of images left out, by name of their shard.

    Lazy: the skipped images of a shard may become known while it is made.
    """
    image = caption = 0
    for plan in plans:
        yield plan, FirstIndices(image, caption)
        left_out = set(skipped[plan.name])
        for each in raw.splits[plan.split].images[plan.start : plan.stop]:
            if each.id not in left_out:
                image, caption = image + 1, caption + len(each.captions)


def _plan_split(split: str, raw: RawDataset, recipe: IngestRecipe, features: FeatureInfo) -> list[PlannedShard]:
    stored = recipe.store_images
    sizes = [
        sample_bytes_bound(
            image.captions,
            feature_bytes=2 * features.regions * features.width,
            box_bytes=16 * features.regions * features.boxes,
            image_bytes=image.source.size if stored and image.source else 0,
        )
        for image in raw.splits[split].images
    ]
    bounds = _cut(sizes, recipe.shard)
    return [
        PlannedShard(split, number, start, stop, sum(sizes[start:stop]) + TAR_END_BYTES)
        for number, (start, stop) in enumerate(itertools.pairwise(bounds))
    ]


def _cut(sizes: Sequence[int], limits: ShardSpec) -> list[int]:
    """Greedy bounds 0, a, b, ..., len(sizes); a sample larger than a shard gets a shard of its own."""
    bounds, filled = [0], 0
    budget = limits.max_bytes - TAR_END_BYTES
    for index, size in enumerate(sizes):
        count = index - bounds[-1]
        if count and (filled + size > budget or count >= limits.max_images):
            bounds.append(index)
            filled = 0
        filled += size
    return [*bounds, len(sizes)]
