"""An ingest whose shards are made by many processes, on one machine or several; same bytes as `ingest`.

A task for a shard is plain data. Its process reads the source itself, writes the shard to its final place, and only
then its record, so finished shards are known wherever the command is repeated. Where the processes run is decided
elsewhere: see `vsetune.study.ingest_on_cluster`.
"""

from __future__ import annotations

import itertools
import platform
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Protocol, TypeVar

from vsetune.config.sources.recipe import IngestRecipe
from vsetune.data.captions.parses import parse_dataset, require_pipeline
from vsetune.data.making.data_place import check_space, data_place, finished, require_whole
from vsetune.data.making.finish import finish, upload_lists
from vsetune.data.making.ingest_journal import (
    FOLDER,
    BucketJournal,
    Journal,
    ShardRecord,
    locked_journal,
    remove_records,
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
from vsetune.data.progress import ProgressSink, SilentProgress
from vsetune.data.stored import storage
from vsetune.data.stored.manifest import FeatureInfo, Manifest
from vsetune.errors import ConfigError, DataError, StorageError, UsageError
from vsetune.storage import s3
from vsetune.storage.addresses import is_remote, join
from vsetune.storage.paths import home
from vsetune.storage.whole_files import make_folder

T = TypeVar("T", covariant=True)


@dataclass(frozen=True)
class ShardTask:
    """One shard of a plan: plain data. recipe: as JSON. source: digest that the source has where it was planned.

    place: folder that everybody sees, or s3:// prefix.
    """

    recipe: str
    source: str
    features: FeatureInfo
    plan: PlannedShard
    first: FirstIndices
    place: str


class Place(Protocol):
    """Runs each task in some process. Results in order of completion; a task whose process was lost is run again."""

    def __call__(
        self, function: Callable[[ShardTask], T], tasks: Sequence[ShardTask], /
    ) -> Iterator[tuple[ShardTask, T]]: ...


def ingest_in_parallel(recipe: IngestRecipe, place_tasks: Place, *, progress: ProgressSink) -> Manifest:
    """`ingest` with its shards made where `place_tasks` puts them. Returns the manifest; errors as in `ingest`.

    The data set is written to `upload`, if the recipe gives it: a prefix of a bucket that every node reaches. Otherwise
    to `output`, which must then be a folder that every node sees, or lie in a bucket like vsetune's home.
    """
    place = data_place(recipe, in_parallel=True)
    if recipe.parses is not None:
        require_pipeline(place, recipe.parses)
    manifest = finished(recipe, place)
    if manifest is None:
        manifest = _write_dataset(recipe, place, place_tasks, progress)
    else:
        require_whole(place)
        _forget_journal(place, manifest)
    if recipe.parses is not None:
        parse_dataset(place, recipe.parses.pipeline, phrases=recipe.parses.phrases, progress=progress)
    return manifest


def make_and_keep(task: ShardTask) -> ShardRecord:
    """Make the shard of a task at its final place, and record it. Errors name the node."""
    try:
        work, progress = _as_planned(task), SilentProgress()
        if is_remote(task.place):
            with tempfile.TemporaryDirectory(dir=_scratch()) as folder:
                record = make_shard(
                    task.plan, task.first, work, task.features, folder=Path(folder), progress=progress
                )
                if record.shard is not None:
                    s3.upload(Path(folder) / record.shard.file, join(task.place, record.shard.file))
        else:
            _require_shared(task.place)
            record = make_shard(
                task.plan, task.first, work, task.features, folder=Path(task.place), progress=progress
            )
        _journal_of(task).add(task.plan.name, record)
        return record
    except UsageError as error:
        raise type(error)(f"{error} (on node {platform.node()})") from error


def find_unreadable(task: ShardTask) -> list[str]:
    """Ids of the images of a task's shard that cannot be decoded. Errors name the node."""
    try:
        return unreadable_images(task.plan, _as_planned(task))
    except UsageError as error:
        raise type(error)(f"{error} (on node {platform.node()})") from error


def _write_dataset(recipe: IngestRecipe, place: str, place_tasks: Place, progress: ProgressSink) -> Manifest:
    _opened.cache_clear()  # the source may have changed since this process last read it
    plain = recipe.model_dump_json()
    work, source = _opened(plain)
    raw, features = work.raw, feature_info(work)
    plans = plan_shards(raw, recipe, features)
    shards = list(itertools.chain(*plans.values()))
    with _opened_journal(place, recipe, source) as journal:
        done = {plan.name: record for plan in shards if (record := journal.find(plan.name)) is not None}
        to_do = [plan for plan in shards if plan.name not in done]
        if not is_remote(place):
            check_space(Path(place), sum(plan.bytes_bound for plan in to_do))

        def task(plan: PlannedShard, first: FirstIndices) -> ShardTask:
            return ShardTask(plain, source, features, plan, first, place)

        skipped = {name: record.skipped for name, record in done.items()}
        skipped |= _skipped(recipe, [task(plan, FirstIndices(0, 0)) for plan in to_do], place_tasks, progress)
        firsts = {
            plan: first for plans_of_split in plans.values()
            for plan, first in first_indices(plans_of_split, raw, skipped)
        }
        progress.stage(f"{recipe.name} shards", sum(plan.images for plan in shards))
        progress.advance(sum(plan.images for plan in shards if plan.name in done))
        for each, record in place_tasks(make_and_keep, [task(plan, firsts[plan]) for plan in to_do]):
            _require_here(record, each)
            done[each.plan.name] = record
            progress.advance(each.plan.images)
        records = {split: [done[plan.name] for plan in of_split] for split, of_split in plans.items()}
        manifest = _finish(recipe, raw, features, records, place)
        journal.remove()
    return manifest


def _skipped(
    recipe: IngestRecipe, tasks: Sequence[ShardTask], place_tasks: Place, progress: ProgressSink
) -> dict[str, list[str]]:
    """The images that each shard leaves out: the first indices of a shard depend on the content of the earlier ones."""
    if recipe.on_unreadable != "skip":
        return {task.plan.name: [] for task in tasks}
    progress.stage(f"{recipe.name} looking for unreadable images", sum(task.plan.images for task in tasks))
    found = {}
    for task, ids in place_tasks(find_unreadable, tasks):
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


def _opened_journal(
    place: str, recipe: IngestRecipe, source: str
) -> AbstractContextManager[Journal] | AbstractContextManager[BucketJournal]:
    fingerprint = recipe.content_fingerprint()
    if is_remote(place):
        return nullcontext(BucketJournal(place, recipe=fingerprint, source=source))
    return locked_journal(Path(place), recipe=fingerprint, source=source)


def _forget_journal(place: str, manifest: Manifest) -> None:
    """Remove the journal left by an ingest that was killed between its manifest and its end."""
    if is_remote(place):
        shards = (shard for split in manifest.splits.values() for shard in split.shards)
        remove_records(place, [Path(shard.file).stem for shard in shards])
    else:
        Journal(Path(place)).remove()


def _journal_of(task: ShardTask) -> Journal | BucketJournal:
    """The journal of a place that another process has open; each shard has a record of its own."""
    if is_remote(task.place):
        recipe = IngestRecipe.model_validate_json(task.recipe)
        return BucketJournal(task.place, recipe=recipe.content_fingerprint(), source=task.source)
    return Journal(Path(task.place))


def _as_planned(task: ShardTask) -> IngestWork:
    """The work of a task. DataError when this node does not see the source that was planned for."""
    fix = (
        "the files of `source` must stand at the same paths on every node (a shared folder); or ingest on the machine "
        "that has them, without --address"
    )
    try:
        work, source = _opened(task.recipe)
    except (ConfigError, DataError) as error:
        raise DataError(f"{error} Where shards are made on a cluster, {fix}.") from error
    if source != task.source:
        raise DataError(f"source: has other captions or split lists here than where the ingest was started; {fix}.")
    return work


@lru_cache(maxsize=1)
def _opened(plain_recipe: str) -> tuple[IngestWork, str]:
    """The work of a recipe and the digest of its source, once per process for all its shards."""
    recipe = IngestRecipe.model_validate_json(plain_recipe)
    raw = open_source(recipe)
    return open_work(recipe, raw), raw.digest()


def _require_shared(place: str) -> None:
    if not (Path(place) / FOLDER).is_dir():
        raise StorageError(
            f"output: {place}: is no folder that every node sees; name one, or an s3:// prefix in `upload`."
        )


def _require_here(record: ShardRecord, task: ShardTask) -> None:
    """StorageError when a node wrote into a folder of its own that has the same name."""
    if record.shard is None or is_remote(task.place):
        return
    if storage.size_inside(task.place, record.shard.file) != record.shard.bytes:
        raise StorageError(
            f"output: {task.place}: {record.shard.file} was written on another node and is not here; name a folder "
            "that every node sees, or an s3:// prefix in `upload`."
        )


def _scratch() -> Path:
    """The folder in which a node stores a shard until it is uploaded."""
    folder = home() / "cache" / "ingest"
    make_folder(folder)
    return folder
