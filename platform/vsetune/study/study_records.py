"""Records of a study's driver: the log, its writer, and the exporter that copies it to MLflow."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from vsetune.config.spec.loading import parse_spec
from vsetune.config.study.study_spec import TrackingSpec
from vsetune.errors import StudyConflict, UsageError
from vsetune.home.paths import remote_place
from vsetune.records.exporter import Export, Exporter
from vsetune.records.log import LogWriter
from vsetune.records.state import StudyState
from vsetune.records.studies import Studies, export_note, folder_of_study
from vsetune.records.writer import StudyWriter
from vsetune.study.confirmations import trial_id
from vsetune.study.places import tracking_uri
from vsetune.study.preparation import PreparedStudy
from vsetune.study.study_home import StudyHome, held_home


@dataclass(frozen=True)
class StudyRecords:
    """Open records of a study. log: the source of truth. writer: adds the driver's decisions and reports as events.
    exporter: copies the events to MLflow."""

    log: LogWriter
    writer: StudyWriter
    exporter: Exporter


@contextmanager
def study_records(prepared: PreparedStudy, held: StudyHome) -> Iterator[StudyRecords]:
    """Opens the log of a locked study. StorageError if it cannot be written, DataError if it is damaged."""
    tracking = prepared.spec.tracking
    with _opened(prepared.folder, held, tracking_uri(tracking), tracking.series) as records:
        yield records


@contextmanager
def _opened(folder: Path, held: StudyHome, uri: str | None, series: str) -> Iterator[StudyRecords]:
    log = LogWriter(folder, remote_place(folder), on_overtaken=held.on_lost)

    def open_export() -> Export:
        from vsetune.records.mlflow_export import MlflowExport

        assert uri is not None, "else nothing is exported"
        return MlflowExport(uri, folder, series=series, file=held.file, until=lambda: log.settled_end)

    exporter = Exporter(None if uri is None else open_export, log)
    try:
        yield StudyRecords(log, StudyWriter(log), exporter)
    finally:
        exporter.close()
        log.close()


def require_sampled(study: str, state: StudyState) -> None:
    """StudyConflict if the log lacks the configurations of some search trials: the search would sample others under
    their names."""
    starts = [each.start for each in state.attempts.values()]
    searched = [start for start in starts if start.phase == "search" and start.configuration]
    sampled = {
        trial_id(each.cell, each.number, seed): each.configuration
        for seed in {start.seed for start in searched} for each in state.draws
    }
    lost = [each.trial for each in searched if sampled.get(each.trial) != each.configuration]
    if lost:
        raise StudyConflict(
            "VSE-S029", "study {study}: its log does not contain what was sampled for trials of its search ({lost} of "
            "{all} attempts, the first of {first}), so the search cannot go on; give the study another name",
            study=study, lost=len(lost), all=len(searched), first=lost[0],
        )


_ANSWER_S = 300.0
"""A slow MLflow gives one answer in that time, also to a file's upload."""


def export_records(study: str, tracking: TrackingSpec | None, *, patience_s: float) -> tuple[int, str, str]:
    """Exports the log of a study to MLflow. Returns (number of events left, why, name of its experiment).

    tracking: None for that of its file. patience_s: how long to wait for an MLflow that is away.

    UsageError if there is no MLflow to export to; StudyConflict while the study's driver runs, which exports it itself.
    """
    record = Studies().record(study)
    if tracking is None:
        tracking = parse_spec(dict(record.config.get("tracking") or {}), TrackingSpec, where=f"study {study}: tracking")
    uri, folder = tracking_uri(tracking), folder_of_study(study)
    if uri is None:
        raise UsageError(
            "VSE-S030", "study {study}: is not exported; give --tracking-uri, or set MLFLOW_TRACKING_URI", study=study
        )
    with held_home(folder) as held, _opened(folder, held, uri, tracking.series) as records:
        left = records.exporter.deliver(patience_s, answer_s=_ANSWER_S)
        why = records.exporter.outage() or "it is slow; repeat"
        return left, why, export_note(folder).get("name") or study


def kept_names(folder: Path, files: Sequence[Path]) -> list[str]:
    """Files of a study as its log names them: paths relative to its folder. Files elsewhere are left out."""
    return [file.relative_to(folder).as_posix() for file in files if file.is_relative_to(folder)]
