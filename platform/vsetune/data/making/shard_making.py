"""The plan of shards, and one shard made by any process: its bytes depend only on recipe, source and place."""

from __future__ import annotations

import itertools
import logging
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from difflib import SequenceMatcher
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from PIL import Image

from vsetune.config.sources.recipe import (
    SPLIT_NAME,
    AnyFeatures,
    EfficientNetLite0Spec,
    IngestRecipe,
    PixelsSpec,
    PrecomputedSpec,
    ShardSpec,
    TransformersSpec,
)
from vsetune.data.making.data_place import ShardRecord
from vsetune.data.making.raw import (
    FeatureArrays,
    RawDataset,
    RawImage,
    RawSplit,
    decode_image,
    image_suffix,
    png_bytes,
    require_captions,
)
from vsetune.data.making.readers import read_raw
from vsetune.data.making.shard_writer import TAR_END_BYTES, Sample, sample_bytes_bound, write_shard
from vsetune.data.progress import ProgressSink
from vsetune.data.stored.manifest import FeatureInfo
from vsetune.data.stored.storage import MISFIT
from vsetune.errors import DataError, one_line

_FLOAT16_LARGEST = float(np.finfo(np.float16).max)


class Extractor(Protocol):
    """Images in, grid features out. The same images in the same batches give the same bytes."""

    regions: int
    width: int
    batch_size: int

    def recipe(self) -> dict[str, Any]:
        """The recipe of the features, for the manifest."""

    def extract(self, images: Sequence[Image.Image]) -> np.ndarray:
        """RGB images to (images, regions, width) float32 or float16. At most batch_size images."""


def build_extractor(spec: AnyFeatures) -> Extractor | None:
    """The extractor that a recipe names; None for precomputed features. ConfigError when its extra is not installed."""
    match spec:
        case PrecomputedSpec():
            return None
        case PixelsSpec():
            from vsetune.data.making.pixel_features import PixelExtractor

            return PixelExtractor(spec)
        case EfficientNetLite0Spec():
            from vsetune.data.making.cnn_features import EfficientNetExtractor

            return EfficientNetExtractor(spec)
        case TransformersSpec():
            from vsetune.data.making.cnn_features import TransformersExtractor

            return TransformersExtractor(spec)


def to_float16(features: np.ndarray, *, place: str) -> np.ndarray:
    """The features of one image as float16. DataError when a value is not finite or beyond the range of float16."""
    largest = float(np.abs(features).max(initial=0.0))
    if not largest <= _FLOAT16_LARGEST:
        raise DataError(MISFIT(
            where=place, found=f"a feature of {largest:g}", need=f"finite values up to {_FLOAT16_LARGEST:g}",
            fix="check the extractor's weights, or rescale the features.",
        ))
    return np.ascontiguousarray(features, dtype=np.float16)


log = logging.getLogger(__name__)


@dataclass(frozen=True)
class IngestWork:
    """The common inputs of one ingest in all its processes."""

    recipe: IngestRecipe
    raw: RawDataset
    extractor: Extractor | None


def open_source(recipe: IngestRecipe) -> RawDataset:
    """The source of a recipe, its splits renamed; no image is opened. DataError, ConfigError."""
    return named_splits(read_raw(recipe.source), recipe.splits)


def open_work(recipe: IngestRecipe, raw: RawDataset) -> IngestWork:
    """ConfigError when the extra that the extractor needs is not installed."""
    return IngestWork(recipe, raw, build_extractor(recipe.features))


def feature_info(work: IngestWork) -> FeatureInfo:
    """Description of the features in the shards. DataError when the arrays of the splits differ in shape."""
    recipe = work.recipe.features.to_plain()
    if work.extractor is not None:
        regions, width, boxes = work.extractor.regions, work.extractor.width, False
        recipe = work.extractor.recipe()
    else:
        arrays = [split.arrays for split in work.raw.splits.values() if split.arrays is not None]
        shapes = {array.features.shape[1:] for array in arrays}
        if len(shapes) != 1:
            found = "; ".join(f"{array.place} {array.features.shape}" for array in arrays)
            raise DataError(
                "VSE-D045", "source.folder: splits differ in regions or width ({found}), need one shape.", found=found
            )
        (regions, width), boxes = shapes.pop(), all(array.boxes is not None for array in arrays)
    return FeatureInfo(
        extractor=str(recipe["extractor"]), regions=regions, regions_min=regions, width=width, boxes=boxes,
        recipe=recipe,
    )


