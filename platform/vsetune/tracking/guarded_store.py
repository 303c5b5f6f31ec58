"""A store that is written only while something holds: a study that another machine has taken over is left alone."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from vsetune.tracking.records import AttemptRecord, AttemptStart, AttemptStatus, StudyRecord, ValidationPoint
from vsetune.tracking.store import StudyStatus, TrackingStore


class GuardedStore(TrackingStore):
    """Calls `check` before each write; what that raises, a StorageError, reaches whoever wanted to write."""

    def __init__(self, inner: TrackingStore, check: Callable[[], None]) -> None:
        self._inner, self._check = inner, check

    def open_study(self, record: StudyRecord, *, resume: bool) -> None:
        self._check()
        self._inner.open_study(record, resume=resume)

    def start_attempt(self, start: AttemptStart) -> str:
        self._check()
        return self._inner.start_attempt(start)

    def record_points(self, attempt_id: str, points: Sequence[ValidationPoint]) -> None:
        self._check()
        self._inner.record_points(attempt_id, points)

    def record_batch(self, points: Mapping[str, Sequence[ValidationPoint]]) -> None:
        self._check()
        self._inner.record_batch(points)

    def finish_attempt(
        self, attempt_id: str, status: AttemptStatus, summary: Mapping[str, float], artifacts: Sequence[Path],
        error: str | None,
    ) -> None:
        self._check()
        self._inner.finish_attempt(attempt_id, status, summary, artifacts, error)

    def finish_study(self, name: str, status: StudyStatus, artifacts: Sequence[Path]) -> None:
        self._check()
        self._inner.finish_study(name, status, artifacts)

    def attempts(self, study: str) -> list[AttemptRecord]:
        return self._inner.attempts(study)

    def attempt(self, attempt_id: str) -> AttemptRecord:
        return self._inner.attempt(attempt_id)

    def points(self, attempt_id: str) -> list[ValidationPoint]:
        return self._inner.points(attempt_id)

    def keep_artifacts(self, attempt_id: str, artifacts: Sequence[Path], *, folder: str) -> None:
        self._check()
        self._inner.keep_artifacts(attempt_id, artifacts, folder=folder)

    def fetch_artifact(self, attempt_id: str, name: str, into: Path) -> Path | None:
        return self._inner.fetch_artifact(attempt_id, name, into)

    def studies(self) -> list[StudyRecord]:
        return self._inner.studies()

    def close_stale(self, older_than_s: float, now: float | None = None, except_study: str | None = None) -> int:
        self._check()
        return self._inner.close_stale(older_than_s, now, except_study)
