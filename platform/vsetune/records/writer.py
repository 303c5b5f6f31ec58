"""The driver's access to its study: its decisions and the results it receives become events of the log, and the state.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping, Sequence
from typing import Any

from vsetune.errors import StudyConflict
from vsetune.records.events import (
    FIRST_REPEATS,
    PLUGIN_TAG,
    AttemptStart,
    AttemptStatus,
    Begun,
    Closed,
    Drawn,
    Ended,
    Event,
    Opened,
    StudyRecord,
    StudyStatus,
    Validated,
    ValidationPoint,
    attempt_id,
)
from vsetune.records.log import LogWriter, lines_of
from vsetune.records.state import Attempt, StudyState

_SHOWN = 4
_FREE_TO_CHANGE = ("description", "plugins", "resources", "tracking")


class StudyWriter:
    """Writes the log of one study, or only keeps the state in memory. Thread-safe. The caller holds the study's lock.

    Resending points changes nothing: a step of a curve is in the log once. An attempt is identified by (trial, number).
    """

    def __init__(self, log: LogWriter | None = None) -> None:
        """log: None for a study that ends with this process. StorageError for a log of a newer version."""
        self._log = log
        self._lock = threading.RLock()
        self.state = StudyState()
        for line in lines_of(log.path) if log is not None else ():
            self.state.read(line)

    def open_study(self, record: StudyRecord, *, resume: bool) -> None:
        """Begin the study, or resume it. StudyConflict if it exists and `resume` is False, or if it is another study.
        """
        known = self.state.record
        if known is not None:
            require_same_study(known, record, resume=resume)
        self._add(Opened(record, time.time()), settled=True)

    def start_attempt(self, start: AttemptStart) -> str:
        """Record that attempt (trial, number) runs now. Returns its name."""
        name = attempt_id(start)
        self._add(Begun(start, time.time()))
        return name

    def record_points(self, attempt: str, points: Sequence[ValidationPoint]) -> None:
        """Add the validations that the curve lacks. UsageError for an attempt that has not begun."""
        with self._lock:
            last = self.state.attempt(attempt).step
            new = {each.step: each for each in points if each.step > last}
            if new:
                self._add(Validated(attempt, tuple(new[step] for step in sorted(new)), time.time()))

    def finish_attempt(
        self, attempt: str, status: AttemptStatus, *, summary: Mapping[str, float], files: Sequence[str] = (),
        error: str | None,
    ) -> None:
        """End an attempt. files: stored with it, below the study's folder. UsageError for an attempt that has not
        begun."""
        with self._lock:
            self.state.attempt(attempt)
            self._add(Ended(attempt, status, dict(summary), tuple(files), error, time.time()), durable=True)

    def finish_study(self, status: StudyStatus, files: Sequence[str] = ()) -> None:
        """Record how far the study has come, at the end of its driver. files: of the study, below its folder."""
        self._add(Closed(status, tuple(files), time.time()), durable=True)

    def draw(self, event: Drawn) -> None:
        """Record a sampled configuration. It counts once `settle` has returned."""
        self._add(event, durable=True)

    def attempts(self) -> list[Attempt]:
        """All attempts in the order in which they began."""
        with self._lock:
            return list(self.state.attempts.values())

    def settle(self, within_s: float = 60.0) -> None:
        """Return once all events count; see `LogWriter.settle`."""
        if self._log is not None:
            self._log.settle(within_s)

    def _add(self, event: Event, *, durable: bool = False, settled: bool = False) -> None:
        with self._lock:
            self.state.add(event)
            if self._log is not None:
                self._log.append(event, durable=durable or settled)
        if settled:
            self.settle()


def require_same_study(known: StudyRecord, record: StudyRecord, *, resume: bool) -> None:
    """StudyConflict if `record` must not continue `known`, a study of the same name."""
    if known.fingerprint != record.fingerprint or repeats_of(record) < repeats_of(known):
        changes = _changes(known, record)
        shown = ", ".join(changes[:_SHOWN]) + (f" and {len(changes) - _SHOWN} more" if len(changes) > _SHOWN else "")
        raise StudyConflict(
            "VSE-R012", "study {study}: exists with another configuration ({changes}); give the changed study another "
            "name, or undo the change", study=record.name, changes=shown or f"fingerprint {known.fingerprint}",
        )
    if not resume:
        raise StudyConflict(
            "VSE-R011", "study {study}: exists already with this file; continue it with --resume", study=record.name
        )


def repeats_of(record: StudyRecord) -> int:
    """How many searches of each loss a recorded study asks for; 1 for one of a version without that setting."""
    return int((record.config.get("search") or {}).get("repeats", 1))


def first_repeats(record: StudyRecord) -> int:
    """How many it began with; it may have been resumed with more."""
    return int(record.tags.get(FIRST_REPEATS, repeats_of(record)))


def _changes(known: StudyRecord, record: StudyRecord) -> list[str]:
    """`key: old -> new` for everything that differs and matters."""
    old, new = _flat(known.config), _flat(record.config)
    keys = [key for key in {**old, **new} if key.split(".")[0] not in _FREE_TO_CHANGE]
    changes = [f"{key}: {old.get(key)} -> {new.get(key)}" for key in keys if old.get(key) != new.get(key)]
    data = [each.tags.get("data_fingerprint") for each in (known, record)]
    if data[0] != data[1]:
        changes = [change for change in changes if not change.startswith("data.path: ")]
        changes.insert(0, f"the data set: {data[0]} -> {data[1]}")
    for tag in sorted({tag for each in (known, record) for tag in each.tags if tag.startswith(PLUGIN_TAG)}):
        code = [each.tags.get(tag, "none")[:12] for each in (known, record)]
        if code[0] != code[1]:
            changes.insert(0, f"the code of {tag.removeprefix(PLUGIN_TAG)}: {code[0]} -> {code[1]}")
    return changes


def _flat(config: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested mappings as one flat mapping, with dotted keys; lists of mappings by position."""
    flat: dict[str, Any] = {}
    for key, value in config.items():
        if isinstance(value, list) and any(isinstance(entry, dict) for entry in value):
            value = {f"[{position}]": entry for position, entry in enumerate(value)}
        if isinstance(value, Mapping) and value:
            flat |= _flat(value, f"{prefix}{key}.")
        else:
            flat[f"{prefix}{key}".replace(".[", "[")] = value
    return flat
