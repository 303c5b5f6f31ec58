"""Copies a study's log to MLflow by its public client: an experiment per study, its run, and a nested run per attempt.
When the study ends, a run with the mean curve of each configuration stands between (`mlflow_means`).

    params    hyperparameters, searched or fixed, network, loss, seed, cell
    metrics   every number of every validation at its training step, and the attempt's totals at its end
    status    FINISHED (the tag `status` marks pruned ones), FAILED, KILLED, with the real times of begin and end
    files     config.yaml and the best weights of an attempt; study.yaml, boards and the log itself of the study

It reads the log with an offset of its own (`mlflow.json` in the study's folder). If the process dies before the offset
is noted, lines are exported twice without effect: runs are found by their attempt's name, and MLflow stores equal
points once.
"""

from __future__ import annotations

import json
import logging
import math
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, fields
from itertools import groupby, islice, takewhile
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import yaml
from mlflow.entities import Experiment, Metric

from vsetune.errors import StorageError, StudyConflict, UsageError
from vsetune.records import messages
from vsetune.records.events import (
    SYSTEM,
    Begun,
    Closed,
    Ended,
    Event,
    Opened,
    StudyRecord,
    Validated,
    attempt_id,
)
from vsetune.records.log import LOG_FILE, Line, lines_of, name_of_log
from vsetune.records.mlflow_client import (
    ATTEMPT,
    KIND,
    NOTE,
    PARENT,
    PIECE,
    SQLITE,
    artifact_location,
    experiment_of,
    in_one_line,
    log_in_batches,
    open_client,
)
from vsetune.records.mlflow_descriptions import (
    attempt_note,
    attempt_params,
    attempt_tags,
    command_tags,
    keep_data_sets,
    keep_mean_view,
    keep_view,
    study_links,
    study_note,
)
from vsetune.records.mlflow_means import keep_mean, mean_curves
from vsetune.records.studies import EXPORT_FILE
from vsetune.storage.addresses import shown_url
from vsetune.storage.whole_files import read_json, write_json

_log = logging.getLogger(__name__)
STATUS, ERROR = "status", "error"
_STATUS = {"finished": "FINISHED", "pruned": "FINISHED", "failed": "FAILED", "killed": "KILLED"}
_LINES = 1000
_REFUSED = re.compile(r"[^A-Za-z0-9_.\-: /]")
"""Characters that MLflow does not accept in the name of a metric."""


@dataclass
class _Noted:
    """Progress of the export. offset, number: end and number of the last exported line. log: the log's first bytes,
    which differ for another log of the same name. uri: of the store. runs: run ids by attempt. ended: last status
    of each attempt."""

    log: str = ""
    uri: str = ""
    offset: int = 0
    number: int = -1
    experiment: str | None = None
    parent: str | None = None
    runs: dict[str, str] = field(default_factory=dict)
    ended: dict[str, str] = field(default_factory=dict)


