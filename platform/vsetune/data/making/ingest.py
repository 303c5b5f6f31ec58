"""Ingest: a recipe in, WebDataset shards, a vocabulary and a manifest out.

The output is a function of recipe and source only: a killed ingest continues at the first unfinished shard and ends in
the same bytes. Batches of images never cross a shard, so a CNN sees the same batches wherever a shard is made.

A task for a shard is plain data. Its process reads the source itself, writes the shard to its final place, and only
then its record, so finished shards are known wherever the command is repeated.
"""

from __future__ import annotations

import itertools
import platform
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path

from vsetune.config.sources.recipe import IngestRecipe
from vsetune.data.captions.parses import copy_parses, parse_dataset, require_pipeline
from vsetune.data.making.data_place import (
    JOURNAL,
    Journal,
    ShardRecord,
    check_space,
    data_place,
    finished,
    opened_journal,
    require_whole,
    vocabulary_of,
)
from vsetune.data.making.raw import RawDataset
from vsetune.data.making.shard_making import (
    FirstIndices,
    IngestWork,
    PlannedShard,
    feature_info,
    first_indices,
    make_shard,
    open_source,
    open_work,
    plan_shards,
    unreadable_images,
)
from vsetune.data.making.shard_tasks import T, Task, TaskRunner, one_by_one
from vsetune.data.progress import ProgressSink, SilentProgress
from vsetune.data.stored import storage
from vsetune.data.stored.manifest import (
    MANIFEST_FILE,
    VOCABULARY_FILE,
    FeatureInfo,
    Manifest,
    SplitInfo,
    write_manifest,
)
from vsetune.data.stored.vocabulary import tokenise
from vsetune.errors import ConfigError, DataError, Message, StorageError, UsageError, one_line
from vsetune.home import s3
from vsetune.home.addresses import is_remote, join
from vsetune.home.paths import home
from vsetune.home.whole_files import make_folder, write_whole

_MANY_WORDS = 200


@dataclass(frozen=True)
class ShardTask:
    """One shard of a plan: plain data. recipe: as JSON. source: digest that the source has where it was planned.

    place: folder that every node sees, or s3:// prefix.
    """

    recipe: str
    source: str
    features: FeatureInfo
    plan: PlannedShard
    first: FirstIndices
    place: str

    @property
    def name(self) -> str:
        return self.plan.name


def ingest(recipe: IngestRecipe, *, progress: ProgressSink, run_tasks: TaskRunner | None = None) -> Manifest:
    """Make the data set of a recipe, finish it, or find it finished. Returns its manifest.

    run_tasks: runs the tasks that make the shards; None: one after the other in this process. `data_place` chooses the
    place of the data set; one made in a folder of this machine is then copied to `upload`.
    ConfigError, DataError: recipe or source. StorageError: disk or bucket. StudyConflict: the place has another data
    set.
    """
    place = data_place(recipe, in_parallel=run_tasks is not None)
    if recipe.parses is not None:
        require_pipeline(place, recipe.parses)
    manifest = finished(recipe, place)
    if manifest is None:
        manifest = _write_dataset(recipe, place, run_tasks, progress)
    else:
        require_whole(place)
        shards = (shard for split in manifest.splits.values() for shard in split.shards)
        Journal(place).remove([Path(shard.file).stem for shard in shards])
    if recipe.parses is not None:
        parse_dataset(place, recipe.parses.pipeline, phrases=recipe.parses.phrases, progress=progress)
    if recipe.upload and recipe.upload != place:
        upload_dataset(manifest, Path(place), recipe.upload, progress=progress)
        copy_parses(Path(place), recipe.upload)
    return manifest


def _write_dataset(recipe: IngestRecipe, place: str, run_tasks: TaskRunner | None, progress: ProgressSink) -> Manifest:
    _opened.cache_clear()  # the source may have changed since this process last read it
    plain = recipe.model_dump_json()
    work, source = _opened(plain)
    raw, features = work.raw, feature_info(work)
    plans = plan_shards(raw, recipe, features)
    shards = list(itertools.chain(*plans.values()))
    run = one_by_one if run_tasks is None else _with_node(run_tasks)
    make = partial(make_and_keep, progress=progress if run_tasks is None else SilentProgress())
    with opened_journal(place, recipe=recipe.content_fingerprint(), source=source) as journal:
        done = {plan.name: record for plan in shards if (record := journal.find(plan.name)) is not None}
        to_do = [plan for plan in shards if plan.name not in done]
        if not is_remote(place):
            check_space(Path(place), sum(plan.bytes_bound for plan in to_do))

        def task(plan: PlannedShard, first: FirstIndices) -> ShardTask:
            return ShardTask(plain, source, features, plan, first, place)

        skipped = {name: record.skipped for name, record in done.items()}
        skipped |= _skipped(recipe, [task(plan, FirstIndices(0, 0)) for plan in to_do], run, progress)
        firsts = first_indices(plans, raw, skipped)
        progress.stage(f"{recipe.name} shards", sum(plan.images for plan in shards))
        progress.advance(sum(plan.images for plan in shards if plan.name in done))
        for each, record in run(make, [task(plan, firsts[plan.name]) for plan in to_do]):
            _require_here(record, each)
            done[each.plan.name] = record
            if run_tasks is not None:  # otherwise each image counts as soon as it is in the shard
                progress.advance(each.plan.images)
        records = {split: [done[plan.name] for plan in of_split] for split, of_split in plans.items()}
        manifest = _finish(recipe, raw, features, records, place)
        journal.remove([plan.name for plan in shards])
    return manifest