def make_shard(
    plan: PlannedShard, first: FirstIndices, work: IngestWork, features: FeatureInfo, *, folder: Path,
    progress: ProgressSink,
) -> ShardRecord:
    """Write one shard into the folder, whole or not at all. DataError, StorageError."""
    split = work.raw.splits[plan.split]
    images = split.images[plan.start : plan.stop]
    skipped: list[str] = []
    counts: list[int] = []

    def samples() -> Iterator[Sample]:
        index, caption = first.image, first.caption
        ready = _from_arrays(images, split.arrays, boxes=features.boxes) if split.arrays else _from_images(
            images, work, skipped
        )
        for image, array, boxes, stored in ready:
            yield Sample(index, caption, image.id, image.captions, array, boxes, stored)
            index, caption = index + 1, caption + len(image.captions)
            counts.append(len(image.captions))
            progress.advance(1)

    path = folder / f"{plan.name}.tar"
    shard = write_shard(path, samples(), first_image=first.image, first_caption=first.caption)
    log.info("wrote %s: %d images", path, len(counts))
    return ShardRecord(
        shard=shard, captions_min=min(counts, default=0), captions_max=max(counts, default=0), skipped=skipped
    )


def unreadable_images(plan: PlannedShard, work: IngestWork) -> list[str]:
    """Ids of the images of a planned shard that cannot be decoded; the other images are not used."""
    split = work.raw.splits[plan.split]
    if split.arrays is not None:
        return []
    found = (_decode(image, skip=True) for image in split.images[plan.start : plan.stop])
    return [image.id for image, _, pixels in found if pixels is None]


_Ready = tuple[RawImage, np.ndarray, np.ndarray | None, tuple[bytes, str] | None]


def _from_arrays(images: Sequence[RawImage], arrays: FeatureArrays, *, boxes: bool) -> Iterator[_Ready]:
    for image in images:
        assert image.feature_row is not None
        row = image.feature_row
        arrays.require_unchanged()
        array = to_float16(np.asarray(arrays.features[row]), place=f"{arrays.place} row {row}")
        box = np.asarray(arrays.boxes[row], dtype=np.float32) if boxes and arrays.boxes is not None else None
        yield image, array, box, None
    arrays.require_unchanged()


def _from_images(images: Sequence[RawImage], work: IngestWork, skipped: list[str]) -> Iterator[_Ready]:
    """Decode in a thread one batch ahead of the extractor."""
    extractor = work.extractor
    assert extractor is not None
    decode = partial(_decode, skip=work.recipe.on_unreadable == "skip")
    batches = [list(batch) for batch in _batched(images, extractor.batch_size)]
    with ThreadPoolExecutor(max_workers=1) as pool:
        pending = pool.submit(lambda batch: [decode(image) for image in batch], batches[0])
        for following in [*batches[1:], None]:
            decoded = pending.result()
            if following is not None:
                pending = pool.submit(lambda batch: [decode(image) for image in batch], following)
            readable = [(image, content, pixels) for image, content, pixels in decoded if pixels is not None]
            skipped.extend(image.id for image, _, pixels in decoded if pixels is None)
            if not readable:
                continue
            arrays = extractor.extract([pixels for _, _, pixels in readable])
            for (image, content, pixels), array in zip(readable, arrays, strict=True):
                stored = _stored(content, pixels) if work.recipe.store_images else None
                yield image, to_float16(array, place=image.id), None, stored


def _decode(image: RawImage, *, skip: bool) -> tuple[RawImage, bytes, Image.Image | None]:
    assert image.source is not None
    content = image.source.read()
    fix = "replace it" if skip else "replace it, or set on_unreadable: skip in the recipe"
    try:
        return image, content, decode_image(content, place=image.source.place, fix=fix)
    except DataError as error:
        if not skip:
            raise
        log.warning("skipped %s", error)
        return image, content, None


def _stored(content: bytes, pixels: Image.Image) -> tuple[bytes, str]:
    """JPEG and PNG unchanged, anything else as PNG."""
    suffix = image_suffix(content)
    return (content, suffix) if suffix else (png_bytes(pixels), "png")


def _batched(images: Sequence[RawImage], size: int) -> Iterator[Sequence[RawImage]]:
    for start in range(0, len(images), size):
        yield images[start : start + size]


