"""A store that lives and dies with the process: for tests and dry runs."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from vsetune.tracking.records import AttemptRecord, AttemptStart, AttemptStatus, StudyRecord, ValidationPoint
from vsetune.tracking.store import (
    StudyStatus,
    TrackingStore,
    require_files,
    require_same_study,
    require_terminal,
    summary_so_far,
    unknown_attempt,
    unknown_study,
)


@dataclass
class _Attempt:
    start: AttemptStart
    status: AttemptStatus = "running"
    points: dict[int, ValidationPoint] = field(default_factory=dict)
    summary: dict[str, float] = field(default_factory=dict)
    error: str | None = None

    def record(self, attempt_id: str) -> AttemptRecord:
        points = [self.points[step] for step in sorted(self.points)]
        curve = tuple((point.epoch, point.m_recall) for point in points)
        so_far = summary_so_far(points[-1]) if points else {}
        return AttemptRecord(attempt_id, self.start, self.status, curve, so_far | self.summary, self.error)


class MemoryStore(TrackingStore):
    """Keeps nothing after the process; artifacts are copied only when it was given a folder for them."""

    def __init__(self, artifact_root: Path | None = None) -> None:
        self._artifact_root = artifact_root
        self._studies: dict[str, StudyRecord] = {}
        self._attempts: dict[str, _Attempt] = {}

    def open_study(self, record: StudyRecord, *, resume: bool) -> None:
        known = self._studies.get(record.name)
        if known is None:
            self._studies[record.name] = record
            return
        require_same_study(known, record, resume=resume)
        for attempt in self._attempts.values():
            if attempt.start.study == record.name and attempt.status == "running":
                attempt.status = "killed"

    def start_attempt(self, start: AttemptStart) -> str:
        self._require_study(start.study)
        attempt_id = f"{start.study}/{start.trial}/{start.number}"
        attempt = self._attempts.setdefault(attempt_id, _Attempt(start))
        if attempt.status == "killed":
            attempt.status = "running"
        return attempt_id

    def record_points(self, attempt_id: str, points: Sequence[ValidationPoint]) -> None:
        attempt = self._attempt(attempt_id)
        for point in points:
            attempt.points.setdefault(point.step, point)

    def finish_attempt(
        self,
        attempt_id: str,
        status: AttemptStatus,
        summary: Mapping[str, float],
        artifacts: Sequence[Path],
        error: str | None,
    ) -> None:
        require_terminal(attempt_id, status)
        attempt = self._attempt(attempt_id)
        self._keep(attempt_id, artifacts)
        attempt.status, attempt.summary, attempt.error = status, dict(summary), error

    def finish_study(self, name: str, status: StudyStatus, artifacts: Sequence[Path]) -> None:
        self._require_study(name)
        self._keep(name, artifacts)

    def attempts(self, study: str) -> list[AttemptRecord]:
        self._require_study(study)
        return [attempt.record(key) for key, attempt in self._attempts.items() if attempt.start.study == study]

    def attempt(self, attempt_id: str) -> AttemptRecord:
        return self._attempt(attempt_id).record(attempt_id)

    def keep_artifacts(self, attempt_id: str, artifacts: Sequence[Path], *, folder: str) -> None:
        self._attempt(attempt_id)
        self._keep(f"{attempt_id}/{folder}", artifacts)

    def fetch_artifact(self, attempt_id: str, name: str, into: Path) -> Path | None:
        self._attempt(attempt_id)
        if self._artifact_root is None:
            return None
        kept = self._artifact_root / attempt_id / name
        return kept if kept.is_file() else None

    def studies(self) -> list[StudyRecord]:
        return list(self._studies.values())

    def _require_study(self, name: str) -> None:
        if name not in self._studies:
            raise unknown_study(name, list(self._studies))

    def _attempt(self, attempt_id: str) -> _Attempt:
        if attempt_id not in self._attempts:
            raise unknown_attempt(attempt_id)
        return self._attempts[attempt_id]

    def _keep(self, place: str, artifacts: Sequence[Path]) -> None:
        require_files(place, artifacts)
        if self._artifact_root is not None and artifacts:
            folder = self._artifact_root / place
            folder.mkdir(parents=True, exist_ok=True)
            for artifact in artifacts:
                shutil.copy2(artifact, folder)
