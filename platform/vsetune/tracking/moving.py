"""Studies carried from one store to another: what is asked of a store for that, whatever it is."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from vsetune.config.spec.secrets import shown_url
from vsetune.errors import UsageError
from vsetune.tracking.exported_study import ExportedStudy, StudyWriter
from vsetune.tracking.opening import is_memory, made_ready


@dataclass(frozen=True)
class Exported:
    """runs: how many were written. running: attempts among them that had not ended. bare: names of runs of ours
    without a single artifact, whose files lie where this machine does not see them."""

    runs: int
    running: int
    bare: Sequence[str]


@dataclass(frozen=True)
class Imported:
    """Runs of an import: new ones, those that an earlier import had left unfinished or that have gone on since, and
    those that were there already."""

    new: int
    completed: int
    there: int


class StudyExporter(ABC):
    """Raises UsageError for an unknown study, StorageError when the store or one of its files cannot be read."""

    @abstractmethod
    def export(
        self, study: str, writer: StudyWriter, *, search: Path | None, on_run: Callable[[str], None]
    ) -> Exported:
        """Everything that the store keeps of a study. search: the file of its search, where it has one. on_run: called
        with the name of each run before it is read."""


class StudyImporter(ABC):
    """What an import may be told twice: it adds what is not there, and replaces nothing that has changed since.

    The study is not among the store's studies before all of it is there. StorageError when the store cannot be
    written; the same import goes on then.
    """

    @abstractmethod
    def bring(self, exported: ExportedStudy, *, on_run: Callable[[str], None]) -> Imported:
        """StudyConflict where the name stands for something else, or a run has been changed here since it was brought;
        DataError where the export has changed since it was opened."""


def exporter(uri: str) -> StudyExporter:
    """For the store behind a URI. StorageError where none answers."""
    _require_lasting(uri)
    made_ready(uri, None)
    from vsetune.tracking.mlflow_exporting import MlflowExporter

    return MlflowExporter(uri, shown_uri=shown_url(uri))


def importer(uri: str, artifact_root: str | None) -> StudyImporter:
    """For the store behind a URI, which is made if it is a SQLite file. artifact_root: as `open_store` has it."""
    _require_lasting(uri)
    location = made_ready(uri, artifact_root)
    from vsetune.tracking.mlflow_importing import MlflowImporter

    return MlflowImporter(uri, location, shown_uri=shown_url(uri))


def _require_lasting(uri: str) -> None:
    if is_memory(uri):
        raise UsageError(f"tracking uri {uri}: lives and dies with its process; name a database or a server")
