"""Ingest: a recipe in, WebDataset shards, a vocabulary and a manifest out.

The output is a function of recipe and source alone: an ingest that was killed goes on at the first unfinished shard
and ends in the same bytes. Batches of images never cross a shard, so a CNN sees the same batches either way.
"""

from __future__ import annotations

import itertools
import logging
import shutil
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
from PIL import Image

from vsetune.config.sources.recipe import IngestRecipe, ShardSpec, expand_path
from vsetune.config.spec.foreign_text import one_line
from vsetune.config.spec.paths import on_this_node, under_home
from vsetune.data.captions.parses import copy_parses, parse_dataset, read_parses
from vsetune.data.captions.spacy_parser import load_parser
from vsetune.data.making.features import Extractor, build_extractor, to_float16
from vsetune.data.making.finish import finish, upload_dataset
from vsetune.data.making.ingest_journal import Journal, ShardRecord, locked_journal
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
from vsetune.data.stored import storage
from vsetune.data.stored.dataset import load_manifest
from vsetune.data.stored.manifest import MANIFEST_FILE, FeatureInfo, Manifest
from vsetune.errors import DataError, StorageError, StudyConflict
from vsetune.object_storage.addresses import is_remote

log = logging.getLogger(__name__)


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


@dataclass(frozen=True)
class _Work:
    """What one ingest needs everywhere."""

    recipe: IngestRecipe
    raw: RawDataset
    extractor: Extractor | None
    output: Path
    progress: ProgressSink


def ingest(recipe: IngestRecipe, *, progress: ProgressSink) -> Manifest:
    """Make the data set of a recipe, or finish it, or find it finished. Returns its manifest.

    ConfigError, DataError: recipe or source. StorageError: disk or bucket. StudyConflict: the folder holds another.
    """
    output = output_folder(recipe)
    if recipe.parses is not None and read_parses(str(output)) is None:
        load_parser(recipe.parses.pipeline)  # what is missing is told before hours of work
    manifest = _finished(recipe, output)
    if manifest is None:
        raw = named_splits(read_raw(recipe.source), recipe.splits)
        with locked_journal(output, recipe=recipe.content_fingerprint(), source=raw.digest()) as journal:
            work = _Work(recipe, raw, build_extractor(recipe.features), output, progress)
            manifest = _write_dataset(work, journal)
    if recipe.parses is not None:
        parse_dataset(str(output), recipe.parses.pipeline, progress=progress)
    upload = recipe.upload or _remote_output(recipe)
    if upload:
        upload_dataset(manifest, output, upload, progress=progress)
        copy_parses(output, upload)
    return manifest


def output_folder(recipe: IngestRecipe) -> Path:
    """Where on this machine the data set of a recipe goes; ConfigError for a variable that is not set."""
    return Path(on_this_node(expand_path(recipe.output, key="output")))


def _remote_output(recipe: IngestRecipe) -> str | None:
    """With a remote home: where there a relative output goes, which is only made on this machine."""
    place = under_home(expand_path(recipe.output, key="output"))
    return place if is_remote(place) else None


def _finished(recipe: IngestRecipe, output: Path) -> Manifest | None:
    if not storage.exists(str(output / MANIFEST_FILE)):
        return None
    manifest = load_manifest(str(output))
    wanted = recipe.content_fingerprint()
    if manifest.recipe_fingerprint != wanted:
        raise StudyConflict(
            f"output: {output}: holds data set {manifest.name} of another recipe "
            f"({manifest.recipe_fingerprint}, now {wanted}); choose another output, or delete that folder."
        )
    Journal(output).remove()
    log.info("data set %s in %s is already complete", manifest.name, output)
    return manifest


def named_splits(raw: RawDataset, names: dict[str, str]) -> RawDataset:
    """The raw data set with its splits renamed. DataError for a missing train split, an empty or doubled split."""
    splits: dict[str, RawSplit] = {}
    for old, split in raw.splits.items():
        new = names.get(old, old)
        if new in splits:
            raise DataError(f"splits: two splits would be called {new}; rename one of {', '.join(raw.splits)}.")
        if not split.images:
            raise DataError(f"split {old}: no images with captions are left in it; check its list and the captions.")
        for image in split.images:
            require_captions(image.captions, place=f"split {old}: image {one_line(image.id)}")
        splits[new] = split
    if "train" not in splits:
        raise DataError(f"splits: found {', '.join(splits) or 'none'}, need one called train; rename it in `splits`.")
    return RawDataset(splits, raw.notes)


def _write_dataset(work: _Work, journal: Journal) -> Manifest:
    features = _feature_info(work)
    plans = {name: plan_shards(name, work, features) for name in work.raw.splits}
    done = {plan.name: journal.find(plan.name) for plan in itertools.chain(*plans.values())}
    open_bytes = sum(plan.bytes_bound for plan in itertools.chain(*plans.values()) if done[plan.name] is None)
    _check_space(work.output, open_bytes)
    records: dict[str, list[ShardRecord]] = {}
    for split, shards in plans.items():
        work.progress.stage(f"{work.recipe.name} {split}", len(work.raw.splits[split].images))
        records[split] = []
        for plan in shards:
            record = done[plan.name]
            if record is None:
                record = _write_planned(plan, work, features, before=records[split])
                journal.add(plan.name, record)
            else:
                work.progress.advance(plan.stop - plan.start)
            records[split].append(record)
    manifest = finish(work.recipe, work.raw, features, records, output=work.output)
    journal.remove()
    return manifest


