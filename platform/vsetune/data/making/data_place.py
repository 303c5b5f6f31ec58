"""The place of a data set: its recipe file, whether it is there already, and the journal of an unfinished ingest."""

from __future__ import annotations

import logging
import os
import shutil
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from pydantic import ValidationError

from vsetune.config.plugins import load_installed, load_plugins
from vsetune.config.sources.index_recipe import IndexRecipe
from vsetune.config.sources.recipe import IngestRecipe, expand_path
from vsetune.config.spec.base import Spec
from vsetune.config.spec.loading import parse_spec, read_yaml
from vsetune.config.spec.yaml_files import require_kind
from vsetune.data.stored import storage
from vsetune.data.stored.dataset import Dataset, load_manifest, without_check
from vsetune.data.stored.manifest import MANIFEST_FILE, Manifest, ShardInfo, VocabularyInfo
from vsetune.data.stored.vocabulary import Vocabulary
from vsetune.errors import ConfigError, DataError, StorageError, StudyConflict, UsageError, one_line
from vsetune.home import s3
from vsetune.home.addresses import is_remote, join
from vsetune.home.hashes import sha256_hex
from vsetune.home.locks import take_lock
from vsetune.home.paths import under_home
from vsetune.home.whole_files import remove_partials, write_whole

log = logging.getLogger(__name__)


def output_place(recipe: IngestRecipe | IndexRecipe) -> str:
    """The `output` of a recipe: a folder, or a prefix if vsetune's home is in a bucket.

    ConfigError for a variable that is not set.
    """
    return under_home(expand_path(recipe.output, key="output"))


def data_place(recipe: IngestRecipe, *, in_parallel: bool) -> str:
    """The place from which the data set can be read afterwards. in_parallel: its shards are made on a cluster. Errors
    as in `output_place`.

    A data set made here stays here, and is copied to `upload`. A cluster, and a home in a bucket, need a place that
    every node reaches: `upload` if it is given, `output` otherwise.
    """
    output = output_place(recipe)
    return (recipe.upload or output) if in_parallel or is_remote(output) else output


def finished(recipe: IngestRecipe, place: str) -> Manifest | None:
    """The manifest in this folder or prefix, if it is finished. StudyConflict when it is of another recipe."""
    if not storage.exists(join(place, MANIFEST_FILE)):
        return None
    manifest = load_manifest(place)
    wanted = recipe.content_fingerprint()
    if manifest.recipe_fingerprint != wanted:
        raise StudyConflict(
            "VSE-D034", "output: {place}: holds data set {data_set} of another recipe ({found}, now {need}); choose "
            "another output, or delete that folder.", place=place, data_set=manifest.name,
            found=manifest.recipe_fingerprint, need=wanted,
        )
    log.info("data set %s in %s is already complete", manifest.name, place)
    return manifest


def require_whole(place: str) -> None:
    """DataError when a finished data set has lost files: a finished data set is not made again, so they would stay
    lost.

    Checks the sizes of shards and the vocabulary; hashes are checked by `vsetune data verify`. For an s3:// prefix it
    checks only the vocabulary.
    """
    try:
        dataset = Dataset.open(place)
        dataset.check_files(dataset.manifest.splits)
    except DataError as error:
        problem = without_check(error.problem, place)
        advice = f"A complete data set is not made anew: delete {place} first."
        raise DataError(problem.worded(f"{problem} {advice}")) from error


def check_space(output: Path, needed: int) -> None:
    """StorageError when the disk of a folder has fewer bytes left than are needed."""
    free = shutil.disk_usage(output).free
    if free < needed:
        raise StorageError(
            "VSE-D039", "output: {place}: {free_mib:,.0f} MiB free, the shards still to write need up to "
            "{need_mib:,.0f} MiB; free space, choose another output, or set store_images: false.", place=output,
            free_mib=free / 2**20, need_mib=needed / 2**20,
        )


def load_recipe(path: Path) -> IngestRecipe:
    """A recipe from its file, after loading the readers it names and those of installed packages.

    ConfigError lists every problem with its key; every line opens with the path.
    """
    content = read_yaml(path)
    require_kind(content, IngestRecipe, where=str(path))
    source = content.get("source")
    installed, broken = load_installed()
    problem = broken.get(str(source.get("layout"))) if isinstance(source, dict) else None
    if problem is not None:
        raise ConfigError(f"{path}: {problem}")
    references = content.get("plugins")
    if isinstance(references, list) and all(isinstance(each, str) for each in references):
        try:
            load_plugins(references, base=path.absolute().parent, beside=installed)
        except ConfigError as error:
            raise ConfigError([f"{path}: {line}" for line in error.problems]) from error
    return parse_spec(content, IngestRecipe, where=str(path))


JOURNAL = ".ingest"


class ShardRecord(Spec):
    """A finished shard. shard is None when every image of it was skipped. skipped: ids left out as unreadable."""

    shard: ShardInfo | None
    captions_min: int
    captions_max: int
    skipped: list[str]


class _StoredRecord(Spec):
    """recipe, source: fingerprints of the shard's inputs."""

    recipe: str
    source: str
    record: ShardRecord


