"""Copies a study's log to MLflow by its public client: an experiment per log, its run, and a nested run per attempt.
When the study ends, a run with the mean curve of each configuration stands between (`mlflow_means`).

    params    hyperparameters, searched or fixed, network, loss, seed, cell
    metrics   every number of every validation at its training step, and the attempt's totals at its end
    status    FINISHED (the tag `status` marks pruned ones), FAILED, KILLED, with the real times of begin and end
    files     config.yaml and the best weights of an attempt; study.yaml, boards and the log itself of the study

An experiment belongs to the log whose identity is its tag `vsetune.log`; experiments and runs of other logs are never
touched. A run has the digest of the events that it was made of, as a tag written last. An export first compares each
digest with the log, so it stores no position of its own. It adds the events that a run lacks. A run with other events
than the log's goes to MLflow's bin and is made again, because MLflow cannot remove points. `mlflow.json` in the study's
folder notes the result for other commands.
"""

from __future__ import annotations

import json
import logging
import math
import re
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import groupby, islice, takewhile
from pathlib import Path
from typing import Any, cast
from urllib.parse import unquote, urlsplit

import yaml
from mlflow import MlflowClient
from mlflow.entities import Experiment, Metric, Run, ViewType

from vsetune.errors import StorageError, StudyConflict, UsageError
from vsetune.home.addresses import shown_url
from vsetune.home.hashes import fingerprint_of
from vsetune.home.whole_files import write_json
from vsetune.records.events import (
    SYSTEM,
    Begun,
    Closed,
    Ended,
    Opened,
    StudyRecord,
    Validated,
    attempt_id,
    curve_of,
)
from vsetune.records.log import LOG_FILE, Line, lines_of
from vsetune.records.mlflow_client import (
    ATTEMPT,
    KIND,
    LOG,
    NOTE,
    PARENT,
    SQLITE,
    STUDY,
    artifact_location,
    experiment_of,
    in_one_line,
    log_in_batches,
    open_client,
    require_active,
    runs_of,
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

_log = logging.getLogger(__name__)
STATUS, ERROR = "status", "error"
_DIGEST = "vsetune.events"
"""Tag of a run: digest of the events that it has."""
_STATUS = {"finished": "FINISHED", "pruned": "FINISHED", "failed": "FAILED", "killed": "KILLED"}
_LINES = 1000
_REFUSED = re.compile(r"[^A-Za-z0-9_.\-: /]")
"""Characters that MLflow does not accept in the name of a metric."""


def log_id(opened: Opened) -> str:
    """The identity of a log, from its first event: the study, and when it was first opened. Copies of a log share it.
    """
    record = opened.record
    return fingerprint_of({"study": record.name, "fingerprint": record.fingerprint, "at": opened.at})[:16]


class _Digests:
    """Digest of the events of each attempt and, under the study's name, of the study, as far as lines were read.

    status: the last one of each attempt."""

    def __init__(self, study: str) -> None:
        self._study, self._of = study, dict[str, int]()
        self.status: dict[str, str] = {}

    def __getitem__(self, name: str) -> str:
        return f"{self._of[name]:08x}"

    def read(self, line: Line) -> list[str]:
        """Add a line. Returns the names that it concerns: the opening of a study ends the attempts that were running.
        """
        content, names = line.head + line.rest, [self._study]
        match line.event() if line.kind in ("opened", "begun", "ended") else None:
            case Opened() as event:
                names += [name for name, status in self.status.items() if status == "running"]
                self.status |= dict.fromkeys(names[1:], "killed")
                content = repr(event.at).encode()  # an import drops the address of MLflow from the record
            case Begun() as event:
                names = [attempt_id(event.start)]
                self.status[names[0]] = "running"
            case Ended() as event:
                names = [event.attempt]
                self.status[names[0]] = event.status
            case _ if line.kind == "validated":
                names = [curve_of(line.head)[0]]
            case _ if line.kind != "closed":
                return []
        for name in names:
            self._of[name] = zlib.crc32(content, self._of.get(name, 0))
        return names


@dataclass
class _Exported:
    """What MLflow has of an attempt, or of the study. run: None without one. done: number of the last line that the run
    has. waiting: numbers of later lines, when compared. have: (step, time) of points among them that it has all the
    same. stale: runs of other events. is_refused: MLflow has refused one of its events."""

    run: Run | None = None
    done: int = -1
    waiting: list[int] = field(default_factory=list)
    have: set[tuple[int, int]] = field(default_factory=set)
    stale: list[Run] = field(default_factory=list)
    is_refused: bool = False

    @property
    def is_other(self) -> bool:
        """Whether MLflow has events that are not in the log."""
        return bool(self.stale) or (self.done < 0 and self.run is not None and _DIGEST in self.run.data.tags)


class MlflowExport:
    """The export of one study's log. Every method raises StorageError while the store is away; call it again then.

    folder: of the study. series: `all` numbers of every validation, or `m_recall` alone. file: brings a file that the
    log names to this machine; None if it is gone. until: the offset up to which the log counts; None for all of it.

    number: of the last line that was exported; -1 before the first. answers: counts what MLflow has acknowledged.
    refused: a line for each event that MLflow refuses.
    """

    _opened: Opened
    _record: StudyRecord

    def __init__(
        self, uri: str, folder: Path, *, series: str, file: Callable[[str], Path | None],
        until: Callable[[], int] | None = None,
    ) -> None:
        """UnusableStore where waiting does not help."""
        self._uri, self._folder, self._series, self._file, self._until = uri, folder, series, file, until
        self._client = cast(MlflowClient, _Counted(open_client(uri), self))
        self.number, self.answers, self._offset = -1, 0, 0
        self.refused: list[str] = []
        self._exported: dict[str, _Exported] | None = None
        self._experiment: Experiment | None = None
        self._digests = _Digests("")
        self._unknown: list[str] = []
        self._last_closed = -1

    def advance(self) -> bool:
        """Export the next lines of the log. Returns whether there were any."""
        end = math.inf if self._until is None else self._until()
        counting = takewhile(lambda line: line.end <= end, lines_of(self._folder / LOG_FILE, self._offset))
        lines = list(islice(counting, _LINES))
        if not lines:
            return False
        try:
            with self._unless_refused("the comparison with the log", lines[:1], is_needed=True):
                self._compare()
            for group in _grouped(lines):
                if group[0].kind == "validated":
                    self._export_points(group)
                else:
                    self._export_event(group[0])
                self._offset, self.number = group[-1].end, max(self.number, group[-1].number)
        except StorageError:
            self._exported, self._offset = None, 0  # MLflow may have a part of what was sent: compare again
            raise
        self._note()
        return True

    def differences(self) -> list[str]:
        """What MLflow has otherwise than the log, in words, without changing it. Before the first `advance`."""
        with in_one_line(self._uri, "compare"):
            self._compare()
        ours = self._exported or {}
        other = [name for name, each in ours.items() if each.is_other]
        waiting = {number for name, each in ours.items() if name not in other for number in each.waiting}
        found = [f"{len(waiting)} events are not in MLflow"] if waiting else []
        found += [f"MLflow has other events of {_some(other)}"] if other else []
        return found + ([f"MLflow has {_some(self._unknown)}, which the log lacks"] if self._unknown else [])

    def _compare(self) -> None:
        """Compare the log with the runs of its experiment, unless that is done."""
        if self._exported is not None:
            return
        opened, there = next(lines_of(self._folder / LOG_FILE)).event(), dict[str, list[Run]]()
        assert isinstance(opened, Opened), "a log begins with the opening of its study"
        self._opened, record = opened, opened.record
        self._experiment = self._find_experiment()
        for run in [] if self._experiment is None else runs_of(self._client, self._experiment.experiment_id):
            if run.data.tags.get(KIND) in ("study", "attempt"):
                there.setdefault(run.data.tags.get(ATTEMPT, ""), []).append(run)
        self._digests, self._last_closed = _Digests(record.name), -1
        digests, ours = _Digests(record.name), dict[str, _Exported]()
        for line in lines_of(self._folder / LOG_FILE):
            self._last_closed = line.number if line.kind == "closed" else self._last_closed
            for name in digests.read(line):
                if name not in ours:
                    ours[name] = _matching(there.pop(name, []), line.event().at)
                each = ours[name]
                each.waiting.append(line.number)
                if each.run is not None and each.run.data.tags.get(_DIGEST) == digests[name]:
                    each.done, each.waiting = line.number, []
        self._unknown, self.refused = list(there), []
        self._set_aside_others(ours, study=ours[record.name])
        self._exported = ours

    def _set_aside_others(self, ours: dict[str, _Exported], *, study: _Exported) -> None:
        """Find the runs of attempts with other events than the log's."""
        behind = {name: each for name, each in ours.items() if each.waiting and each is not study}
        runs = {name: each.run for name, each in behind.items() if each.run is not None}
        times = {name: set[int]() for name in runs}
        for line in lines_of(self._folder / LOG_FILE) if times else ():
            if line.kind == "validated":
                attempt, at, _ = curve_of(line.head)
            elif isinstance(event := line.event(), Ended):
                attempt, at = event.attempt, event.at
            else:
                continue
            if attempt in times:
                times[attempt].add(round(1000 * at))
        for name, run in runs.items():
            points = [
                point for metric in ("m_recall", "best_m_recall")
                for point in self._client.get_metric_history(run.info.run_id, metric)
            ]
            behind[name].have = {(point.step, point.timestamp) for point in points if point.key == "m_recall"}
            if behind[name].is_other or any(point.timestamp not in times[name] for point in points):
                behind[name] = ours[name] = _Exported(waiting=behind[name].waiting, stale=[run, *behind[name].stale])
        if behind and 0 < self._last_closed <= study.done:  # means and counts change with an attempt
            study.done = self._last_closed - 1

    def _find_experiment(self) -> Experiment | None:
        """The experiment of this log. UsageError for a deleted one."""
        ours = f"tags.`{LOG}` = '{log_id(self._opened)}'"
        named = self._client.get_experiment_by_name(self._opened.record.name)
        found = [*self._client.search_experiments(view_type=ViewType.ALL, filter_string=ours)]
        if not found and named is not None and self._is_ours(named):
            found = [named]
        for experiment in found[:1]:
            _require_no_copy(self._uri, require_active(self._uri, experiment))
            return experiment
        return None

    def _is_ours(self, experiment: Experiment) -> bool:
        """Whether an experiment that an earlier version made is of this log: its study began at the same moment."""
        if experiment.tags.get(KIND) != "study" or LOG in experiment.tags:
            return False
        runs = self._client.search_runs([experiment.experiment_id], f"tags.`{KIND}` = 'study'", ViewType.ALL)
        if not runs:
            return bool(experiment.tags.get("fingerprint") == self._opened.record.fingerprint)
        return any(run.info.start_time == round(1000 * self._opened.at) for run in runs)

    @contextmanager
    def _unless_refused(self, what: str, lines: Sequence[Line], *, is_needed: bool = False) -> Iterator[None]:
        """Note what MLflow refuses. StorageError for an outage, and for a refusal with `is_needed`: all later lines
        need it."""
        try:
            with in_one_line(self._uri, "export"):
                yield
        except StorageError:
            raise
        except UsageError as error:
            if is_needed:
                raise StorageError(error.problem) from error
            where = f"line {lines[0].number}" if len(lines) == 1 else f"lines {lines[0].number} to {lines[-1].number}"
            self.refused += [f"{what} ({where} of the log): {error}"] * len(lines)
            _log.warning("%s: not in MLflow: %s", self._folder.name, self.refused[-1])

    @contextmanager
    def _adding(self, name: str, lines: Sequence[Line]) -> Iterator[_Exported]:
        """The entry of an attempt or study to which events are added; a refusal is noted there as well."""
        each, refused = self._of(name), len(self.refused)
        with self._unless_refused(name, lines):
            yield each
        each.is_refused = each.is_refused or len(self.refused) > refused

    def _of(self, name: str) -> _Exported:
        assert self._exported is not None, "compared first"
        return self._exported.setdefault(name, _Exported())

    def _tags(self, name: str, **tags: str) -> dict[str, str]:
        """Tags to be written last: they certify that the run has all events so far."""
        return tags if self._of(name).is_refused else {**tags, _DIGEST: self._digests[name]}

    def _export_points(self, lines: Sequence[Line]) -> None:
        found: dict[str, list[Line]] = {}
        for line in lines:
            (name,) = self._digests.read(line)
            if line.number > self._of(name).done:
                found.setdefault(name, []).append(line)
        for name, new in found.items():
            with self._adding(name, new) as each:
                metrics = [metric for line in new for metric in self._metrics_of(line, each.have)]
                metrics.sort(key=lambda metric: metric.key == "m_recall")  # stored last: the other numbers are there
                log_in_batches(self._client, self._run_of(name), metrics=metrics, tags=self._tags(name))

    def _metrics_of(self, line: Line, have: set[tuple[int, int]]) -> Iterator[Metric]:
        event = line.event()
        assert isinstance(event, Validated)
        at = round(1000 * event.at)
        for point in event.points:
            if (point.step, at) not in have:
                for name, value in _numbers(point, self._series):
                    yield Metric(_REFUSED.sub("_", name), value, at, point.step)

    def _export_event(self, line: Line) -> None:
        names = self._digests.read(line)
        if not names:
            return
        event, new = line.event(), [name for name in names if line.number > self._of(name).done]
        match event:
            case Opened():
                with self._unless_refused(line.kind, [line], is_needed=True):
                    self._open(event, is_new=names[0] in new)
                for name in new:
                    if name != event.record.name:
                        self._kill(name, event.at, line)
            case Begun() if new:
                with self._adding(names[0], [line]) as each:
                    self._begin(event, each)
            case Ended() if new:
                with self._adding(names[0], [line]):
                    self._end(event)
            case Closed() if new and line.number >= self._last_closed:
                with self._adding(names[0], [line]):
                    self._close(event)

    def _open(self, event: Opened, *, is_new: bool) -> None:
        self._record = event.record
        if not is_new:
            return
        study = self._of(event.record.name)
        if self._experiment is None:
            self._experiment = self._make_experiment(event)
        if LOG not in self._experiment.tags:
            self._client.set_experiment_tag(self._experiment.experiment_id, LOG, log_id(self._opened))
        if study.run is None:
            study.run = self._create_parent(event)
        self._client.update_run(study.run.info.run_id, status="RUNNING")
        log_in_batches(
            self._client, study.run.info.run_id, tags=self._tags(event.record.name, **{STATUS: "running"})
        )

    def _make_experiment(self, event: Opened) -> Experiment:
        """An experiment with the study's name; with an additional part if that name belongs to something else."""
        record, name = event.record, event.record.name
        if self._client.get_experiment_by_name(name) is not None:
            name = f"{name}-{log_id(self._opened)[:8]}"
            _log.warning(
                "study %s: MLflow has another experiment of this name, such as another home's; this one is %s",
                record.name, name,
            )
        return experiment_of(
            self._client, self._uri, name, kind="study", note=study_note(record),
            fingerprint=record.fingerprint, **{LOG: log_id(self._opened), STUDY: record.name},
        )

    def _create_parent(self, event: Opened) -> Run:
        record, experiment = event.record, self._experiment_id()
        tags = {**command_tags(record.name), **record.tags, KIND: "study", ATTEMPT: record.name,
                "fingerprint": record.fingerprint, NOTE: study_note(record)}
        keep_view(self._client, experiment, study_note(record), series=self._series)
        run = self._client.create_run(experiment, start_time=round(1000 * event.at), run_name=record.name, tags=tags)
        self._client.log_text(run.info.run_id, _yaml(record.config), "study.yaml")
        return run

    def _kill(self, name: str, at: float, line: Line) -> None:
        with self._adding(name, [line]):
            self._client.set_terminated(self._run_of(name), "KILLED", round(1000 * at))
            log_in_batches(self._client, self._run_of(name), tags=self._tags(name, **{STATUS: "killed"}))

    def _begin(self, event: Begun, each: _Exported) -> None:
        start, name = event.start, attempt_id(event.start)
        if each.run is None:
            tags = {**attempt_tags(start), KIND: "attempt", ATTEMPT: name, STATUS: "running",
                    PARENT: self._run_of(start.study)}
            shown = start.trial if start.number == 1 else f"{start.trial} attempt {start.number}"
            each.run = self._client.create_run(
                self._experiment_id(), start_time=round(1000 * event.at), run_name=shown, tags=tags
            )
        log_in_batches(self._client, each.run.info.run_id, params=attempt_params(start))
        self._client.log_text(each.run.info.run_id, _yaml(start.resolved), "config.yaml")
        keep_data_sets(self._client, each.run.info.run_id, start)
        self._client.update_run(each.run.info.run_id, status="RUNNING")
        log_in_batches(self._client, each.run.info.run_id, tags=self._tags(name, **{STATUS: "running"}))
        while each.stale:
            self._client.delete_run(each.stale[-1].info.run_id)
            each.stale.pop()

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
        note = attempt_note(event, self._client.get_run(run_id).data.tags, self._experiment_id(), run_id)
        self._client.set_terminated(run_id, _STATUS[event.status], at)
        log_in_batches(self._client, run_id, tags=self._tags(
            event.attempt, **{STATUS: event.status, ERROR: event.error or "", NOTE: note}
        ))

    def _close(self, event: Closed) -> None:
        record = self._record
        parent = self._run_of(record.name)
        for name in event.files:
            path = self._file(name)
            if path is not None:
                self._client.log_artifact(parent, str(path))
        self._client.log_artifact(parent, str(self._folder / LOG_FILE))
        statuses = Counter(self._digests.status.values())
        counts = ", ".join(f"{n} {status}" for status, n in sorted(statuses.items()))
        pages = [Path(name).name for name in event.files]
        links = study_links(record.name, self._experiment_id(), parent, pages, networks=self._keep_means(parent))
        note = f"{study_note(record)}\n\nAttempts: {counts or 'none'}.\n\n{links}"
        self._client.set_terminated(parent, _STATUS[event.status], round(1000 * event.at))
        log_in_batches(self._client, parent, tags=self._tags(record.name, **{NOTE: note, STATUS: event.status}))

    def _keep_means(self, parent: str) -> list[str]:
        """Make the runs of mean curves over seeds. Returns the networks that have one."""
        curves = mean_curves(lines_of(self._folder / LOG_FILE))
        for curve in curves:
            keep_mean(self._client, self._experiment_id(), curve, parent=parent, runs=self._runs())
        networks = sorted({curve.network for curve in curves})
        for network in networks:
            keep_mean_view(self._client, self._experiment_id(), network, series=self._series)
        return networks

    def _run_of(self, name: str) -> str:
        run = self._of(name).run
        if run is None:
            raise UsageError("VSE-R037", "attempt {attempt}: has no run in MLflow; was it deleted there?", attempt=name)
        return str(run.info.run_id)

    def _last_step(self, run_id: str) -> int:
        history = self._client.get_metric_history(run_id, "m_recall")
        return max((each.step for each in history), default=0)

    def _experiment_id(self) -> str:
        assert self._experiment is not None, "a log begins with the opening of its study"
        return str(self._experiment.experiment_id)

    def _runs(self) -> dict[str, str]:
        """Ids of runs by attempt."""
        return {name: each.run.info.run_id for name, each in (self._exported or {}).items() if each.run is not None}

    def _note(self) -> None:
        experiment = self._experiment
        write_json(self._folder / EXPORT_FILE, {
            "uri": shown_url(self._uri), "experiment": None if experiment is None else experiment.experiment_id,
            "name": None if experiment is None else experiment.name, "runs": self._runs(), "number": self.number,
            "refused": self.refused,
        }, durable=False)


def differences(uri: str, folder: Path) -> list[str]:
    """See `MlflowExport.differences`; makes no database either."""
    if uri.startswith(SQLITE) and not Path(uri.removeprefix(SQLITE)).exists():
        return [f"{sum(1 for _ in lines_of(folder / LOG_FILE))} events are not in MLflow"]
    return MlflowExport(uri, folder, series="all", file=lambda name: None).differences()


class _Counted:
    """MLflow's client, whose answers are counted."""

    def __init__(self, client: MlflowClient, export: MlflowExport) -> None:
        self._client, self._export = client, export

    def __getattr__(self, name: str) -> Callable[..., Any]:
        def call(*given: Any, **named: Any) -> Any:
            answer = getattr(self._client, name)(*given, **named)
            self._export.answers += 1
            return answer

        return call


def _matching(runs: list[Run], at: float) -> _Exported:
    """Of the runs of one name that which began at a moment; all others are stale."""
    ours = [run for run in runs if run.info.start_time == round(1000 * at)][:1]
    return _Exported(run=ours[0] if ours else None, stale=[run for run in runs if run not in ours])


def _some(names: Sequence[str]) -> str:
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more attempts" if len(names) > 3 else "")


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


def _require_no_copy(uri: str, experiment: Experiment) -> None:
    """StudyConflict for an experiment in a SQLite file that was copied with its home: files would go to the original's
    folder."""
    wanted, known = artifact_location(uri, experiment.name), str(experiment.artifact_location)
    if not uri.startswith(SQLITE) or wanted is None or not known.startswith("file:"):
        return
    if _path_of(known).resolve() != _path_of(wanted).resolve():
        raise StudyConflict(
            "VSE-R043", "study {study}: {store} is a copy, whose files are in {folder}; remove it, and make it anew "
            "with vsetune tracking flush {study}", study=experiment.name, store=shown_url(uri), folder=_path_of(known),
        )


def _path_of(file_uri: str) -> Path:
    return Path(unquote(urlsplit(file_uri).path))


def _yaml(plain: Mapping[str, Any]) -> str:
    return yaml.safe_dump(json.loads(json.dumps(dict(plain), default=str)), sort_keys=False, allow_unicode=True)
