"""Progress of an unfinished ingest into a bucket: `.ingest/SHARD.json` under its prefix, per finished shard.

There is no lock: two simultaneous ingests of the same recipe and source write the same bytes, and an ingest of another
recipe or source is refused by the first record it meets.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path

from pydantic import ValidationError

from vsetune.config.spec.base import Spec
from vsetune.config.spec.foreign_text import one_line
from vsetune.data.making.ingest_journal import FOLDER, ShardRecord
from vsetune.data.stored import storage
from vsetune.errors import StudyConflict
from vsetune.files.whole_files import write_whole
from vsetune.object_storage import s3
from vsetune.object_storage.addresses import join


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
        if shard is None or s3.is_there(join(self._prefix, shard.file)):
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
    if records and s3.is_there(records[-1]):
        s3.delete(records)


def _file(name: str) -> str:
    return f"{FOLDER}/{name}.json"
