"""The thread that takes records from a journal to a tracking store, however long the store is away."""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeout
from itertools import takewhile
from pathlib import Path
from typing import Any, TypeVar

from vsetune.errors import StorageError, UnusableStore, UsageError
from vsetune.tracking.aside import put_aside
from vsetune.tracking.backlog import LONGEST_WAIT_S, Backlog
from vsetune.tracking.encoding import one_line
from vsetune.tracking.entries import NEED_NO_DELIVERY, Recipient, together
from vsetune.tracking.entry_files import EntryFiles
from vsetune.tracking.journal import Entry, Journal, Place
from vsetune.tracking.outbox import Outbox
from vsetune.tracking.store import TrackingStore

_log = logging.getLogger(__name__)
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.5, 30.0
STALE_AFTER_S = 24 * 3600.0
"""An attempt of another study that showed no life for this long is closed as killed when a store is opened."""
GATHER_S = 0.25
"""How long the thread lets records gather before it delivers them, unless somebody waits for that."""
_MOST_AT_ONCE, _ATTEMPTS_AT_ONCE = 1000, 200
"""Records of a batch, and attempts: behind a server each of them is a request, and whoever waits sees progress."""
ASIDE_FILE = "journal.aside"
_T = TypeVar("_T")


class Delivery:
    """Opens the store, delivers records in order, answers questions about the store; all in a thread of its own.

    A StorageError means later: the same record is tried again after a pause that grows from 0.5 s to 30 s, for ever.
    A study that cannot be opened (its name is taken) waits in the same way, since everything behind depends on it. Any
    other error concerns one record: it is said once, the record goes to the file `journal.aside`, the next follows.

    Points that follow one another in the journal, of whatever attempts, go to the store in one batch. The order of the
    records of an attempt is that of the journal.
    """

    def __init__(
        self, open_store: Callable[[], TrackingStore], journal: Journal, outbox: Outbox,
        bring: Callable[[Path], Path] | None = None,
    ) -> None:
        """outbox, bring: where the files of records are, as EntryFiles has them."""
        self._open_store, self._journal = open_store, journal
        self._files = EntryFiles(journal.path.parent, outbox, bring)
        self._changed = threading.Condition()
        self._place = self._first_place()
        self._ahead: deque[tuple[Entry, Place]] = deque()  # read from the journal, not delivered; of this thread alone
        self._asked: deque[tuple[Callable[[Recipient], Any], Future[Any]]] = deque()
        self._recipient: Recipient | None = None
        self._outage: StorageError | None = None
        self._refusal: Exception | None = None
        self._conflict: UsageError | None = None
        self._is_stopping = self._in_a_hurry = self._swept = self._is_idle = False
        self._backlog = Backlog(journal.path, self.pending())
        self._waiting = 0  # who waits until everything is delivered
        self._went_on = False  # who waited for the store to open no longer does, and does not hear why it cannot be
        self.delivered = 0
        self._thread = threading.Thread(target=self._run, name="tracking-delivery", daemon=True)
        self._thread.start()

    def pending(self) -> int:
        """How many records wait."""
        return max(0, self._journal.last_number - self._place.number)

    def outage(self) -> str | None:
        """Why nothing is delivered at the moment, in one line."""
        outage = self._outage
        return None if outage is None else str(outage)

    def notify(self) -> None:
        """There is something new in the journal. Wakes the thread only where it has nothing to do."""
        if self._is_idle:
            with self._changed:
                self._changed.notify_all()

    def make_room(self) -> None:
        """Wait for the store where it has fallen too far behind, at most LONGEST_WAIT_S; `Backlog` says when."""
        has_room = self._has_room()
        self._backlog.tell(self.pending(), has_room=has_room)
        if has_room:
            return
        with self._changed:
            self._in_a_hurry = True
            self._changed.notify_all()
            self._changed.wait_for(self._has_room, LONGEST_WAIT_S)

    def _has_room(self) -> bool:
        is_away = self._outage is not None or self._recipient is None
        return self._is_stopping or self._backlog.has_room(
            self.pending(), unwritten=self._journal.unwritten, is_away=is_away
        )

    def wait_until_open(self, timeout_s: float, *, until_outage: bool = False) -> bool:
        """Whether the store was opened in time. until_outage: return as soon as a try has failed.

        Raises the error of a store that waiting does not bring back (UnusableStore, a driver not installed).
        """
        with self._changed:
            self._changed.wait_for(
                lambda: self._recipient or self._refusal or (until_outage and self._outage), timeout_s
            )
            if self._recipient is None and self._refusal is not None:
                raise self._refusal
            self._went_on = self._recipient is None
            return not self._went_on

    def flush(self, timeout_s: float, *, until_outage: bool = False) -> int:
        """Wait until everything is delivered; how many records are left.

        until_outage: give up at the first failure; StudyConflict when that is the name of the study.
        """
        with self._changed:
            if self.pending() and not until_outage:
                self._in_a_hurry = True
                self._changed.notify_all()
            self._waiting += 1
            try:
                self._changed.wait_for(lambda: not self.pending() or (until_outage and self._outage), timeout_s)
            finally:
                self._waiting -= 1
            if until_outage and self._conflict is not None:
                raise self._conflict
            return self.pending()

    def ask(self, question: Callable[[Recipient], _T], *, timeout_s: float) -> _T:
        """Call `question` in the thread, with the store. Raises what it raises.

        StorageError when the store is not open or does not come to it in time. A question that has begun is waited
        for: every request to a store is bounded, and abandoning it would leave unknown what it did.
        """
        answer: Future[_T] = Future()
        with self._changed:
            if self._is_stopping:
                raise StorageError("tracking store: closed; open it again")
            self._asked.append((question, answer))
            self._in_a_hurry = True
            self._changed.notify_all()
        try:
            return answer.result(timeout_s)
        except FutureTimeout:
            if answer.cancel():
                raise StorageError(
                    f"tracking store: no answer within {timeout_s:g} s; check the server or the disk, then repeat"
                ) from None
            return answer.result()

    def restarted_at(self, place: Place) -> None:
        """The journal was written anew: all before `place` is delivered."""
        with self._changed:
            self._place = place
            self._journal.cursor.write(self._journal.identity, place.number)

    def stop(self, timeout_s: float) -> None:
        """End the thread; it finishes the record it is at, or is left behind after `timeout_s`."""
        with self._changed:
            self._is_stopping = True
            self._changed.notify_all()
        self._thread.join(timeout_s)

    def is_alive(self) -> bool:
        return self._thread.is_alive()

    def _first_place(self) -> Place:
        """Where delivery goes on: behind the last record delivered and behind those that need none."""
        place = Place(self._journal.cursor.read(self._journal.identity))
        while (found := self._journal.following(place, 1)) and found[0][0].kind in NEED_NO_DELIVERY:
            place = found[0][1]
        return place

    def _run(self) -> None:
        pause = FIRST_PAUSE_S
        while not self._is_stopping:
            try:
                is_idle = self._step()
            except Exception as error:  # whatever it was, the records behind it must still be delivered
                self._note_outage(error if isinstance(error, StorageError) else StorageError(one_line(error)))
                self._wait(pause)
                pause = min(2 * pause, LONGEST_PAUSE_S)
                continue
            pause = FIRST_PAUSE_S
            if is_idle:
                pause_s = LONGEST_PAUSE_S if not self._journal.unwritten else FIRST_PAUSE_S
                if not self._wait(pause_s, until_work=True) and not self._waiting:
                    self._wait(GATHER_S)
        self._refuse_questions(StorageError("tracking store: closed; open it again"))

    def _step(self) -> bool:
        """Open the store, answer what was asked, deliver one record. True when there was nothing to do."""
        recipient = self._recipient or self._open()
        self._journal.retry()
        while self._asked:
            self._answer(recipient)
        entries, place = self._next()
        if not entries:
            self._note_recovery()
            return not self._sweep(recipient)
        self._deliver_all(recipient, entries)
        self._note_recovery()
        with self._changed:
            self._place = place
            for _ in entries:
                self._ahead.popleft()
            self.delivered += len(entries)
            self._journal.cursor.write(self._journal.identity, place.number)
            self._changed.notify_all()
        self._files.forget(entries)
        return False

    def _next(self) -> tuple[list[Entry], Place]:
        """The next record; of points all that follow one another, so that they take few requests."""
        if not self._ahead or self._ahead[0][1].number <= self._place.number:
            self._ahead = deque(self._journal.following(self._place, _MOST_AT_ONCE))
        elif len(self._ahead) < _MOST_AT_ONCE:
            self._ahead += self._journal.following(self._ahead[-1][1], _MOST_AT_ONCE - len(self._ahead))
        if not self._ahead:
            return [], self._place
        attempts: set[object] = set()
        taken: list[tuple[Entry, Place]] = []
        for each in takewhile(lambda each: each[0].kind == "points", self._ahead):
            attempts.add(each[0].body.get("attempt"))
            if len(attempts) > _ATTEMPTS_AT_ONCE:
                break
            taken.append(each)
        taken = taken or [self._ahead[0]]
        return [entry for entry, _ in taken], taken[-1][1]

    def _deliver_all(self, recipient: Recipient, entries: Sequence[Entry]) -> None:
        """entries: one record, or points. Raises StorageError when they must be tried again."""
        by_attempt: dict[object, list[Entry]] = {}
        for entry in entries:
            by_attempt.setdefault(entry.body.get("attempt"), []).append(entry)
        groups = list(by_attempt.values())
        if len(groups) > 1:
            try:
                recipient.deliver_points([together(group) for group in groups])
                return
            except StorageError:
                raise
            except Exception as error:  # of one of them: which, is found by delivering each by itself
                _log.debug("%d records are delivered one attempt at a time: %s", len(entries), one_line(error))
        for group in groups:
            self._deliver(recipient, group)

    def _deliver(self, recipient: Recipient, group: Sequence[Entry]) -> None:
        """group: one record, or points of one attempt. Raises StorageError when it must be tried again."""
        try:
            recipient.deliver(self._files.here(together(group)))
        except StorageError:
            raise
        except Exception as error:  # a record that no store takes must not hold up the others
            if group[0].kind == "open":
                self._conflict = error if isinstance(error, UsageError) else None
                raise StorageError(one_line(error)) from error
            if len(group) == 1:
                put_aside(self._journal.path.with_name(ASIDE_FILE), group[0], error)
                return
            for entry in group:
                self._deliver(recipient, [entry])

    def _open(self) -> Recipient:
        try:
            recipient = Recipient(self._open_store(), self._journal.identity)
        except Exception as error:
            with self._changed:
                if isinstance(error, UnusableStore) or not isinstance(error, StorageError):
                    self._refusal = error
            if isinstance(error, StorageError):
                raise
            raise StorageError(f"tracking store: cannot be opened ({one_line(error)})") from error
        with self._changed:
            self._recipient, self._outage, self._refusal = recipient, None, None
            self._changed.notify_all()
        return recipient

    def _answer(self, recipient: Recipient) -> None:
        with self._changed:
            question, answer = self._asked.popleft()
        if not answer.set_running_or_notify_cancel():
            return
        try:
            answer.set_result(question(recipient))
        except Exception as error:  # whoever asked hears it
            answer.set_exception(error)

    def _sweep(self, recipient: Recipient) -> bool:
        """Once per process: close what crashed drivers left running. Whether it was done now."""
        if self._swept:
            return False
        self._swept = True
        closed = recipient.store.close_stale(STALE_AFTER_S)
        if closed:
            _log.warning("%d attempts of other studies showed no life for 24 h and are now killed", closed)
        return True

    def _note_outage(self, error: StorageError) -> None:
        with self._changed:
            is_new, self._outage = self._outage is None, error
            is_heard = self._refusal is not None and not self._went_on
            self._changed.notify_all()
        if is_new and not is_heard and not self._is_stopping:
            _log.warning("records cannot be delivered for now and wait in %s: %s", self._journal.path, error)
        if self._recipient is None:
            self._refuse_questions(error)

    def _note_recovery(self) -> None:
        with self._changed:
            was_away, self._outage, self._conflict = self._outage is not None, None, None
        if was_away:
            self._backlog.went_on(self.pending())
            _log.warning("records can be delivered again; %d are now", self.pending())

    def _refuse_questions(self, error: StorageError) -> None:
        while self._asked:
            _, answer = self._asked.popleft()
            if answer.set_running_or_notify_cancel():
                answer.set_exception(error)

    def _wait(self, pause_s: float, *, until_work: bool = False) -> bool:
        """Sleep, unless somebody is in a hurry (True), or until_work and there is a new record."""
        with self._changed:
            self._is_idle = until_work  # before the first look: a record that comes after it wakes this thread
            self._changed.wait_for(
                lambda: self._is_stopping or self._in_a_hurry or (until_work and self.pending() > 0), pause_s
            )
            was_in_a_hurry = self._in_a_hurry
            self._is_idle = self._in_a_hurry = False
        return was_in_a_hurry