def plan_shards(split: str, work: _Work, features: FeatureInfo) -> list[PlannedShard]:
    """Cut a split into shards within the bounds of the recipe, before any image is read."""
    stored = work.recipe.store_images
    sizes = [
        sample_bytes_bound(
            image.captions,
            feature_bytes=2 * features.regions * features.width,
            box_bytes=16 * features.regions * features.boxes,
            image_bytes=image.source.size if stored and image.source else 0,
        )
        for image in work.raw.splits[split].images
    ]
    bounds = _cut(sizes, work.recipe.shard)
    return [
        PlannedShard(split, number, start, stop, sum(sizes[start:stop]) + TAR_END_BYTES)
        for number, (start, stop) in enumerate(itertools.pairwise(bounds))
    ]


def _cut(sizes: Sequence[int], limits: ShardSpec) -> list[int]:
    """Greedy bounds 0, a, b, ..., len(sizes); a sample larger than a shard gets one of its own."""
    bounds, filled = [0], 0
    budget = limits.max_bytes - TAR_END_BYTES
    for index, size in enumerate(sizes):
        count = index - bounds[-1]
        if count and (filled + size > budget or count >= limits.max_images):
            bounds.append(index)
            filled = 0
        filled += size
    return [*bounds, len(sizes)]


def _check_space(output: Path, needed: int) -> None:
    free = shutil.disk_usage(output).free
    if free < needed:
        raise StorageError(
            f"output: {output}: {free / 2**20:,.0f} MiB free, the shards still to write need up to "
            f"{needed / 2**20:,.0f} MiB; free space, choose another output, or set store_images: false."
        )


def _feature_info(work: _Work) -> FeatureInfo:
    recipe = work.recipe.features.to_plain()
    if work.extractor is not None:
        regions, width, boxes = work.extractor.regions, work.extractor.width, False
        recipe = work.extractor.recipe()
    else:
        arrays = [split.arrays for split in work.raw.splits.values() if split.arrays is not None]
        shapes = {array.features.shape[1:] for array in arrays}
        if len(shapes) != 1:
            found = "; ".join(f"{array.place} {array.features.shape}" for array in arrays)
            raise DataError(f"source.folder: splits differ in regions or width ({found}), need one shape.")
        (regions, width), boxes = shapes.pop(), all(array.boxes is not None for array in arrays)
    return FeatureInfo(
        extractor=str(recipe["extractor"]), regions=regions, regions_min=regions, width=width, boxes=boxes,
        recipe=recipe,
    )


def _write_planned(
    plan: PlannedShard, work: _Work, features: FeatureInfo, *, before: Sequence[ShardRecord]
) -> ShardRecord:
    """Write one shard. Its first indices follow from the shards before, since unreadable images may be skipped."""
    split = work.raw.splits[plan.split]
    images = split.images[plan.start : plan.stop]
    written = [record.shard for record in before if record.shard is not None]
    first_image = sum(shard.images for shard in written)
    first_caption = sum(shard.captions for shard in written)
    skipped: list[str] = []
    counts: list[int] = []

    def samples() -> Iterator[Sample]:
        index, caption = first_image, first_caption
        ready = _from_arrays(images, split.arrays, boxes=features.boxes) if split.arrays else _from_images(
            images, work, skipped
        )
        for image, array, boxes, stored in ready:
            yield Sample(index, caption, image.id, image.captions, array, boxes, stored)
            index, caption = index + 1, caption + len(image.captions)
            counts.append(len(image.captions))
            work.progress.advance(1)

    path = work.output / f"{plan.name}.tar"
    shard = write_shard(path, samples(), first_image=first_image, first_caption=first_caption)
    log.info("wrote %s: %d images", path, len(counts))
    return ShardRecord(
        shard=shard, captions_min=min(counts, default=0), captions_max=max(counts, default=0), skipped=skipped
    )


_Ready = tuple[RawImage, np.ndarray, np.ndarray | None, tuple[bytes, str] | None]


def _from_arrays(images: Sequence[RawImage], arrays: FeatureArrays, *, boxes: bool) -> Iterator[_Ready]:
    for image in images:
        assert image.feature_row is not None
        row = image.feature_row
        array = to_float16(np.asarray(arrays.features[row]), place=f"{arrays.place} row {row}")
        box = np.asarray(arrays.boxes[row], dtype=np.float32) if boxes and arrays.boxes is not None else None
        yield image, array, box, None


def _from_images(images: Sequence[RawImage], work: _Work, skipped: list[str]) -> Iterator[_Ready]:
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
    try:
        return image, content, decode_image(content, place=image.source.place)
    except DataError as error:
        if not skip:
            raise
        log.warning("skipped %s", error)
        return image, content, None


def _stored(content: bytes, pixels: Image.Image) -> tuple[bytes, str]:
    """JPEG and PNG as they are, anything else as PNG."""
    suffix = image_suffix(content)
    return (content, suffix) if suffix else (png_bytes(pixels), "png")


def _batched(images: Sequence[RawImage], size: int) -> Iterator[Sequence[RawImage]]:
    for start in range(0, len(images), size):
        yield images[start : start + size]
