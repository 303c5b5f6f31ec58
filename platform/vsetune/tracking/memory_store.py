"""A store that lives and dies with the process: for tests and dry runs."""

from __future__ import annotations

import shutil
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from vsetune.tracking.point_blocks import CurvePoint
from vsetune.tracking.records import AttemptRecord, AttemptStart, AttemptStatus, StudyRecord, ValidationPoint
from vsetune.tracking.store import (
    StudyStatus,
    TrackingStore,
    no_sign_of_life,
    require_files,
    require_same_study,
    require_terminal,
    unknown_attempt,
    unknown_study,
)


def attempt_id_of(start: AttemptStart) -> str:
    """The id that this store gives to (trial, number): the same in every process."""
    return f"{start.study}/{start.trial}/{start.number}"


@dataclass
class _Attempt:
    """points: by step, of each what its curve and its costs need. whole: all of them, where they are kept. earlier_*:
    what an adopted attempt already had; its steps are not known, its epochs tell its points apart."""

    start: AttemptStart
    status: AttemptStatus = "running"
    points: dict[int, CurvePoint] = field(default_factory=dict)
    whole: list[ValidationPoint] = field(default_factory=list)
    summary: dict[str, float] = field(default_factory=dict)
    error: str | None = None
    earlier_curve: tuple[tuple[float, float], ...] = ()
    earlier_summary: Mapping[str, float] = field(default_factory=dict)
    seen: float = field(default_factory=time.time)

    def __post_init__(self) -> None:
        self.earlier_epochs = frozenset(epoch for epoch, _ in self.earlier_curve)

    def record(self, attempt_id: str) -> AttemptRecord:
        points = [self.points[step] for step in sorted(self.points)]
        curve = tuple((point.epoch, point.m_recall) for point in points)
        if self.earlier_curve:
            curve = tuple(sorted([*self.earlier_curve, *curve]))
        so_far = points[-1].seconds() if points else {}
        summary = {**self.earlier_summary, **so_far, **self.summary}
        return AttemptRecord(attempt_id, self.start, self.status, curve, summary, self.error)


class MemoryStore(TrackingStore):
    """Keeps nothing after the process; artifacts are copied only when it was given a folder for them."""

    def __init__(self, artifact_root: Path | None = None, *, keeps_numbers: bool = True) -> None:
        """keeps_numbers: otherwise `points` has none, as in a copy of a store that can be asked itself."""
        self._artifact_root, self._keeps_numbers = artifact_root, keeps_numbers
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
        attempt_id = attempt_id_of(start)
        attempt = self._attempts.setdefault(attempt_id, _Attempt(start))
        attempt.seen = time.time()
        if attempt.status == "killed":
            attempt.status = "running"
        return attempt_id

    def record_points(self, attempt_id: str, points: Sequence[ValidationPoint]) -> None:
        self.add_points(attempt_id, points)

    def add_points(self, attempt_id: str, points: Sequence[ValidationPoint]) -> list[ValidationPoint]:
        """`record_points`, and which of them were new."""
        attempt = self._attempt(attempt_id)
        attempt.seen = time.time()
        new: list[ValidationPoint] = []
        for point in points:
            if point.step not in attempt.points and point.epoch not in attempt.earlier_epochs:
                attempt.points[point.step] = CurvePoint.of(point)
                new.append(point)
        if self._keeps_numbers:
            attempt.whole += new
        return new

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

    def study_of(self, attempt_id: str) -> str:
        """The study of an attempt. UsageError for an unknown one."""
        return self._attempt(attempt_id).start.study

    def adopt(self, record: StudyRecord, attempts: Sequence[AttemptRecord]) -> None:
        """Take over what another store knows of a study, in place of what is known here. Ids become this store's."""
        self._studies[record.name] = record
        self._attempts = {key: each for key, each in self._attempts.items() if each.start.study != record.name}
        for attempt in attempts:
            self._attempts[attempt_id_of(attempt.start)] = _Attempt(
                attempt.start, attempt.status, error=attempt.error, earlier_curve=tuple(attempt.curve),
                earlier_summary=dict(attempt.summary),
            )

    def attempts(self, study: str) -> list[AttemptRecord]:
        self._require_study(study)
        return [attempt.record(key) for key, attempt in self._attempts.items() if attempt.start.study == study]

    def attempt(self, attempt_id: str) -> AttemptRecord:
        return self._attempt(attempt_id).record(attempt_id)

    def points(self, attempt_id: str) -> list[ValidationPoint]:
        return sorted(self._attempt(attempt_id).whole, key=lambda point: point.step)

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

    def close_stale(self, older_than_s: float, now: float | None = None, except_study: str | None = None) -> int:
        moment = time.time() if now is None else now
        stale = [
            attempt for attempt in self._attempts.values()
            if attempt.status == "running" and attempt.start.study != except_study
            and moment - attempt.seen > older_than_s
        ]
        for attempt in stale:
            attempt.status, attempt.error = "killed", no_sign_of_life(older_than_s)
        return len(stale)

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
