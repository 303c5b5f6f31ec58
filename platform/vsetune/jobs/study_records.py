"""What the driver of a study writes, and who copies it to MLflow."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from vsetune.config.spec.loading import parse_spec
from vsetune.config.spec.paths import remote_place
from vsetune.config.study.cells import Cell
from vsetune.config.study.study_spec import SearchSpec, TrackingSpec
from vsetune.errors import StudyConflict, UsageError
from vsetune.jobs.confirmations import trial_id
from vsetune.jobs.preparation import PreparedStudy
from vsetune.jobs.store_address import tracking_uri
from vsetune.jobs.study_home import StudyHome, held_home
from vsetune.records.events import Drawn
from vsetune.records.exporter import Export, Exporter
from vsetune.records.log import LogWriter
from vsetune.records.studies import Studies, folder_of_study
from vsetune.records.study_history import StudyHistory
from vsetune.records.writer import StudyWriter
from vsetune.search.configurations import ConfigurationSearch, Refusal, Sampled


@dataclass(frozen=True)
class StudyRecords:
    """log: the truth. writer: what the driver decides and hears, as its events. exporter: takes them to MLflow."""

    log: LogWriter
    writer: StudyWriter
    exporter: Exporter


@contextmanager
def study_records(prepared: PreparedStudy, held: StudyHome) -> Iterator[StudyRecords]:
    """Opens the log of a study that is held. StorageError where it cannot be written, DataError where it is damaged."""
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


def require_sampled(study: str, history: StudyHistory) -> None:
    """StudyConflict where the log does not have the configurations of trials of the search: it would sample others
    under their names."""
    searched = [each.start for each in history.attempts() if each.start.phase == "search" and each.start.configuration]
    sampled = {
        trial_id(each.cell, each.number, seed): each.configuration
        for seed in {start.seed for start in searched} for each in history.draws
    }
    lost = [each.trial for each in searched if sampled.get(each.trial) != each.configuration]
    if lost:
        raise StudyConflict(
            f"study {study}: its log does not say what was sampled for trials of its search ({len(lost)} of "
            f"{len(searched)} attempts, the first of {lost[0]}), like that of a study of version 0.2, so the search "
            f"cannot go on; give the study another name and let it learn from this one: search.warm_start: [{study}]"
        )


def logged_search(
    writer: StudyWriter, cells: Sequence[Cell], spec: SearchSpec, *, refuses: Refusal | None = None
) -> ConfigurationSearch:
    """A search that begins with what the log says was sampled, and adds what it samples. refuses, ConfigError: see
    `ConfigurationSearch`."""
    sampled = [{name: value for name, value in vars(each).items() if name != "at"} for each in writer.history.draws]
    return ConfigurationSearch(
        cells, spec, sampled=[Sampled(**each) for each in sampled], first_numbers=writer.history.first_numbers,
        keep=lambda each: writer.draw(Drawn(**vars(each), at=time.time())), refuses=refuses,
    )


def export_records(study: str, tracking: TrackingSpec | None, *, patience_s: float) -> tuple[int, str]:
    """Takes the log of a study to MLflow: (how many events are left, why). tracking: None for what its file says.

    UsageError where there is no MLflow to take it to; StudyConflict while its driver lives, which exports it itself.
    """
    record = Studies().record(study)
    if tracking is None:
        tracking = parse_spec(dict(record.config.get("tracking") or {}), TrackingSpec, where=f"study {study}: tracking")
    uri, folder = tracking_uri(tracking), folder_of_study(study)
    if uri is None:
        raise UsageError(f"study {study}: is not exported; give --tracking-uri, or set MLFLOW_TRACKING_URI")
    with held_home(folder) as held, _opened(folder, held, uri, tracking.series) as records:
        left = records.exporter.deliver(patience_s)
        return left, records.exporter.outage() or "it is slow; repeat"


def kept_names(folder: Path, files: Sequence[Path]) -> list[str]:
    """Files of a study as its log names them: below its folder."""
    return [file.relative_to(folder).as_posix() for file in files if file.is_relative_to(folder)]