def _with_node(run_tasks: TaskRunner) -> TaskRunner:
    """A runner whose errors name the node."""

    def run(function: Callable[[Task], T], tasks: Sequence[Task], /) -> Iterator[tuple[Task, T]]:
        return run_tasks(partial(_named_node, function), tasks)

    return run


def _named_node(function: Callable[[Task], T], task: Task) -> T:
    try:
        return function(task)
    except UsageError as error:
        raise type(error)(error.problem.worded(f"{error} (on node {platform.node()})")) from error


def make_and_keep(task: ShardTask, *, progress: ProgressSink) -> ShardRecord:
    """Make the shard of a task at its final place, and record it."""
    work = _as_planned(task)
    if is_remote(task.place):
        with tempfile.TemporaryDirectory(dir=_scratch()) as folder:
            record = make_shard(task.plan, task.first, work, task.features, folder=Path(folder), progress=progress)
            if record.shard is not None:
                s3.upload(Path(folder) / record.shard.file, join(task.place, record.shard.file))
    else:
        if not (Path(task.place) / JOURNAL).is_dir():
            raise StorageError(_NOT_SHARED(place=task.place, missing=JOURNAL))
        record = make_shard(task.plan, task.first, work, task.features, folder=Path(task.place), progress=progress)
    journal = Journal(task.place, recipe=work.recipe.content_fingerprint(), source=task.source)
    journal.add(task.plan.name, record)
    return record


def find_unreadable(task: ShardTask) -> list[str]:
    """Ids of the images of a task's shard that cannot be decoded."""
    return unreadable_images(task.plan, _as_planned(task))


def _skipped(
    recipe: IngestRecipe, tasks: Sequence[ShardTask], run_tasks: TaskRunner, progress: ProgressSink
) -> dict[str, list[str]]:
    """The images that each shard leaves out: the first indices of a shard depend on the content of the earlier ones."""
    if recipe.on_unreadable != "skip":
        return {task.plan.name: [] for task in tasks}
    progress.stage(f"{recipe.name} looking for unreadable images", sum(task.plan.images for task in tasks))
    found = {}
    for task, ids in run_tasks(find_unreadable, tasks):
        found[task.plan.name] = ids
        progress.advance(task.plan.images)
    return found


def _finish(
    recipe: IngestRecipe, raw: RawDataset, features: FeatureInfo, records: Mapping[str, Sequence[ShardRecord]],
    place: str,
) -> Manifest:
    if not is_remote(place):
        return finish(recipe, raw, features, records, output=Path(place))
    with tempfile.TemporaryDirectory(dir=_scratch()) as folder:
        manifest = finish(recipe, raw, features, records, output=Path(folder))
        upload_lists(Path(folder), place)
    return manifest


def _as_planned(task: ShardTask) -> IngestWork:
    """The work of a task. DataError when this node does not see the source that was planned for."""
    fix = (
        "the files of `source` must stand at the same paths on every node (a shared folder); or ingest on the machine "
        "that has them, without --address"
    )
    try:
        work, source = _opened(task.recipe)
    except (ConfigError, DataError) as error:
        raise DataError(error.problem.worded(f"{error} Where shards are made on a cluster, {fix}.")) from error
    if source != task.source:
        raise DataError(
            "VSE-D040", "source: has other captions or split lists here than where the ingest was started; {fix}.",
            fix=fix,
        )
    return work


@lru_cache(maxsize=1)
def _opened(plain_recipe: str) -> tuple[IngestWork, str]:
    """The work of a recipe and the digest of its source, once per process for all its shards."""
    recipe = IngestRecipe.model_validate_json(plain_recipe)
    raw = open_source(recipe)
    return open_work(recipe, raw), raw.digest()


_NOT_SHARED = Message(
    "VSE-D036", "output: {place}: {missing} is not there on every node; name a folder that every node sees, or an "
    "s3:// prefix in `upload`."
)


def _require_here(record: ShardRecord, task: ShardTask) -> None:
    """StorageError when a node wrote into a folder of its own that has the same name."""
    if record.shard is None or is_remote(task.place):
        return
    if storage.size_inside(task.place, record.shard.file) != record.shard.bytes:
        raise StorageError(_NOT_SHARED(place=task.place, missing=record.shard.file))


