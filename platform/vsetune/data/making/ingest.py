"""Ingest: a recipe in, WebDataset shards, a vocabulary and a manifest out.

The output is a function of recipe and source alone: an ingest that was killed goes on at the first unfinished shard
and ends in the same bytes. Batches of images never cross a shard, so a CNN sees the same batches either way.
"""

from __future__ import annotations

import itertools
import logging
import shutil
from pathlib import Path

from vsetune.config.sources.recipe import IngestRecipe, expand_path
from vsetune.config.spec.paths import home, under_home
from vsetune.data.captions.parses import copy_parses, parse_dataset, read_parses
from vsetune.data.captions.spacy_parser import load_parser
from vsetune.data.making.finish import finish, upload_dataset
from vsetune.data.making.ingest_journal import Journal, ShardRecord, locked_journal
from vsetune.data.making.shard_making import IngestWork, feature_info, make_shard, open_source, open_work
from vsetune.data.making.shard_plan import first_indices, plan_shards
from vsetune.data.progress import ProgressSink
from vsetune.data.stored import storage
from vsetune.data.stored.dataset import load_manifest
from vsetune.data.stored.manifest import MANIFEST_FILE, Manifest
from vsetune.errors import StorageError, StudyConflict
from vsetune.object_storage.addresses import is_remote, join

log = logging.getLogger(__name__)


def ingest(recipe: IngestRecipe, *, progress: ProgressSink) -> Manifest:
    """Make the data set of a recipe, or finish it, or find it finished. Returns its manifest.

    ConfigError, DataError: recipe or source. StorageError: disk or bucket. StudyConflict: the folder holds another.
    """
    output = output_folder(recipe)
    if recipe.parses is not None and read_parses(str(output)) is None:
        load_parser(recipe.parses.pipeline)  # what is missing is told before hours of work
    manifest = finished(recipe, str(output))
    if manifest is None:
        raw = open_source(recipe)
        with locked_journal(output, recipe=recipe.content_fingerprint(), source=raw.digest()) as journal:
            manifest = _write_dataset(open_work(recipe, raw), output, journal, progress)
    else:
        Journal(output).remove()
    if recipe.parses is not None:
        parse_dataset(str(output), recipe.parses.pipeline, progress=progress)
    for prefix in _upload_prefixes(recipe):
        upload_dataset(manifest, output, prefix, progress=progress)
        copy_parses(output, prefix)
    return manifest


def output_place(recipe: IngestRecipe) -> str:
    """Where the data set of a recipe is read from afterwards: a folder, or a prefix where the home is in a bucket.

    ConfigError for a variable that is not set.
    """
    return under_home(expand_path(recipe.output, key="output"))


def output_folder(recipe: IngestRecipe) -> Path:
    """The folder on this machine that it is made in. ConfigError as of `output_place`."""
    place = output_place(recipe)
    return home() / expand_path(recipe.output, key="output") if is_remote(place) else Path(place)


def _upload_prefixes(recipe: IngestRecipe) -> list[str]:
    place = output_place(recipe)
    return ([place] if is_remote(place) else []) + ([recipe.upload] if recipe.upload else [])


def finished(recipe: IngestRecipe, place: str) -> Manifest | None:
    """The manifest in this folder or prefix, if it is finished. StudyConflict when it is of another recipe."""
    if not storage.exists(join(place, MANIFEST_FILE)):
        return None
    manifest = load_manifest(place)
    wanted = recipe.content_fingerprint()
    if manifest.recipe_fingerprint != wanted:
        raise StudyConflict(
            f"output: {place}: holds data set {manifest.name} of another recipe "
            f"({manifest.recipe_fingerprint}, now {wanted}); choose another output, or delete that folder."
        )
    log.info("data set %s in %s is already complete", manifest.name, place)
    return manifest


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


def check_space(output: Path, needed: int) -> None:
    """StorageError when the disk of a folder has fewer bytes left than are needed."""
    free = shutil.disk_usage(output).free
    if free < needed:
        raise StorageError(
            f"output: {output}: {free / 2**20:,.0f} MiB free, the shards still to write need up to "
            f"{needed / 2**20:,.0f} MiB; free space, choose another output, or set store_images: false."
        )
