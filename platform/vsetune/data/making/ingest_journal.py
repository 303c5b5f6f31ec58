"""Progress of an unfinished ingest: one small record per finished shard, beside the shards or in the bucket."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from pydantic import ValidationError

from vsetune.config.spec.base import Spec
from vsetune.data.stored import storage
from vsetune.data.stored.manifest import ShardInfo
from vsetune.data.stored.plain_files import parse_shallow_json
from vsetune.errors import DataError, StorageError, StudyConflict, UsageError, one_line
from vsetune.storage import s3
from vsetune.storage.addresses import join
from vsetune.storage.locks import take_lock
from vsetune.storage.whole_files import partials_in, write_json, write_whole

FOLDER = ".ingest"
_STATE = "state.json"


class ShardRecord(Spec):
    """A finished shard. shard is None when every image of it was skipped. skipped: ids left out as unreadable."""

    shard: ShardInfo | None
    captions_min: int
    captions_max: int
    skipped: list[str]


class Journal:
    """Records of the finished shards of one ingest. Only one process writes: see `locked_journal`."""

    def __init__(self, output: Path) -> None:
        self._output = output
        self._folder = output / FOLDER

    def find(self, name: str) -> ShardRecord | None:
        """The record of a shard that is whole on disk; None when it must be written (again)."""
        try:
            record = ShardRecord.model_validate_json(storage.read_bytes(str(self._folder / f"{name}.json")))
        except (DataError, ValidationError):
            return None
        if record.shard is None or storage.sha256_of(str(self._output / record.shard.file)) == record.shard.sha256:
            return record
        return None

    def add(self, name: str, record: ShardRecord) -> None:
        """Note a finished shard, in one step. StorageError."""
        write_whole(self._folder / f"{name}.json", record.model_dump_json().encode(), durable=True)

    def remove_if_empty(self) -> None:
        """Remove the journal when no shard was finished: the repaired recipe is a different one, and must find the
        folder free."""
        if any(path.name != _STATE for path in self._folder.glob("*.json")) or any(self._output.glob("*.tar")):
            return
        self.remove()
        with suppress(OSError):
            self._output.rmdir()

    def remove(self) -> None:
        """Remove all records: the manifest replaces them."""
        shutil.rmtree(self._folder, ignore_errors=True)


@contextmanager
def locked_journal(output: Path, *, recipe: str, source: str) -> Iterator[Journal]:
    """The journal of this folder, new or continued. recipe, source: fingerprints that must be those of the first run.

    StudyConflict when the folder belongs to another recipe, other source data or to something else altogether;
    StorageError when it cannot be written or another ingest is at work in it.
    """
    folder = output / FOLDER
    state = {"recipe": recipe, "source": source}
    try:
        output.mkdir(parents=True, exist_ok=True)
        if not folder.is_dir():
            _refuse_foreign_files(output)
        folder.mkdir(exist_ok=True)
        lock = take_lock(folder / "lock", wait_s=0)
    except BlockingIOError as error:
        raise StorageError(f"output: {output}: another ingest is writing there; wait for it to end.") from error
    except OSError as error:
        raise StorageError(f"output: {output}: cannot write ({error.strerror}); choose another folder.") from error
    with lock:
        journal = Journal(output)
        _check_state(output, state)
        _remove_partials(output)
        try:
            yield journal
        except UsageError:
            journal.remove_if_empty()
            raise


def _check_state(output: Path, state: dict[str, str]) -> None:
    path = output / FOLDER / _STATE
    if not storage.exists(str(path)):
        try:
            write_json(path, state, durable=True)
        except StorageError:
            Journal(output).remove_if_empty()
            raise
        return
    found = parse_shallow_json(storage.read_bytes(str(path)), where=str(path), fix=f"delete {output / FOLDER}.")
    if not isinstance(found, dict):
        raise DataError(f"{path}: damaged (a {type(found).__name__}, need an object); delete {output / FOLDER}.")
    for key, what in (("recipe", "another recipe"), ("source", "other captions or split lists")):
        if found.get(key) != state[key]:
            raise StudyConflict(
                f"output: {output}: holds an unfinished ingest of {what} ({key} "
                f"{one_line(found.get(key, ''), most=16)}, now {state[key][:16]}); choose another output, or "
                "delete that folder."
            )


def _refuse_foreign_files(output: Path) -> None:
    found = sorted(os.listdir(output))
    if found:
        raise StudyConflict(
            f"output: {output}: not empty and not an ingest (found {found[0]}); choose an empty or new folder."
        )


def _remove_partials(output: Path) -> None:
    for partial in partials_in(output):
        try:
            partial.unlink()
        except OSError as error:
            raise StorageError(f"{partial}: cannot be removed ({error.strerror}); remove it by hand.") from error


class _StoredRecord(Spec):
    """recipe, source: fingerprints of the shard's inputs."""

    recipe: str
    source: str
    record: ShardRecord


class BucketJournal:
    """Records of the finished shards under a prefix. recipe, source: fingerprints that every record must have."""

    def __init__(self, prefix: str, *, recipe: str, source: str) -> None:
        self._prefix, self._recipe, self._source = prefix, recipe, source
        self._asked: list[str] = []

    def find(self, name: str) -> ShardRecord | None:
        """The record of a shard that was uploaded; None when it must be made (again).

        StudyConflict: the prefix holds an unfinished ingest of something else. StorageError: it cannot be reached.
        """
        self._asked.append(name)
        content = storage.find_inside(self._prefix, _file(name))
        if content is None:
            return None
        try:
            stored = _StoredRecord.model_validate_json(content)
        except ValidationError:
            return None
        for what, found, wanted in (
            ("another recipe", stored.recipe, self._recipe),
            ("other captions or split lists", stored.source, self._source),
        ):
            if found != wanted:
                raise StudyConflict(
                    f"upload: {self._prefix}: holds an unfinished ingest of {what} ({one_line(found, most=16)}, now "
                    f"{wanted[:16]}); choose another prefix, or delete what is under this one."
                )
        shard = stored.record.shard
        if shard is None or s3.look(join(self._prefix, shard.file)) is not None:
            return stored.record
        return None

    def add(self, name: str, record: ShardRecord) -> None:
        """Note a shard that was uploaded, in one step. StorageError."""
        stored = _StoredRecord(recipe=self._recipe, source=self._source, record=record)
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / f"{name}.json"
            write_whole(file, stored.model_dump_json().encode(), durable=False)
            s3.upload(file, join(self._prefix, _file(name)))

    def remove(self) -> None:
        """Remove the records of every shard that was looked up: the manifest replaces them. StorageError."""
        remove_records(self._prefix, self._asked)


def remove_records(prefix: str, names: Sequence[str]) -> None:
    """Remove the records of a finished ingest. The last one is deleted last: while it exists, others may exist."""
    records = [join(prefix, _file(name)) for name in names]
    if records and s3.look(records[-1]) is not None:
        s3.delete(records)


def _file(name: str) -> str:
    return f"{FOLDER}/{name}.json"
