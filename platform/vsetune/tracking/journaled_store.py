"""A store in front of the store: what a study records is safe on disk at once and delivered when the store answers.

One driver writes: into the journal of the study's folder, and into a copy in memory that answers its questions. A
thread (`delivery.py`) takes the records to the store behind. Training never waits for that store, neither at the start
nor at the end; the journal is a complete log of the study, from its creation or from what the store had when it was
last opened.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from vsetune.errors import StorageError, UnusableStore
from vsetune.tracking.delivery import Delivery
from vsetune.tracking.entries import Recipient, known_study, plain_points, replay
from vsetune.tracking.journal import Journal
from vsetune.tracking.memory_store import MemoryStore
from vsetune.tracking.outbox import Outbox
from vsetune.tracking.records import AttemptRecord, AttemptStart, AttemptStatus, StudyRecord, ValidationPoint
from vsetune.tracking.store import StudyStatus, TrackingStore, require_files, require_same_study

_log = logging.getLogger(__name__)
ANSWER_WITHIN_S = 10.0
"""How long the start of a study waits for its store before it goes on with the journal alone."""
LAST_CHANCE_S = 60.0
"""How long it waits when the journal alone does not tell what the study has done."""


class JournaledStore(TrackingStore):
    """Never raises for a store that is away, except where `open_study` cannot tell without it what a study has done.

    open_inner: opens the store behind, called in a thread, again and again until it succeeds. folder: the study's own,
    on a local disk; the caller holds its lock. Attempt ids are those of the journal, not those of the store behind.
    Reads come from memory: the studies opened here and their attempts.
    """

    def __init__(
        self, open_inner: Callable[[], TrackingStore], folder: Path, *, answer_within_s: float = ANSWER_WITHIN_S,
        bring: Callable[[Path], Path] | None = None,
    ) -> None:
        """Returns at once. StorageError when the folder cannot be written.

        bring: fetches a file of a trial, which may be on another machine, when it is delivered. Then files are named
        relative to the folder, so that another machine can deliver them.
        """
        self._journal = Journal(folder)
        self._outbox = Outbox(folder / "outbox")
        self._folder, self._answer_within_s = folder, answer_within_s
        self._mirror = MemoryStore(keeps_numbers=False)
        self._lock = threading.RLock()
        self._bring = bring
        self._delivery = Delivery(open_inner, self._journal, self._outbox, bring)

    def pending(self) -> int:
        """How many records the store behind has not got yet."""
        return self._delivery.pending()

    def delivered(self) -> int:
        """How many records the store behind got from this process."""
        return self._delivery.delivered

    def outage(self) -> str | None:
        """Why nothing is delivered at the moment, in one line; None when all is well."""
        return self._delivery.outage()

    def flush(self, timeout_s: float) -> int:
        """Wait until all is delivered, at most `timeout_s`; how many records are left."""
        return self._delivery.flush(timeout_s)

    def deliver(self, patience_s: float) -> int:
        """Wait as long as records are delivered, and `patience_s` without any; how many are left."""
        last_change, left = time.monotonic(), self.pending()
        while left and time.monotonic() - last_change < patience_s:
            before, left = left, self.flush(1.0)
            if left != before:
                last_change = time.monotonic()
        return left

    def close(self, timeout_s: float) -> int:
        """Deliver what can be delivered in `timeout_s` and stop; how many records are left in the journal.

        StorageError when records are neither delivered nor on disk: they are lost with this process.
        """
        until = time.monotonic() + timeout_s
        left = self.flush(timeout_s)
        self._delivery.stop(max(0.5, until - time.monotonic()))
        self._journal.retry()
        lost = min(self._journal.unwritten, self.pending())
        if not self._delivery.is_alive():
            self._journal.close()
        if lost:
            raise StorageError(
                f"{self._journal.path}: {lost} records could be written neither there nor to the tracking store, and "
                "are lost; free space, then repeat with --resume"
            )
        return left

    def open_study(self, record: StudyRecord, *, resume: bool) -> None:
        with self._lock:
            if record.name in {study.name for study in self._mirror.studies()}:
                self._mirror.open_study(record, resume=resume)
                self._append("open", {"record": asdict(record), "resume": True}, durable=True)
                return
            journaled = self._replayed()
            known = next((study for study in journaled.studies() if study.name == record.name), None)
            if known is not None:
                require_same_study(known, record, resume=resume)
            can_do_without = self._journal.is_complete and (
                known is not None or not (resume or (self._folder / "trials").exists())
            )
            if self._open_from_store(record, resume=resume, can_do_without=can_do_without):
                return
            if not can_do_without:
                raise StorageError(
                    f"study {record.name}: {self._journal.path} does not tell what it has done so far and the tracking "
                    f"store does not answer ({self.outage() or 'too slow'}); bring the store back, then repeat"
                )
            journaled.open_study(record, resume=resume)
            self._mirror = journaled
            self._append("open", {"record": asdict(record), "resume": resume}, durable=True)

    def start_attempt(self, start: AttemptStart) -> str:
        with self._lock:
            attempt_id = self._mirror.start_attempt(start)
            self._append("start", {"start": asdict(start)}, durable=True)
        return attempt_id

    def record_points(self, attempt_id: str, points: Sequence[ValidationPoint]) -> None:
        with self._lock:
            new = self._mirror.add_points(attempt_id, points)
            if new:
                self._append_of(attempt_id, "points", {"points": plain_points(new)}, durable=False)
        self._delivery.make_room()

    def finish_attempt(
        self, attempt_id: str, status: AttemptStatus, summary: Mapping[str, float], artifacts: Sequence[Path],
        error: str | None,
    ) -> None:
        with self._lock:
            self._mirror.finish_attempt(attempt_id, status, summary, self._here(artifacts), error)
            body = {"status": status, "summary": dict(summary), "artifacts": self._put(artifacts), "error": error}
            self._append_of(attempt_id, "finish", body, durable=True)

    def finish_study(self, name: str, status: StudyStatus, artifacts: Sequence[Path]) -> None:
        with self._lock:
            self._mirror.finish_study(name, status, artifacts)
            body = {"study": name, "status": status, "artifacts": self._put(artifacts)}
            self._append("close", body, durable=True)

    def attempts(self, study: str) -> list[AttemptRecord]:
        with self._lock:
            return self._mirror.attempts(study)

    def attempt(self, attempt_id: str) -> AttemptRecord:
        with self._lock:
            return self._mirror.attempt(attempt_id)

    def points(self, attempt_id: str) -> list[ValidationPoint]:
        """As the contract has it; from the store behind, as `fetch_artifact`: memory has only what curves need."""
        study = self._mirror.study_of(attempt_id)
        self._delivery.flush(self._answer_within_s)
        return self._delivery.ask(
            lambda inner: inner.store.points(inner.id_of(attempt_id, study)), timeout_s=self._answer_within_s
        )

    def keep_artifacts(self, attempt_id: str, artifacts: Sequence[Path], *, folder: str) -> None:
        with self._lock:
            self._mirror.attempt(attempt_id)
            require_files(attempt_id, artifacts)
            self._append_of(attempt_id, "keep", {"artifacts": self._put(artifacts), "folder": folder}, durable=True)

    def fetch_artifact(self, attempt_id: str, name: str, into: Path) -> Path | None:
        """As the contract has it; from the store behind, which is given time to hear of it. StorageError without it."""
        study = self._mirror.study_of(attempt_id)
        self._delivery.flush(self._answer_within_s)
        return self._delivery.ask(
            lambda inner: inner.store.fetch_artifact(inner.id_of(attempt_id, study), name, into),
            timeout_s=self._answer_within_s,
        )

    def studies(self) -> list[StudyRecord]:
        with self._lock:
            return self._mirror.studies()

    def close_stale(self, older_than_s: float, now: float | None = None, except_study: str | None = None) -> int:
        """As the contract has it, in the store behind. StorageError when it does not answer."""
        self._delivery.flush(self._answer_within_s)
        closed = self._delivery.ask(
            lambda inner: inner.store.close_stale(older_than_s, now, except_study), timeout_s=self._answer_within_s
        )
        with self._lock:
            self._mirror.close_stale(older_than_s, now, except_study)
        return closed

    def _open_from_store(self, record: StudyRecord, *, resume: bool, can_do_without: bool) -> bool:
        """Open the study in the store and take its attempts over; False when the store does not answer.

        Raises what concerns the study (StudyConflict), and a store that no retry would open.
        """
        timeout_s = self._answer_within_s if can_do_without else LAST_CHANCE_S
        until = time.monotonic() + timeout_s
        if not self._delivery.wait_until_open(timeout_s, until_outage=can_do_without):
            return False
        if self._delivery.flush(until - time.monotonic(), until_outage=True):
            return False

        def open_and_read(inner: Recipient) -> list[AttemptRecord]:
            inner.open_study(record, resume=resume)
            return inner.attempts(record.name)

        try:
            attempts = self._delivery.ask(open_and_read, timeout_s=max(1.0, until - time.monotonic()))
        except UnusableStore:
            raise
        except StorageError as error:
            _log.warning("study %s: goes on with its journal alone: %s", record.name, error)
            return False
        self._adopt(record, attempts)
        return True

    def _adopt(self, record: StudyRecord, attempts: Sequence[AttemptRecord]) -> None:
        """What the store has is what is known now. The first study of a process starts its journal anew from there."""
        is_first = not self._mirror.studies()
        self._mirror.adopt(record, attempts)
        body = known_study(record, attempts)
        if is_first and not self.pending():
            try:
                self._delivery.restarted_at(self._journal.start_over("known", body))
                self._outbox.clear()
                return
            except OSError as error:
                _log.warning("%s: cannot be written anew (%s); it goes on growing", self._journal.path, error.strerror)
        self._append("known", body, durable=True)

    def _replayed(self) -> MemoryStore:
        """What the journal tells."""
        mirror = MemoryStore(keeps_numbers=False)
        for entry in self._journal.entries():
            replay(entry, mirror)
        return mirror

    def _put(self, artifacts: Sequence[Path]) -> list[str]:
        if self._bring is None:
            return [str(path) for path in self._outbox.put(artifacts)]
        here = self._here(artifacts)
        files = [*self._outbox.put(here), *(path for path in artifacts if path not in here)]
        return [str(path.relative_to(self._folder) if path.is_relative_to(self._folder) else path) for path in files]

    def _here(self, artifacts: Sequence[Path]) -> list[Path]:
        """Those that are not brought: files of a trial may be on another machine, or changed since here."""
        return [path for path in artifacts if self._bring is None or not path.is_relative_to(self._folder / "trials")]

    def _append_of(self, attempt_id: str, kind: str, body: Mapping[str, Any], *, durable: bool) -> None:
        study = self._mirror.study_of(attempt_id)
        self._append(kind, {"study": study, "attempt": attempt_id, **body}, durable=durable)

    def _append(self, kind: str, body: Mapping[str, Any], *, durable: bool) -> None:
        self._journal.append(kind, body, durable=durable)
        self._delivery.notify()