class MlflowExport:
    """The export of one study's log. Every method raises StorageError while the store is away; call it again then.

    folder: of the study. series: `all` numbers of every validation, or `m_recall` alone. file: brings a file that the
    log names to this machine; None if it is gone. until: the offset up to which the log counts; None for all of it.
    """

    def __init__(
        self, uri: str, folder: Path, *, series: str, file: Callable[[str], Path | None],
        until: Callable[[], int] | None = None,
    ) -> None:
        """UnusableStore where waiting does not help."""
        self._uri, self._folder, self._series, self._file, self._until = uri, folder, series, file, until
        self._client = open_client(uri)
        self._noted = self._read_note()
        self._record: StudyRecord | None = None

    @property
    def number(self) -> int:
        """Number of the last line that was exported; -1 before the first."""
        return self._noted.number

    def advance(self) -> bool:
        """Export the next lines of the log. Returns whether there were any."""
        end = math.inf if self._until is None else self._until()
        counting = takewhile(lambda line: line.end <= end, lines_of(self._folder / LOG_FILE, self._noted.offset))
        lines = list(islice(counting, _LINES))
        if not lines:
            return False
        for group in _grouped(lines):
            if group[0].kind == "validated":
                self._export_points(group)
            else:
                event = group[0].event()
                with self._unless_refused(group[0].kind, group, is_needed=isinstance(event, Opened)):
                    self._export_event(event)
        self._note(lines[-1])
        return True

    @contextmanager
    def _unless_refused(self, what: str, lines: Sequence[Line], *, is_needed: bool = False) -> Iterator[None]:
        """Log and skip what MLflow refuses. StorageError for an outage, and for a refusal with `is_needed`: all later
        lines need it."""
        try:
            with in_one_line(self._uri, "export"):
                yield
        except StorageError:
            raise
        except UsageError as error:
            if is_needed:
                raise StorageError(error.problem) from error
            where = f"lines {lines[0].number} to {lines[-1].number} of the log"
            _log.warning("%s: %s (%s): not in MLflow: %s", self._folder.name, what, where, error)

    def _export_points(self, lines: Sequence[Line]) -> None:
        metrics: dict[str, list[Metric]] = {}
        for line in lines:
            event = line.event()
            assert isinstance(event, Validated)
            at = round(1000 * event.at)
            metrics.setdefault(event.attempt, []).extend(
                Metric(_REFUSED.sub("_", name), value, at, point.step)
                for point in event.points for name, value in _numbers(point, self._series)
            )
        for attempt, found in metrics.items():
            with self._unless_refused(f"validations of {attempt}", lines):
                log_in_batches(self._client, self._run_of(attempt), metrics=found)

    def _export_event(self, event: Event) -> None:
        match event:
            case Opened():
                self._open(event)
            case Begun():
                self._begin(event)
            case Ended():
                self._end(event)
            case Closed():
                self._close(event)

    def _open(self, event: Opened) -> None:
        record, noted = event.record, self._noted
        self._record = record
        experiment = experiment_of(
            self._client, self._uri, record.name, kind="study", note=study_note(record), fingerprint=record.fingerprint
        )
        _require_ours(self._uri, record, experiment)
        noted.experiment = str(experiment.experiment_id)
        noted.parent = self._found("study", record.name) or self._create_parent(record, event.at)
        for attempt in [name for name, status in noted.ended.items() if status == "running"]:
            self._client.set_terminated(self._run_of(attempt), "KILLED", round(1000 * event.at))
            self._client.set_tag(self._run_of(attempt), STATUS, "killed")
            noted.ended[attempt] = "killed"
        self._client.update_run(noted.parent, status="RUNNING")
        self._client.set_tag(noted.parent, STATUS, "running")

    def _create_parent(self, record: StudyRecord, at: float) -> str:
        experiment = self._experiment()
        tags = {**command_tags(record.name), **record.tags, KIND: "study", ATTEMPT: record.name,
                "fingerprint": record.fingerprint, NOTE: study_note(record)}
        keep_view(self._client, experiment, study_note(record), series=self._series)
        run = self._client.create_run(experiment, start_time=round(1000 * at), run_name=record.name, tags=tags)
        self._client.log_text(run.info.run_id, _yaml(record.config), "study.yaml")
        return str(run.info.run_id)

    def _begin(self, event: Begun) -> None:
        start, name = event.start, attempt_id(event.start)
        run_id = self._noted.runs.get(name) or self._found("attempt", name)
        if run_id is None:
            tags = {**attempt_tags(start), KIND: "attempt", ATTEMPT: name, STATUS: "running",
                    PARENT: str(self._noted.parent)}
            shown = start.trial if start.number == 1 else f"{start.trial} attempt {start.number}"
            run = self._client.create_run(
                self._experiment(), start_time=round(1000 * event.at), run_name=shown, tags=tags
            )
            run_id = str(run.info.run_id)
        self._noted.runs[name], self._noted.ended[name] = run_id, "running"
        log_in_batches(self._client, run_id, params=attempt_params(start))
        self._client.log_text(run_id, _yaml(start.resolved), "config.yaml")
        keep_data_sets(self._client, run_id, start)
        self._client.set_tag(run_id, STATUS, "running")
        self._client.update_run(run_id, status="RUNNING")

    def _end(self, event: Ended) -> None:
        run_id, at = self._run_of(event.attempt), round(1000 * event.at)
        step = round(event.summary.get("steps", 0)) or self._last_step(run_id)
        log_in_batches(self._client, run_id, metrics=[
            Metric(_REFUSED.sub("_", name), float(value), at, step) for name, value in event.summary.items()
            if self._series == "m_recall" or name not in _OF_THE_CURVE
        ])
        for name in event.files:
            path = self._file(name)
            if path is None:
                _log.warning("%s: %s is gone, MLflow has the attempt without it", event.attempt, name)
            else:
                self._client.log_artifact(run_id, str(path))
        note = attempt_note(event, self._client.get_run(run_id).data.tags, self._experiment(), run_id)
        log_in_batches(self._client, run_id, tags={STATUS: event.status, ERROR: event.error or "", NOTE: note})
        self._client.set_terminated(run_id, _STATUS[event.status], at)
        self._noted.ended[event.attempt] = event.status

    def _close(self, event: Closed) -> None:
        parent = str(self._noted.parent)
        for name in event.files:
            path = self._file(name)
            if path is not None:
                self._client.log_artifact(parent, str(path))
        self._client.log_artifact(parent, str(self._folder / LOG_FILE))
        record = self._record_now()
        counts = ", ".join(f"{n} {status}" for status, n in sorted(Counter(self._noted.ended.values()).items()))
        pages = [Path(name).name for name in event.files]
        links = study_links(record.name, self._experiment(), parent, pages, networks=self._keep_means(parent))
        note = f"{study_note(record)}\n\nAttempts: {counts or 'none'}.\n\n{links}"
        self._client.set_tag(parent, NOTE, note[:PIECE])
        self._client.set_tag(parent, STATUS, event.status)
        self._client.set_terminated(parent, _STATUS[event.status], round(1000 * event.at))

    def _keep_means(self, parent: str) -> list[str]:
        """Make the runs of mean curves over seeds. Returns the networks that have one."""
        curves = mean_curves(lines_of(self._folder / LOG_FILE))
        for curve in curves:
            keep_mean(self._client, self._experiment(), curve, parent=parent, runs=self._noted.runs)
        networks = sorted({curve.network for curve in curves})
        for network in networks:
            keep_mean_view(self._client, self._experiment(), network, series=self._series)
        return networks

    def _run_of(self, attempt: str) -> str:
        run_id = self._noted.runs.get(attempt) or self._found("attempt", attempt)
        if run_id is None:
            raise UsageError(messages.RUN_MISSING(attempt=attempt))
        self._noted.runs[attempt] = run_id
        return run_id

    def _found(self, kind: str, name: str) -> str | None:
        """The run of an attempt or study that an earlier process made; None if there is none."""
        wanted = f"tags.`{KIND}` = '{kind}' AND tags.`{ATTEMPT}` = '{name}'"
        runs = self._client.search_runs([self._experiment()], wanted, max_results=1)
        return str(runs[0].info.run_id) if runs else None

    def _last_step(self, run_id: str) -> int:
        history = self._client.get_metric_history(run_id, "m_recall")
        return max((each.step for each in history), default=0)

    def _experiment(self) -> str:
        assert self._noted.experiment is not None, "a log begins with the opening of its study"
        return self._noted.experiment

    def _record_now(self) -> StudyRecord:
        """The study as it was last opened; read from earlier lines if another process exported those."""
        if self._record is None:
            opened = [line for line in lines_of(self._folder / LOG_FILE)
                      if line.kind == "opened" and line.number <= self._noted.number]
            event = opened[-1].event()
            assert isinstance(event, Opened)
            self._record = event.record
        return self._record

    def _read_note(self) -> _Noted:
        """The note of the export; a new one if it belongs to another log or another store."""
        plain = read_json(self._folder / EXPORT_FILE, most_bytes=1 << 28)
        known = {each.name for each in fields(_Noted)}
        noted = _Noted(**{key: plain[key] for key in known & plain.keys()}) if isinstance(plain, Mapping) else _Noted()
        log = name_of_log(self._folder / LOG_FILE)
        if noted.log == log and noted.uri == shown_url(self._uri):
            return noted
        return _Noted(log=log, uri=shown_url(self._uri))

    def _note(self, line: Line) -> None:
        self._noted.offset, self._noted.number = line.end, line.number
        write_json(self._folder / EXPORT_FILE, vars(self._noted), durable=False)


