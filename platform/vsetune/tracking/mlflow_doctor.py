"""Examines and mends what MLflow keeps of studies. See `doctor.py`; what a crash can leave: `mlflow_store.py`."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import partial

from mlflow.entities import Experiment, Run

from vsetune.tracking import encoding
from vsetune.tracking.artifact_place import other_place, shown_name
from vsetune.tracking.doctor import SILENT_AFTER_S, Doctor, Finding, WeightsOf, worth
from vsetune.tracking.kept_curve import KeptCurve
from vsetune.tracking.mlflow_batches import log_in_batches
from vsetune.tracking.mlflow_errors import in_one_line
from vsetune.tracking.mlflow_importing import MOVING
from vsetune.tracking.mlflow_kept_files import KeptFiles
from vsetune.tracking.mlflow_nights import NIGHTS
from vsetune.tracking.mlflow_opening import client_of
from vsetune.tracking.mlflow_relocating import keep_here
from vsetune.tracking.mlflow_runs import runs_in
from vsetune.tracking.mlflow_series import Series
from vsetune.tracking.mlflow_sqlite import engine_of
from vsetune.tracking.records import AttemptRecord
from vsetune.tracking.store import no_sign_of_life, unknown_study

_RUN_STATUS = {
    "finished": "FINISHED", "pruned": "FINISHED", "failed": "FAILED", "killed": "KILLED", "running": "RUNNING",
}
_ENDED = {"finished": "finished", "pruned": "been pruned"}
"""After these a trial does not begin again; one that failed may, if somebody asks for it."""
_UNREADABLE = (ValueError, TypeError, KeyError, AttributeError)


class MlflowDoctor(Doctor):
    """Made by `doctor.doctor_of`, which has checked that the URI answers."""

    def __init__(self, uri: str, *, shown_uri: str) -> None:
        self._uri, self._shown_uri = uri, shown_uri
        with self._storing("open"):
            self._client = client_of(uri)
            self._series, self._files = Series(self._client, uri), KeptFiles(self._client, uri)

    def examine(self, study: str | None, *, weights: WeightsOf, now: float | None = None) -> list[Finding]:
        moment = time.time() if now is None else now
        with self._storing("examine it"):
            found: list[Finding] = []
            experiments = self._experiments(study)
            for experiment in [] if study else self._experiments_of(NIGHTS):
                found += self._of_place(experiment)
            for experiment in experiments:
                elsewhere = self._of_place(experiment)
                files = None if elsewhere else self._files
                runs = list(runs_in(self._client, [experiment.experiment_id]))
                found += [*elsewhere, *self._of_study(experiment, runs, files)]
                found += self._of_attempts(experiment.name, runs, files, weights, moment)
        return [self._guarded(finding) for finding in found]

    def _of_place(self, experiment: Experiment) -> list[Finding]:
        """Of a copied home. What is wrong with its files is told once they are here."""
        other, engine = other_place(self._uri, experiment.name), engine_of(self._uri)
        if other is None or engine is None:
            return []
        return [Finding(
            shown_name(experiment.name),
            f"its files are kept in {other.there}, in the home that this one was copied or moved from",
            f"has them kept in {other.here}, copies there what is missing, and leaves the old folder as it is",
            partial(keep_here, engine, experiment.experiment_id, other),
        )]

    def _of_study(
        self, experiment: Experiment, runs: Sequence[Run], files: KeptFiles | None
    ) -> Iterator[Finding]:
        where = f"study {experiment.name}"
        if encoding.KIND not in experiment.tags:
            yield Finding(where, "its import was interrupted", "repeat vsetune tracking import; it goes on")
            return
        parents = sorted(_of_kind(runs, "study"), key=lambda run: run.info.start_time)
        if not parents:
            yield Finding(
                where, "has no run of its own, its creation was interrupted",
                "vsetune study run FILE --resume completes it",
            )
            return
        first = parents[0].info.run_id
        for other in parents[1:]:
            yield Finding(
                f"{where}, run {other.info.run_id}", f"a second run of the study beside {first}",
                "moves its attempts below the first, and the run to MLflow's bin",
                partial(self._adopt, other.info.run_id, first, runs),
            )
        if files is not None:
            yield from files.of_study(f"{where}, run {first}", parents[0])

    def _of_attempts(
        self, study: str, runs: Sequence[Run], files: KeptFiles | None, weights: WeightsOf, now: float
    ) -> Iterator[Finding]:
        readable: dict[str, list[tuple[Run, AttemptRecord]]] = defaultdict(list)
        by_trial: dict[str, list[AttemptRecord]] = defaultdict(list)
        for run in _of_kind(runs, "attempt"):
            where = f"study {study}, run {run.info.run_id} ({run.info.run_name})"
            try:
                record = encoding.attempt_from_tags(run.info.run_id, run.data.tags)
            except _UNREADABLE as error:
                yield Finding(
                    where, f"its record cannot be read ({encoding.one_line(error)})",
                    "moves the run to MLflow's bin; a resumed study trains the trial again",
                    partial(self._client.delete_run, run.info.run_id),
                )
                continue
            readable[encoding.attempt_key(record.start)].append((run, record))
        for same in readable.values():
            same.sort(key=lambda each: (*worth(each[1].status, len(each[1].curve)), -each[0].info.start_time))
            run, record = same.pop()
            for other, spare in same:
                yield Finding(
                    f"study {study}, run {other.info.run_id} ({other.info.run_name})",
                    f"records attempt {spare.start.number} of {spare.start.trial} a second time "
                    f"({spare.status}, {len(spare.curve)} points; {run.info.run_id} is {record.status}, "
                    f"{len(record.curve)} points)",
                    "moves it to MLflow's bin", partial(self._client.delete_run, other.info.run_id),
                )
            where = f"study {study}, run {run.info.run_id} ({run.info.run_name})"
            is_silent = _seen(run) < now - SILENT_AFTER_S
            if record.status == "running" and not is_silent:
                continue
            by_trial[record.start.trial].append(record)
            yield from self._of_attempt(where, run, record, now)
            if files is not None:
                yield from files.of_attempt(where, run, record, weights)
        for records in by_trial.values():
            yield from self._of_trial(study, sorted(records, key=lambda each: each.start.number))

    def _of_trial(self, study: str, records: Sequence[AttemptRecord]) -> Iterator[Finding]:
        """Attempts of one trial by number. The first that finished or was pruned is what the search knows."""
        end = next((place for place, each in enumerate(records) if each.status in _ENDED), len(records))
        for spare in records[end + 1 :]:
            kept, start = records[end], spare.start
            is_same = dict(start.configuration) == dict(kept.start.configuration)
            how = "moves it to MLflow's bin" if is_same else "delete in MLflow the one that the search does not have"
            yield Finding(
                f"study {study}, run {spare.attempt_id}",
                f"attempt {start.number} of {start.trial} ({spare.status}{'' if is_same else ', other settings'}), "
                f"which had already {_ENDED[kept.status]} as attempt {kept.start.number}, run {kept.attempt_id}",
                how, partial(self._client.delete_run, spare.attempt_id) if is_same else None,
            )

    def _of_attempt(self, where: str, run: Run, record: AttemptRecord, now: float) -> Iterator[Finding]:
        """One of a driver that lives is not given here."""
        run_id, status = run.info.run_id, record.status
        if status == "running":
            yield Finding(
                where, f"running, and silent for {(now - _seen(run)) / 3600:.0f} h",
                "marks it as killed; a resumed study goes on with the trial",
                partial(self._end, run_id, "killed", no_sign_of_life(SILENT_AFTER_S)),
            )
        elif run.info.status != _RUN_STATUS.get(status):
            yield Finding(
                where, f"ended as {status}, and MLflow shows {run.info.status}", "sets MLflow's status",
                partial(self._end, run_id, status, None),
            )
        if not run.data.params:
            yield Finding(
                where, "has no params", "writes them from the record",
                partial(log_in_batches, self._client, run_id, params=encoding.attempt_params(record.start)),
            )
        yield from self._of_curve(where, run)

    def _of_curve(self, where: str, run: Run) -> Iterator[Finding]:
        """The curve of the record against itself, then against the series that MLflow draws."""
        run_id, kept = run.info.run_id, KeptCurve(run.data.tags)
        if kept.doubled:
            yield Finding(
                where, f"its curve has {kept.doubled} points twice",
                "keeps the first of each step" if kept.can_mend else "delete the run, and resume the study",
                partial(self._keep_curve, run_id, kept.with_points([])) if kept.can_mend else None,
            )
        drawn, curve = self._series.steps(run_id), kept.curve
        lost = sorted(drawn.keys() - {point.step for point in curve})
        if lost:
            found = self._series.points(run_id, lost)
            yield Finding(
                where, f"{len(lost)} points are among MLflow's numbers and not in the curve",
                f"adds {len(found)} of them to the curve" if found else "nothing, what else makes them points is gone",
                partial(self._keep_curve, run_id, kept.with_points(found)) if found else None,
            )
        undrawn = [point for point in curve if point.step not in drawn]
        if undrawn:
            yield Finding(
                where, f"{len(undrawn)} points of the curve are not among MLflow's numbers", "adds them",
                partial(self._series.draw, run_id, run.info.start_time, undrawn),
            )
        twice = sum(count > 1 for count in drawn.values())
        if twice:
            is_ours = self._series.reaches_rows
            yield Finding(
                where, f"MLflow's charts have {twice} points twice (boards read the curve, which has them once)",
                "removes the second" if is_ours else "run vsetune tracking doctor --mend where the database is reached",
                partial(self._series.remove_doubles, run_id, curve) if is_ours else None,
            )

    def _adopt(self, other: str, first: str, runs: Sequence[Run]) -> None:
        for run in runs:
            if run.data.tags.get("mlflow.parentRunId") == other:
                self._client.set_tag(run.info.run_id, "mlflow.parentRunId", first)
        self._client.delete_run(other)

    def _end(self, run_id: str, status: str, error: str | None) -> None:
        """As the store does it: the tag first, which is what is read back."""
        if error is not None:
            self._client.set_tag(run_id, encoding.ERROR, error)
        self._client.set_tag(run_id, encoding.STATUS, status)
        self._client.set_terminated(run_id, _RUN_STATUS[status])

    def _keep_curve(self, run_id: str, tags: Mapping[str, str]) -> None:
        log_in_batches(self._client, run_id, tags=tags)

    def _experiments(self, study: str | None) -> list[Experiment]:
        found = [
            *self._experiments_of("study"),
            *(each for each in self._client.search_experiments(filter_string=f"tags.`{MOVING}` LIKE '%'")
              if encoding.KIND not in each.tags),
        ]
        if study is None:
            return sorted(found, key=lambda each: str(each.name))
        chosen = [each for each in found if each.name == study]
        if not chosen:
            raise unknown_study(study, [each.name for each in found])
        return chosen

    def _experiments_of(self, kind: str) -> list[Experiment]:
        return list(self._client.search_experiments(filter_string=f"tags.`{encoding.KIND}` = '{kind}'"))

    def _guarded(self, finding: Finding) -> Finding:
        """Its mend raises one line."""
        mend = finding.mend
        if mend is None:
            return finding

        def guarded(mend: Callable[[], object] = mend) -> None:
            with self._storing(f"mend {finding.where}"):
                mend()

        return Finding(finding.where, finding.what, finding.how, guarded)

    def _storing(self, doing: str) -> AbstractContextManager[None]:
        return in_one_line(f"tracking store {self._shown_uri}: cannot {doing}", then="repeat")


def _of_kind(runs: Sequence[Run], kind: str) -> list[Run]:
    return [run for run in runs if run.data.tags.get(encoding.KIND) == kind]


def _seen(run: Run) -> float:
    """The last sign of life, seconds since 1970."""
    try:
        told = float(run.data.tags.get(encoding.SEEN, 0.0))
    except ValueError:
        told = 0.0
    return max(told, (run.info.start_time or 0) / 1000, (run.info.end_time or 0) / 1000)