class Journal:
    """Progress of an unfinished ingest: a record of each finished shard, below the data set's folder or prefix.

    recipe, source: fingerprints that every record must have. Several processes may add records, each of other shards.
    """

    def __init__(self, place: str, *, recipe: str = "", source: str = "") -> None:
        self._place, self._recipe, self._source = place, recipe, source

    def find(self, name: str) -> ShardRecord | None:
        """The record of a shard that is whole at its place; None when it must be made (again).

        StudyConflict: the place holds an unfinished ingest of something else. StorageError: it cannot be reached.
        """
        record = self._stored(name)
        if record is None or record.shard is None:
            return record
        file = join(self._place, record.shard.file)
        is_there = storage.exists(file) if is_remote(file) else storage.sha256_of(file) == record.shard.sha256
        return record if is_there else None

    def add(self, name: str, record: ShardRecord) -> None:
        """Note a finished shard, in one step. StorageError."""
        stored = _StoredRecord(recipe=self._recipe, source=self._source, record=record)
        write_at(self._place, f"{JOURNAL}/{name}.json", stored.model_dump_json().encode())

    def remove(self, names: Sequence[str]) -> None:
        """Remove the records of all shards: the manifest replaces them. In a bucket the last one is deleted last: while
        it exists, others may exist. StorageError."""
        if not is_remote(self._place):
            shutil.rmtree(Path(self._place) / JOURNAL, ignore_errors=True)
            return
        records = [self._file(name) for name in names]
        if records and storage.exists(records[-1]):
            s3.delete(records)

    def require_same(self, names: Sequence[str]) -> None:
        """StudyConflict when one of these records is of another recipe or source."""
        for name in names:
            self._stored(name)

    def _stored(self, name: str) -> ShardRecord | None:
        try:
            content = storage.find_inside(self._place, f"{JOURNAL}/{name}.json")
            if content is None:
                return None
            stored = _StoredRecord.model_validate_json(content)
        except ValidationError:
            return None
        except DataError:
            if is_remote(self._place):  # such as no bucket, which is noticed before hours of work
                raise
            return None
        for what, found, wanted in (
            ("another recipe", stored.recipe, self._recipe),
            ("other captions or split lists", stored.source, self._source),
        ):
            if found != wanted:
                raise StudyConflict(
                    "VSE-D038", "output: {place}: holds an unfinished ingest of {other} ({found}, now {need}); choose "
                    "another place, or delete what is there.", place=self._place, other=what,
                    found=one_line(found, most=16), need=wanted[:16],
                )
        return stored.record

    def _file(self, name: str) -> str:
        return join(self._place, f"{JOURNAL}/{name}.json")


@contextmanager
def opened_journal(place: str, *, recipe: str, source: str) -> Iterator[Journal]:
    """The journal of this place, new or continued; a folder is locked. recipe, source: fingerprints that must be those
    of the first run.

    StudyConflict when the folder belongs to another recipe, other source data or to something else altogether;
    StorageError when it cannot be written or another ingest is at work in it.
    """
    journal = Journal(place, recipe=recipe, source=source)
    if is_remote(place):
        yield journal
        return
    output, folder = Path(place), Path(place) / JOURNAL
    try:
        output.mkdir(parents=True, exist_ok=True)
        if not folder.is_dir():
            refuse_foreign_files(output)
        folder.mkdir(exist_ok=True)
        lock = locked(place, folder)
    except OSError as error:
        raise StorageError(
            "VSE-D003", "{file}: cannot write ({reason}); check the folder and its rights.", file=f"output: {output}",
            reason=error.strerror,
        ) from error
    with lock:
        try:
            journal.require_same([path.stem for path in sorted(folder.glob("*.json"))])
            remove_partials(output)
            yield journal
        except UsageError:
            if not any(folder.glob("*.json")) and not any(output.glob("*.tar")):
                # the repaired recipe is a different one, and must find the folder free
                journal.remove([])
                with suppress(OSError):
                    output.rmdir()
            raise


def refuse_foreign_files(output: Path) -> None:
    """StudyConflict for a folder with files that vsetune did not write."""
    found = sorted(os.listdir(output))
    if found:
        raise StudyConflict(
            "VSE-D035", "output: {place}: not empty and not an ingest (found {file}); choose an empty or new folder.",
            place=output, file=found[0],
        )


def locked(place: str, folder: Path) -> ExitStack:
    """The lock in a folder of this place. StorageError if another process holds it."""
    try:
        return take_lock(folder / "lock", wait_s=0)
    except BlockingIOError as error:
        raise StorageError(
            "VSE-D037", "output: {place}: another ingest is writing there; wait for it to end.", place=place
        ) from error


def write_at(place: str, name: str, content: bytes) -> None:
    """Write a small file of a data set whole. StorageError."""
    if is_remote(place):
        s3.put_bytes(join(place, name), content)
    else:
        write_whole(Path(place) / name, content, durable=True)


def vocabulary_of(counts: Counter[str], *, min_count: int) -> tuple[bytes, VocabularyInfo]:
    """The file of the vocabulary of these words, and what the manifest has of it."""
    vocabulary = Vocabulary.of_counts(counts, min_count=min_count)
    content = vocabulary.to_json().encode()
    return content, VocabularyInfo(sha256=sha256_hex(content), words=len(vocabulary), min_count=min_count)