_OF_THE_CURVE = frozenset({
    "m_recall", "epoch", "pairs_seen", "train_seconds", "device_seconds", "load_seconds", "validation_seconds",
})
"""Metrics with a series whose last value is the total: a second value at the same step would duplicate it."""


def _numbers(point: Any, series: str) -> Iterator[tuple[str, float]]:
    yield "m_recall", point.m_recall
    if series == "m_recall":
        yield from ((name, float(value)) for name, value in point.metrics.items() if name.startswith(SYSTEM))
        return
    yield from (
        ("epoch", point.epoch), ("pairs_seen", float(point.pairs_seen)), ("train_seconds", point.train_seconds)
    )
    yield from ((name, float(value)) for name, value in point.metrics.items() if name != "train_seconds")


def _grouped(lines: Sequence[Line]) -> Iterator[list[Line]]:
    """Neighbouring validations together, every other line alone."""
    for is_points, some in groupby(lines, lambda line: line.kind == "validated"):
        group = list(some)
        yield from [group] if is_points else ([line] for line in group)


def _require_ours(uri: str, record: StudyRecord, experiment: Experiment) -> None:
    """StudyConflict if an MLflow experiment with the study's name cannot hold the study, or is in a SQLite file that
    was copied with its home: files would go to the original's folder."""
    if experiment.tags.get(KIND) != "study" or experiment.tags.get("fingerprint") not in (None, record.fingerprint):
        raise StudyConflict(messages.EXPERIMENT_TAKEN(study=record.name, number=experiment.experiment_id))
    wanted, known = artifact_location(uri, record.name), str(experiment.artifact_location)
    if not uri.startswith(SQLITE) or wanted is None or not known.startswith("file:"):
        return
    if _path_of(known).resolve() != _path_of(wanted).resolve():
        raise StudyConflict(
            messages.STORE_COPIED(study=record.name, store=shown_url(uri), folder=_path_of(known))
        )


def _path_of(file_uri: str) -> Path:
    return Path(unquote(urlsplit(file_uri).path))


def _yaml(plain: Mapping[str, Any]) -> str:
    return yaml.safe_dump(json.loads(json.dumps(dict(plain), default=str)), sort_keys=False, allow_unicode=True)
