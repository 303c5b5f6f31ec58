"""Attempts behind an MLflow server, which is asked for all of them once and then for those that may have changed.

MLflow's search gives whole runs alone, cannot compare tags by size and keeps no time of a run's last change. What may
have changed since the last reading is what runs, what ran then, and what has ended since: all that is written of an
attempt that is over, late points too, moves its end (`mlflow_store.py`). Runs that somebody deleted or brought back
make all be read anew. So does an hour: for what is changed by hand in MLflow's page, and for drivers whose clocks are
wrong.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

from mlflow import MlflowClient
from mlflow.entities import Run, RunStatus, ViewType

from vsetune.tracking import encoding
from vsetune.tracking.attempt_rows import ReadRun
from vsetune.tracking.mlflow_runs import runs_in
from vsetune.tracking.records import AttemptRecord

_KEPT_S = 3600.0
_OVERLAP_MS = 60_000
"""By so much the clocks of drivers may differ, and an end may reach the server after others of its time."""
_IDS_AT_ONCE = 100
_ATTEMPTS = f"tags.`{encoding.KIND}` = 'attempt'"
_RUNNING = RunStatus.to_string(RunStatus.RUNNING)


@dataclass(frozen=True)
class _Reading:
    """Of one experiment. read_at: by the clock, when all was read. ended_ms: since 1970, the newest end that is known.
    deleted: ids of deleted runs; running: of those that MLflow took to be running."""

    experiment_id: str
    read_at: float
    ended_ms: int
    deleted: frozenset[str]
    running: frozenset[str]
    attempts: Mapping[str, tuple[ReadRun, AttemptRecord]]

    def is_good(self, experiment_id: str, now: float, deleted: frozenset[str]) -> bool:
        """Whether it can be brought up to date."""
        return (self.experiment_id, self.deleted) == (experiment_id, deleted) and now - self.read_at < _KEPT_S


class SearchedAttempts:
    """Of one store. Remembers the attempts of the experiment that was read last. Errors are those of MLflow.

    clock: seconds.
    """

    def __init__(self, client: MlflowClient, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._client, self._clock = client, clock
        self._known: _Reading | None = None

    def of(self, experiment_id: str) -> list[AttemptRecord]:
        """The attempts of an experiment in the order they started, with equal parts shared among them."""
        now, known = self._clock(), self._known
        removed = runs_in(self._client, [experiment_id], _ATTEMPTS, view=ViewType.DELETED_ONLY)
        deleted = frozenset(run.info.run_id for run in removed)
        if known is not None and known.is_good(experiment_id, now, deleted):
            self._known = self._brought_up_to_date(known)
        else:
            self._known = self._all(experiment_id, now, deleted)
        return [record for _, record in sorted(self._known.attempts.values(), key=lambda each: each[0][:3])]

    def _all(self, experiment_id: str, now: float, deleted: frozenset[str]) -> _Reading:
        """What ends while they are read is asked for again next time."""
        newest = self._client.search_runs(
            [experiment_id], f"{_ATTEMPTS} AND attributes.end_time > 0", max_results=1,
            order_by=["attributes.end_time DESC"],
        )
        runs = runs_in(self._client, [experiment_id], _ATTEMPTS)
        attempts, running = _read(runs, {})
        return _Reading(experiment_id, now, _newest_end(newest), deleted, running, attempts)

    def _brought_up_to_date(self, known: _Reading) -> _Reading:
        """What runs is asked for before what has ended, so that none escapes by ending between the two."""
        place = [known.experiment_id]
        found = {run.info.run_id: run for run in runs_in(
            self._client, place, f"{_ATTEMPTS} AND attributes.status = '{_RUNNING}'"
        )}
        since = max(0, known.ended_ms - _OVERLAP_MS)
        ended = list(runs_in(self._client, place, f"{_ATTEMPTS} AND attributes.end_time >= {since}"))
        found |= {run.info.run_id: run for run in ended}
        found |= {run.info.run_id: run for run in self._by_id(place, sorted(known.running - found.keys()))}
        attempts, running = _read(found.values(), known.attempts)
        return _Reading(
            known.experiment_id, known.read_at, max(known.ended_ms, _newest_end(ended)), known.deleted, running,
            {**known.attempts, **attempts},
        )

    def _by_id(self, place: list[str], run_ids: list[str]) -> Iterator[Run]:
        for at in range(0, len(run_ids), _IDS_AT_ONCE):
            listed = ", ".join(f"'{run_id}'" for run_id in run_ids[at : at + _IDS_AT_ONCE])
            yield from runs_in(self._client, place, f"attributes.run_id IN ({listed})")


def _read(
    runs: Iterable[Run], known: Mapping[str, tuple[ReadRun, AttemptRecord]]
) -> tuple[dict[str, tuple[ReadRun, AttemptRecord]], frozenset[str]]:
    """The attempts by their ids, the very records that are known where nothing has changed, and which of them run."""
    attempts, running, decoding = {}, set(), encoding.Decoding()
    for run in runs:
        info, tags = run.info, run.data.tags
        state = ReadRun(
            info.start_time, info.run_name or "", info.run_id, info.end_time, tags.get(encoding.STATUS, ""),
            tags.get(encoding.SEEN, ""),
        )
        before = known.get(info.run_id)
        is_same = before is not None and before[0] == state
        attempts[info.run_id] = before if before and is_same else (state, decoding.attempt(info.run_id, tags))
        if info.status == _RUNNING:
            running.add(info.run_id)
    return attempts, frozenset(running)


def _newest_end(runs: Iterable[Run]) -> int:
    """Milliseconds since 1970; 0 where none has ended."""
    return max((run.info.end_time or 0 for run in runs), default=0)
