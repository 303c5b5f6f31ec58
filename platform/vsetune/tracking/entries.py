"""What stands in a study's journal: how each kind of record is written, replayed into memory, delivered to a store.

    open    a study is opened          start   an attempt starts        points  validations of an attempt
    keep    files are added            finish  an attempt ends          close   a study ends
    known   a study and its attempts as the store has them: nothing to deliver

Attempts are named by the ids of the journal (`memory_store.attempt_id_of`), which do not depend on any store.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from vsetune.errors import UsageError
from vsetune.tracking.journal import Entry
from vsetune.tracking.memory_store import MemoryStore, attempt_id_of
from vsetune.tracking.records import AttemptRecord, AttemptStart, StudyRecord, ValidationPoint
from vsetune.tracking.store import TrackingStore, unknown_attempt

_log = logging.getLogger(__name__)
NEED_NO_DELIVERY = ("journal", "known")
JOURNAL_TAG = "vsetune.journal"
"""Tag of a study in the store: the identity of the journal that created it."""


def known_study(record: StudyRecord, attempts: Sequence[AttemptRecord]) -> dict[str, Any]:
    """The body of a `known` record."""
    return {"record": asdict(record), "attempts": [asdict(attempt) for attempt in attempts]}


def plain_points(points: Sequence[ValidationPoint]) -> list[dict[str, Any]]:
    """Points as they stand in the body of a `points` record; without the deep copies of `asdict`."""
    return [
        {
            "step": point.step, "epoch": point.epoch, "pairs_seen": point.pairs_seen, "m_recall": point.m_recall,
            "train_seconds": point.train_seconds, "metrics": dict(point.metrics),
        }
        for point in points
    ]


def replay(entry: Entry, mirror: MemoryStore) -> None:
    """Do in memory what a record says. Its files are not looked at; what the mirror refuses is left out."""
    body = entry.body
    steps: dict[str, Callable[[], object]] = {
        "open": lambda: mirror.open_study(StudyRecord(**body["record"]), resume=True),
        "known": lambda: mirror.adopt(StudyRecord(**body["record"]), [_attempt(each) for each in body["attempts"]]),
        "start": lambda: mirror.start_attempt(AttemptStart(**body["start"])),
        "points": lambda: mirror.record_points(body["attempt"], _points(body)),
        "finish": lambda: mirror.finish_attempt(body["attempt"], body["status"], body["summary"], [], body["error"]),
    }
    if entry.kind in steps:
        try:
            steps[entry.kind]()
        except UsageError as error:
            _log.warning("journal record %d (%s) is left out: %s", entry.number, entry.kind, error)


class Recipient:
    """A store that is told what stands in a journal. identity: the journal's."""

    def __init__(self, store: TrackingStore, identity: str) -> None:
        self.store = store
        self._identity = identity
        self._ids: dict[str, str] = {}

    def deliver(self, entry: Entry) -> None:
        """Do in the store what a record says. Repeating it changes nothing. Raises what the store raises."""
        body = entry.body
        steps: dict[str, Callable[[], object]] = {
            "open": lambda: self.open_study(StudyRecord(**body["record"]), resume=body["resume"]),
            "start": lambda: self._start(AttemptStart(**body["start"])),
            "points": lambda: self.store.record_points(self._id(body), _points(body)),
            "keep": lambda: self.store.keep_artifacts(self._id(body), _files(body), folder=body["folder"]),
            "finish": lambda: self.store.finish_attempt(
                self._id(body), body["status"], body["summary"], _files(body), body["error"]
            ),
            "close": lambda: self.store.finish_study(body["study"], body["status"], _files(body)),
        }
        if entry.kind in steps:
            steps[entry.kind]()

    def deliver_points(self, groups: Sequence[Entry]) -> None:
        """The points of several attempts at once; each group is a record of one attempt. Raises what the store raises;
        what has arrived of the others is then not known."""
        self.store.record_batch({self._id(entry.body): _points(entry.body) for entry in groups})

    def open_study(self, record: StudyRecord, *, resume: bool) -> None:
        """Create or reopen a study. One that this journal created is its own, even if it never heard the answer."""
        known = next((each for each in self.store.studies() if each.name == record.name), None)
        is_ours = known is not None and known.tags.get(JOURNAL_TAG) == self._identity
        tagged = replace(record, tags={**record.tags, JOURNAL_TAG: self._identity})
        self.store.open_study(tagged, resume=resume or is_ours)

    def attempts(self, study: str) -> list[AttemptRecord]:
        """All attempts of a study as the store has them; their ids are remembered."""
        found = self.store.attempts(study)
        self._ids |= {attempt_id_of(attempt.start): attempt.attempt_id for attempt in found}
        return found

    def id_of(self, attempt_id: str, study: str) -> str:
        """The store's id of an attempt that the journal knows. UsageError if the store does not have it."""
        if attempt_id not in self._ids:
            self.attempts(study)
        if attempt_id not in self._ids:
            raise unknown_attempt(attempt_id)
        return self._ids[attempt_id]

    def _start(self, start: AttemptStart) -> None:
        self._ids[attempt_id_of(start)] = self.store.start_attempt(start)

    def _id(self, body: Mapping[str, Any]) -> str:
        return self.id_of(body["attempt"], body["study"])


def together(entries: Sequence[Entry]) -> Entry:
    """Points of one attempt from several records, as one; a record alone as it is."""
    last = entries[-1]
    if len(entries) == 1:
        return last
    return last._replace(body={**last.body, "points": [point for each in entries for point in each.body["points"]]})


def _points(body: Mapping[str, Any]) -> list[ValidationPoint]:
    return [ValidationPoint(**point) for point in body["points"]]


def _attempt(plain: Mapping[str, Any]) -> AttemptRecord:
    curve = tuple((epoch, m_recall) for epoch, m_recall in plain["curve"])
    return AttemptRecord(**{**plain, "start": AttemptStart(**plain["start"]), "curve": curve})


def _files(body: Mapping[str, Any]) -> list[Path]:
    """Those that can still be read; one that cannot would hold up everything behind it."""
    files = []
    for path in map(Path, body["artifacts"]):
        if path.is_file() and os.access(path, os.R_OK):
            files.append(path)
        else:
            _log.warning("%s: gone before it could be kept with %s, recorded without it", path,
                         body.get("attempt") or body["study"])
    return files
