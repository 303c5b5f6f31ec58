"""The store on MLflow: one experiment per study, one parent run, one nested run per attempt.

What MLflow is told beyond the records, so that its UI is useful on its own:
- params: the configuration, network, loss, seed, cell; tags: trial, attempt, cell, phase, status, protocol, ...
- metrics: M-Recall of every validation (`all_numbers`: everything that it told) at step = training step, stamped with
  run start + training time; the summary's numbers at the last step;
- status: finished and pruned runs are FINISHED (the tag `status` tells them apart: pruning is a decision, not an
  accident), failed ones FAILED, killed ones KILLED;
- artifacts: config.yaml (resolved trial), curves.svg (all numbers over epochs), and what the driver hands in.

A curve is written twice: as metrics for people, and for us with all numbers as compressed tags (`point_blocks.py`), so
that a thousand attempts are read with a few searches instead of a thousand requests (`mlflow_searching.py`), or
straight out of the tables (`mlflow_reading.py`). Time stamps depend on the point alone, hence MLflow drops a repeated
metric even when the process died between the two. In a database of our own both are one transaction
(`mlflow_rows.py`).
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path

from mlflow.entities import LifecycleStage, Run
from mlflow.exceptions import MlflowException

from vsetune.tracking import encoding
from vsetune.tracking.artifact_place import require_own_place
from vsetune.tracking.artifacts import draw_curves, fetch, holds, keep
from vsetune.tracking.mlflow_batches import log_in_batches, summary_metrics
from vsetune.tracking.mlflow_curves import NewPoints, RunningCurves, last_seen, points_of
from vsetune.tracking.mlflow_errors import NO_SUCH_RUN, in_one_line, opening
from vsetune.tracking.mlflow_opening import client_of
from vsetune.tracking.mlflow_reading import attempt_rows
from vsetune.tracking.mlflow_rows import point_rows
from vsetune.tracking.mlflow_runs import runs_in
from vsetune.tracking.mlflow_searching import SearchedAttempts
from vsetune.tracking.mlflow_views import keep_data_sets, keep_view
from vsetune.tracking.point_blocks import CurvePoint
from vsetune.tracking.records import AttemptRecord, AttemptStart, AttemptStatus, StudyRecord, ValidationPoint
from vsetune.tracking.run_descriptions import attempt_note, command_tags, study_links, with_links
from vsetune.tracking.store import (
    StudyStatus,
    TrackingStore,
    no_sign_of_life,
    require_free_name,
    require_same_study,
    require_terminal,
    unknown_attempt,
    unknown_study,
)

_log = logging.getLogger(__name__)
_RUN_STATUS = {"finished": "FINISHED", "pruned": "FINISHED", "failed": "FAILED", "killed": "KILLED"}
_RESUME = "repeat with --resume"
_STUDY_FILE = "study.yaml"


class MlflowStore(TrackingStore):
    """See the module's docstring; made by `open_store`, which has checked that the URI answers."""

    def __init__(
        self, uri: str, artifact_root: str | None, *, shown_uri: str, curve_plots: bool, all_numbers: bool = False
    ) -> None:
        self._uri, self._shown_uri = uri, shown_uri
        self._artifact_root = artifact_root.rstrip("/") if artifact_root else None
        self._curve_plots, self._all_numbers = curve_plots, all_numbers
        self._curves = RunningCurves(self._run, all_numbers=all_numbers)
        self._places: dict[str, tuple[str, str]] = {}  # study: (experiment id, id of the parent run)
        with opening(shown_uri):
            self._client = client_of(uri)
            self._rows, self._reading = point_rows(uri), attempt_rows(uri) or SearchedAttempts(self._client)
            self._client.search_experiments(max_results=1)

    def open_study(self, record: StudyRecord, *, resume: bool) -> None:
        require_own_place(self._uri, record.name)
        with self._storage(f"open study {record.name}", then=_RESUME):
            experiment = self._client.get_experiment_by_name(record.name)
            if experiment is None:
                self._create_parent(record, self._create_experiment(record))
                return
            is_ours = experiment.tags.get(encoding.KIND) == "study"
            is_deleted = experiment.lifecycle_stage != LifecycleStage.ACTIVE
            require_free_name(record.name, experiment.experiment_id, is_deleted=is_deleted, is_ours=is_ours)
            parent = self._parent(experiment.experiment_id)
            if parent is None:  # the process that created the experiment died before the run
                stored = StudyRecord(record.name, experiment.tags[encoding.FINGERPRINT], {})
                require_same_study(stored, record, resume=True)
                self._create_parent(record, experiment.experiment_id)
                return
            require_same_study(encoding.study_from_tags(parent.data.tags), record, resume=resume)
            self._kill_orphans(experiment.experiment_id)
            self._set_status(parent.info.run_id, "running")
            if not holds(self._client, parent.info.run_id, _STUDY_FILE):
                self._client.log_text(parent.info.run_id, encoding.to_yaml(record.config), _STUDY_FILE)

    def start_attempt(self, start: AttemptStart) -> str:
        with self._storage(f"start attempt {start.number} of {start.trial}", then=_RESUME):
            experiment_id, parent_id = self._place(start.study)
            key = encoding.attempt_key(start)
            found = self._client.search_runs([experiment_id], f"tags.`{encoding.KEY}` = '{key}'", max_results=1)
            run = found[0] if found else self._create_attempt(start, experiment_id, parent_id)
            if run.data.tags[encoding.STATUS] == "killed":
                self._set_status(run.info.run_id, "running")
            if not run.data.params:
                self._describe_attempt(run.info.run_id, start)
            self._curves.begin(run)
            return str(run.info.run_id)

    def record_points(self, attempt_id: str, points: Sequence[ValidationPoint]) -> None:
        with self._storage(f"record points of attempt {attempt_id}", then=_RESUME):
            self._record({attempt_id: points})

    def record_batch(self, points: Mapping[str, Sequence[ValidationPoint]]) -> None:
        with self._storage(f"record points of {len(points)} attempts", then=_RESUME):
            self._record(points)

    def finish_attempt(
        self, attempt_id: str, status: AttemptStatus, summary: Mapping[str, float], artifacts: Sequence[Path],
        error: str | None,
    ) -> None:
        require_terminal(attempt_id, status)
        with self._storage(f"finish attempt {attempt_id}", then=_RESUME):
            run = self._run(attempt_id)
            points = encoding.points_from_tags(run.data.tags)
            keep(self._client, attempt_id, artifacts)
            if points and self._curve_plots:
                draw_curves(self._client, attempt_id, points)
            last = CurvePoint.of(points[-1]) if points else CurvePoint(0, 0.0, 0.0, 0.0, None)
            metrics = summary_metrics(summary, last, run.info.start_time, all_numbers=self._all_numbers)
            tags = encoding.in_pieces(encoding.SUMMARY, encoding.to_json(dict(summary)))
            ended = replace(encoding.attempt_from_tags(attempt_id, run.data.tags), status=status, summary=summary,
                            error=error)
            tags[encoding.NOTE] = attempt_note(ended, run.info.experiment_id)
            if error is not None or encoding.ERROR in run.data.tags:
                tags[encoding.ERROR] = (error or "")[: encoding.PIECE]
            log_in_batches(self._client, attempt_id, metrics=metrics, tags=tags)
            self._set_status(attempt_id, status)
            self._curves.end(attempt_id)

    def finish_study(self, name: str, status: StudyStatus, artifacts: Sequence[Path]) -> None:
        with self._storage(f"finish study {name}", then=_RESUME):
            experiment_id, parent_id = self._place(name)
            keep(self._client, parent_id, artifacts)
            parent = self._run(parent_id)
            ended = [run.data.tags[encoding.STATUS] for run in self._attempt_runs(experiment_id)]
            links = study_links(name, experiment_id, parent_id, [artifact.name for artifact in artifacts])
            note = {encoding.NOTE: f"{encoding.closing_note(parent.data.tags, ended)}\n\n{links}"[: encoding.PIECE]}
            log_in_batches(self._client, parent_id, tags=note)
            self._set_status(parent_id, status)

    def attempts(self, study: str) -> list[AttemptRecord]:
        with self._storage(f"read study {study}"):
            experiment_id, _ = self._place(study)
            return self._reading.of(experiment_id)

    def attempt(self, attempt_id: str) -> AttemptRecord:
        with self._storage(f"read attempt {attempt_id}"):
            run = self._run(attempt_id)
        if run.data.tags.get(encoding.KIND) != "attempt":
            raise unknown_attempt(attempt_id)
        return encoding.attempt_from_tags(run.info.run_id, run.data.tags)

    def points(self, attempt_id: str) -> list[ValidationPoint]:
        with self._storage(f"read points of attempt {attempt_id}"):
            return points_of(self._client, self._run(attempt_id))

    def keep_artifacts(self, attempt_id: str, artifacts: Sequence[Path], *, folder: str) -> None:
        with self._storage(f"keep files of attempt {attempt_id}"):
            run = self._run(attempt_id)
            require_own_place(self._uri, encoding.attempt_from_tags(attempt_id, run.data.tags).start.study)
            keep(self._client, attempt_id, artifacts, folder)
            pages = [f"{folder}/{artifact.name}" for artifact in artifacts]
            note = with_links(run.data.tags.get(encoding.NOTE, ""), run.info.experiment_id, attempt_id, pages)
            log_in_batches(self._client, attempt_id, tags={encoding.NOTE: note[: encoding.PIECE]})

    def fetch_artifact(self, attempt_id: str, name: str, into: Path) -> Path | None:
        with self._storage(f"fetch {name} of attempt {attempt_id}"):
            self._run(attempt_id)
            return fetch(self._client, attempt_id, name, into)

    def artifact_names(self, attempt_id: str, folder: str) -> list[str]:
        with self._storage(f"list files of attempt {attempt_id}"):
            return [str(found.path) for found in self._client.list_artifacts(attempt_id, folder) if not found.is_dir]

    def experiment_of(self, study: str) -> str | None:
        with self._storage(f"find study {study}"):
            return self._place(study)[0]

    def studies(self) -> list[StudyRecord]:
        with self._storage("list studies"):
            mine = f"tags.`{encoding.KIND}` = 'study'"
            experiments = self._client.search_experiments(filter_string=mine, order_by=["creation_time ASC"])
            ids = [experiment.experiment_id for experiment in experiments]
            runs = sorted(runs_in(self._client, ids, mine), key=lambda run: run.info.start_time) if ids else []
        return [encoding.study_from_tags(run.data.tags) for run in runs]

    def close_stale(self, older_than_s: float, now: float | None = None, except_study: str | None = None) -> int:
        before = (time.time() if now is None else now) - older_than_s
        with self._storage("close stale attempts"):
            attempts = self._running("attempt", except_study)
            stale = [run for run in attempts if last_seen(run) < before]
            for run in stale:
                self._client.set_tag(run.info.run_id, encoding.ERROR, no_sign_of_life(older_than_s))
                self._set_status(run.info.run_id, "killed")
            alive = {run.info.experiment_id for run in attempts} - {run.info.experiment_id for run in stale}
            for parent in self._running("study", except_study):
                place = parent.info.experiment_id
                if place not in alive and max(map(last_seen, [parent, *self._attempt_runs(place)])) < before:
                    self._set_status(parent.info.run_id, "killed")
        return len(stale)

    def _record(self, points: Mapping[str, Sequence[ValidationPoint]]) -> None:
        """In one transaction where that is possible, else a request for each attempt."""
        found = [self._curves.new(attempt_id, of_attempt) for attempt_id, of_attempt in points.items()]
        left = [each for each in found if each is not None]
        while left:
            written, left = (left, []) if self._write_rows(left) else (left[:1], left[1:])
            for each in written:
                if each.then.ended_as is not None:  # by its end a reader behind a server sees that it has changed
                    self._client.set_terminated(each.told.run_id, each.then.ended_as)
                self._curves.written(each)

    def _write_rows(self, points: Sequence[NewPoints]) -> bool:
        """Whether all were written in one transaction. If not, the first was by a request: after it the names of its
        metrics are known to be good, and the others may follow in one."""
        if self._rows is not None and self._rows.write([each.told for each in points]):
            return True
        told = points[0].told
        log_in_batches(self._client, told.run_id, metrics=told.metrics, tags=told.tags)
        if self._rows is not None:
            self._rows.accepted(told)
        return False

    def _create_experiment(self, record: StudyRecord) -> str:
        location = f"{self._artifact_root}/{record.name}" if self._artifact_root else None
        tags = encoding.experiment_tags(record)
        experiment_id = self._client.create_experiment(record.name, artifact_location=location, tags=tags)
        _log.info("study %s: created in %s", record.name, self._shown_uri)
        return str(experiment_id)

    def _create_parent(self, record: StudyRecord, experiment_id: str) -> None:
        tags = command_tags(record.name) | encoding.study_tags(record) | encoding.seen_tag(time.time())
        tags[encoding.NOTE] = encoding.study_note(record)
        keep_view(self._client, experiment_id, tags[encoding.NOTE])
        parent = self._client.create_run(experiment_id, tags=tags, run_name=record.name, start_time=_now_ms())
        self._client.log_text(parent.info.run_id, encoding.to_yaml(record.config), _STUDY_FILE)

    def _create_attempt(self, start: AttemptStart, experiment_id: str, parent_id: str) -> Run:
        tags = encoding.attempt_tags(start) | encoding.seen_tag(time.time()) | {"mlflow.parentRunId": parent_id}
        name = start.trial if start.number == 1 else f"{start.trial} attempt {start.number}"
        return self._client.create_run(experiment_id, tags=tags, run_name=name, start_time=_now_ms())

    def _describe_attempt(self, run_id: str, start: AttemptStart) -> None:
        self._client.log_text(run_id, encoding.to_yaml(start.resolved), "config.yaml")
        keep_data_sets(self._client, run_id, start)
        log_in_batches(self._client, run_id, params=encoding.attempt_params(start))

    def _place(self, study: str) -> tuple[str, str]:
        if study not in self._places:
            experiment = self._client.get_experiment_by_name(study)
            parent = self._parent(experiment.experiment_id) if experiment is not None else None
            if experiment is None or parent is None or experiment.lifecycle_stage != LifecycleStage.ACTIVE:
                raise unknown_study(study, [record.name for record in self.studies()])
            self._places[study] = (experiment.experiment_id, parent.info.run_id)
        return self._places[study]

    def _parent(self, experiment_id: str) -> Run | None:
        return next(runs_in(self._client, [experiment_id], f"tags.`{encoding.KIND}` = 'study'"), None)

    def _attempt_runs(self, experiment_id: str) -> Iterator[Run]:
        return runs_in(self._client, [experiment_id], f"tags.`{encoding.KIND}` = 'attempt'")

    def _kill_orphans(self, experiment_id: str) -> None:
        orphans = f"tags.`{encoding.KIND}` = 'attempt' AND tags.{encoding.STATUS} = 'running'"
        for run in list(runs_in(self._client, [experiment_id], orphans)):
            self._set_status(run.info.run_id, "killed")
            _log.info("attempt %s of %s: was running when its driver ended, now killed",
                      run.data.tags["attempt"], run.data.tags["trial"])

    def _running(self, kind: str, except_study: str | None) -> list[Run]:
        """Runs of all studies but one that are running, by what we wrote."""
        mine = f"tags.`{encoding.KIND}` = 'study'"
        experiments = self._client.search_experiments(filter_string=mine)
        ids = [experiment.experiment_id for experiment in experiments if experiment.name != except_study]
        of_kind = f"tags.`{encoding.KIND}` = '{kind}' AND tags.{encoding.STATUS} = 'running'"
        return list(runs_in(self._client, ids, of_kind)) if ids else []

    def _run(self, run_id: str) -> Run:
        try:
            return self._client.get_run(run_id)
        except MlflowException as error:
            if error.error_code in NO_SUCH_RUN:
                raise unknown_attempt(run_id) from error
            raise

    def _set_status(self, run_id: str, status: AttemptStatus) -> None:
        """The tag first: it is what we read back, and setting both again after a crash is harmless."""
        self._client.set_tag(run_id, encoding.STATUS, status)
        if status == "running":
            self._client.set_tag(run_id, encoding.SEEN, str(time.time()))
            self._client.update_run(run_id, status="RUNNING")
        else:
            self._client.set_terminated(run_id, _RUN_STATUS[status])

    def _storage(self, doing: str, *, then: str = "repeat") -> AbstractContextManager[None]:
        return in_one_line(f"tracking store {self._shown_uri}: cannot {doing}", then=then)


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
