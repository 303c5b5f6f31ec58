"""Ingest: a recipe in, WebDataset shards, a vocabulary and a manifest out.

The output is a function of recipe and source only: a killed ingest continues at the first unfinished shard and ends in
the same bytes. Batches of images never cross a shard, so a CNN sees the same batches either way.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TypeVar

from vsetune.config.sources.recipe import IngestRecipe
from vsetune.data.captions.parses import copy_parses, parse_dataset, require_pipeline
from vsetune.data.making.data_place import check_space, data_place, finished, require_whole
from vsetune.data.making.finish import finish, upload_dataset
from vsetune.data.making.ingest_journal import Journal, ShardRecord, locked_journal
from vsetune.data.making.parallel_ingest import ShardTask, ingest_in_parallel
from vsetune.data.making.shard_making import (
    IngestWork,
    feature_info,
    first_indices,
    make_shard,
    open_source,
    open_work,
    plan_shards,
)
from vsetune.data.progress import ProgressSink
from vsetune.data.stored.manifest import Manifest
from vsetune.storage.addresses import is_remote

T = TypeVar("T")


def ingest(recipe: IngestRecipe, *, progress: ProgressSink) -> Manifest:
    """Make the data set of a recipe, finish it, or find it finished. Returns its manifest.

    With a home in a bucket nothing stays on this machine: each shard is uploaded as soon as it is made.
    ConfigError, DataError: recipe or source. StorageError: disk or bucket. StudyConflict: the folder has another data
    set.
    """
    place = data_place(recipe, in_parallel=False)
    if is_remote(place):
        return ingest_in_parallel(recipe, _one_by_one, progress=progress)
    output = Path(place)
    if recipe.parses is not None:
        require_pipeline(str(output), recipe.parses)
    manifest = finished(recipe, str(output))
    if manifest is None:
        raw = open_source(recipe)
        with locked_journal(output, recipe=recipe.content_fingerprint(), source=raw.digest()) as journal:
            manifest = _write_dataset(open_work(recipe, raw), output, journal, progress)
    else:
        require_whole(place)
        Journal(output).remove()
    if recipe.parses is not None:
        parse_dataset(str(output), recipe.parses.pipeline, phrases=recipe.parses.phrases, progress=progress)
    if recipe.upload:
        upload_dataset(manifest, output, recipe.upload, progress=progress)
        copy_parses(output, recipe.upload)
    return manifest


def _one_by_one(function: Callable[[ShardTask], T], tasks: Sequence[ShardTask]) -> Iterator[tuple[ShardTask, T]]:
    """A `Place` in this process."""
    for task in tasks:
        yield task, function(task)


def _write_dataset(work: IngestWork, output: Path, journal: Journal, progress: ProgressSink) -> Manifest:
    features = feature_info(work)
    plans = plan_shards(work.raw, work.recipe, features)
    done = {plan.name: journal.find(plan.name) for plan in itertools.chain(*plans.values())}
    check_space(output, sum(plan.bytes_bound for plan in itertools.chain(*plans.values()) if done[plan.name] is None))
    records: dict[str, list[ShardRecord]] = {}
    for split, shards in plans.items():
        progress.stage(f"{work.recipe.name} {split}", len(work.raw.splits[split].images))
        records[split] = []
        skipped: dict[str, list[str]] = {}
        for plan, first in first_indices(shards, work.raw, skipped):
            record = done[plan.name]
            if record is None:
                record = make_shard(plan, first, work, features, folder=output, progress=progress)
                journal.add(plan.name, record)
            else:
                progress.advance(plan.images)
            skipped[plan.name] = record.skipped
            records[split].append(record)
    manifest = finish(work.recipe, work.raw, features, records, output=output)
    journal.remove()
    return manifest