_MEANT = {
    "train": "train", "validation": "validation", "test": "test", "val": "validation", "dev": "validation",
    "valid": "validation", "restval": "restval",
}
"""Names of splits, other people's with ours."""
_CLOSE = 0.75


def named_splits(raw: RawDataset, names: Mapping[str, str]) -> RawDataset:
    """The raw data set with its splits renamed. DataError for a missing train split, an empty or repeated one, one with
    nearly the name of one of ours, or for a name that cannot be part of a file's name."""
    splits: dict[str, RawSplit] = {}
    for old, split in raw.splits.items():
        new = names.get(old, old)
        if new in splits:
            raise DataError(
                "VSE-D044", "splits: two splits would be called {split}; write `splits: {{{names}}}` into the recipe.",
                split=new, names=_usable_names(raw, names),
            )
        if not re.fullmatch(SPLIT_NAME, new):
            raise DataError(
                "VSE-D042", "splits: got the split {split}, need a name of at most 60 letters, digits, _ and -; rename "
                "it in `splits` of the recipe.", split=one_line(repr(new)),
            )
        if old not in names and (meant := _meant_by(old)) is not None:
            raise DataError(
                "VSE-D043", "splits: got the split {split!r} ({images:,} images), did you mean {meant}? Correct it in "
                "the source, or write `splits: {{{names}}}` into the recipe.", split=old, images=len(split.images),
                meant=meant, names=_usable_names(raw, names),
            )
        if not split.images:
            raise DataError(
                "VSE-D041", "split {split}: no readable image with a caption is left in it; check its list, images and "
                "captions.", split=old,
            )
        for image in split.images:
            require_captions(image.captions, place=f"split {old}: image {one_line(image.id)}")
        splits[new] = split
    if "train" not in splits:
        raise DataError(
            "VSE-D046", "splits: found {splits}, need one called train; write `splits: {{{names}}}` into the recipe, "
            "or add it to the source.", splits=", ".join(splits) or "none", names=_usable_names(raw, names),
        )
    return RawDataset(splits, raw.notes)


def _usable_names(raw: RawDataset, names: Mapping[str, str]) -> str:
    """A value of `splits` with which `named_splits` takes every split: each as the recipe or its name means it, the
    largest as train if none does; a name that is taken is not used again."""
    meant = {old: names.get(old) or _MEANT.get(_meant_by(old) or "", old) for old in raw.splits}
    if "train" not in meant.values():
        free = [old for old, new in meant.items() if new not in _MEANT] or list(meant)
        meant[max(free, key=lambda old: len(raw.splits[old].images))] = "train"
    found: dict[str, str] = {}
    for old in sorted(meant, key=lambda old: old != meant[old]):
        ways = (meant[old], old, f"{old}2", f"{old}3", f"{old}4")
        found[old] = next(new for new in ways if new not in found.values())
    listed = [old for old in raw.splits if old in names or found[old] != old or _meant_by(old)]
    return ", ".join(f"{old}: {found[old]}" for old in listed)


def _meant_by(name: str) -> str | None:
    """The name of ours or others that this one nearly is."""
    return next((each for each in _MEANT if _is_slip_of(each, name)), None)


def _is_slip_of(meant: str, name: str) -> bool:
    """In capitals, or nearly the same; the first letter is right, and a name that only continues (`testA`) is a name of
    its own."""
    if name in _MEANT or name.lower() == meant:
        return name not in _MEANT
    is_close = SequenceMatcher(None, name, meant).ratio() >= _CLOSE
    return is_close and len(meant) > 3 and name[0] == meant[0] and name.isalpha() and not name.startswith(meant)


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
    plans: Mapping[str, Sequence[PlannedShard]], raw: RawDataset, skipped: Mapping[str, Iterable[str]]
) -> dict[str, FirstIndices]:
    """The first indices of each shard, by its name. plans: by split. skipped: ids of images left out, by name of their
    shard."""
    found: dict[str, FirstIndices] = {}
    for split, shards in plans.items():
        image = caption = 0
        for plan in shards:
            found[plan.name] = FirstIndices(image, caption)
            left_out = set(skipped[plan.name])
            for each in raw.splits[split].images[plan.start : plan.stop]:
                if each.id not in left_out:
                    image, caption = image + 1, caption + len(each.captions)
    return found


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