def _scratch() -> Path:
    """The folder in which a node stores a shard until it is uploaded."""
    folder = home() / "cache" / "ingest"
    make_folder(folder)
    return folder


def finish(
    recipe: IngestRecipe, raw: RawDataset, features: FeatureInfo, records: Mapping[str, Sequence[ShardRecord]],
    *, output: Path,
) -> Manifest:
    """Write the vocabulary and, last of all, the manifest, whose notes the caller prints. DataError when a split ended
    up empty."""
    counts = _word_counts(raw, records["train"])
    notes = [
        *raw.notes, *_skipped_notes(records), *_long_caption_notes(raw),
        *_rare_word_notes(counts, recipe.vocabulary_min_count),
    ]
    content, vocabulary = vocabulary_of(counts, min_count=recipe.vocabulary_min_count)
    write_whole(output / VOCABULARY_FILE, content, durable=True)
    manifest = Manifest(
        name=recipe.name,
        splits={name: _split_info(name, found) for name, found in records.items()},
        features=features,
        vocabulary=vocabulary,
        images_stored=recipe.store_images,
        recipe_fingerprint=recipe.content_fingerprint(),
        source_sha256=raw.digest(),
        notes=notes,
    )
    write_manifest(manifest, output)
    return manifest


def upload_dataset(manifest: Manifest, folder: Path, prefix: str, *, progress: ProgressSink) -> None:
    """Copy a finished data set to an s3:// prefix, its manifest last; nothing is copied if that manifest is already
    there.

    StorageError when the bucket refuses.
    """
    shards = [shard.file for split in manifest.splits.values() for shard in split.shards]
    progress.stage(f"{manifest.name} upload", len(shards))
    there = join(prefix, MANIFEST_FILE)
    if storage.exists(there) and storage.read_bytes(there) == manifest.to_bytes():
        progress.advance(len(shards))
        return
    for file in shards:
        s3.upload(folder / file, join(prefix, file))
        progress.advance(1)
    upload_lists(folder, prefix)


def upload_lists(folder: Path, prefix: str) -> None:
    """Copy vocabulary and, last of all, manifest to a prefix that has all the shards. StorageError."""
    s3.upload(folder / VOCABULARY_FILE, join(prefix, VOCABULARY_FILE))
    s3.upload(folder / MANIFEST_FILE, join(prefix, MANIFEST_FILE))


def _split_info(name: str, records: Sequence[ShardRecord]) -> SplitInfo:
    full = [record for record in records if record.shard is not None]
    shards = [record.shard for record in full if record.shard is not None]
    if not shards:
        raise DataError(
            "VSE-D041", "split {split}: no readable image with a caption is left in it; check its list, images and "
            "captions.", split=name,
        )
    images, captions = sum(shard.images for shard in shards), sum(shard.captions for shard in shards)
    return SplitInfo(
        images=images, captions=captions, captions_mean=captions / images, shards=shards,
        captions_min=min(record.captions_min for record in full),
        captions_max=max(record.captions_max for record in full),
    )


def _word_counts(raw: RawDataset, records: Sequence[ShardRecord]) -> Counter[str]:
    """The number of occurrences of each word in the captions of the train split."""
    skipped = {id_ for record in records for id_ in record.skipped}
    return Counter(
        word
        for image in raw.splits["train"].images if image.id not in skipped
        for caption in image.captions
        for word in tokenise(caption)
    )


def _rare_word_notes(counts: Counter[str], min_count: int) -> list[str]:
    """A note if most words are rare: a small data set, or a language without spaces, can leave a nearly empty
    vocabulary."""
    rare = sum(count for count in counts.values() if count < min_count)
    if 2 * rare <= counts.total():
        return []
    return [
        f"{rare:,} of {counts.total():,} words of the train captions stand there fewer than {min_count} times, so that "
        "networks that learn words take them for one; lower vocabulary_min_count, and where a language has no spaces "
        "put some between its words"
    ]


def _long_caption_notes(raw: RawDataset) -> list[str]:
    """Notes on long captions: a document in place of a caption, or many captions joined by mistake."""
    notes = []
    for name, split in raw.splits.items():
        words = ((len(caption.split()), image.id) for image in split.images for caption in image.captions)
        long = sorted(each for each in words if each[0] > _MANY_WORDS)
        if long:
            most, image_id = long[-1]
            notes.append(
                f"split {name}: {len(long):,} captions have more than {_MANY_WORDS} words, the longest, of "
                f"{one_line(image_id)}, has {most:,}: every batch with one is padded to it, which costs time and "
                "memory; shorten what is no caption"
            )
    return notes


def _skipped_notes(records: Mapping[str, Sequence[ShardRecord]]) -> list[str]:
    notes = []
    for split, found in records.items():
        ids = [id_ for record in found for id_ in record.skipped]
        if ids:
            notes.append(f"split {split}: skipped {len(ids)} unreadable images: {', '.join(ids[:20])}")
    return notes
