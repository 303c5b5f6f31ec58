"""A small object that a living process rewrites every few seconds, so that no second one starts the same work.

It refuses a second start, and asks a process that was taken over to stop. It cannot rule out that two work at once:
what counts is decided where results are stored, of a study by the next object of its log.

An object that was not written for longer than its process promised can be taken over by a conditional write. Its age is
measured by the server: the time of its last write and the time of the answer both come from the server's clock, so the
clocks of the machines do not matter. A process of this machine that no longer exists is succeeded at once.
"""

from __future__ import annotations

import json
import logging
import os
import socket
import threading
import uuid
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from vsetune.errors import DataError, Overtaken, Problem, StorageError, StudyConflict, one_line
from vsetune.home.s3 import ObjectChanged, ObjectState, find, put_bytes

_log = logging.getLogger(__name__)
PROMISED_S, BEAT_S = 60.0, 15.0
_MOST_BYTES = 1 << 16


@dataclass(frozen=True)
class Holder:
    """The process at work. owner: a new name for every start. machine: boot and process-id namespace, which show
    whether `pid` is a process here. started: start of the process, in clock ticks since the boot. beat: counts the
    writes. promised_s: the longest time to the next one. is_released: its work is over."""

    owner: str
    host: str
    pid: int
    machine: str
    started: int
    beat: int = 0
    promised_s: float = PROMISED_S
    is_released: bool = False

    def is_gone(self) -> bool:
        """Whether it was a process of this machine that no longer exists."""
        return self.machine == _machine() != "" and _started(self.pid) != self.started

    def may_live(self, age_s: float | None) -> bool:
        """Whether it may still be at work. age_s: seconds since its last beat, None if unknown; the server gives times
        in whole seconds."""
        if self.is_released or self.is_gone():
            return False
        return age_s is None or age_s <= self.promised_s + 1.0


class Heartbeat:
    """The heartbeat of this process, written by a thread of its own. on_lost: called once, from this thread, with the
    reason, when another process has taken over."""

    def __init__(
        self, url: str, what: str, *, on_lost: Callable[[str], None], promised_s: float = PROMISED_S,
        beat_s: float = BEAT_S,
    ) -> None:
        """what: the work; opens the messages. StudyConflict in one line while another process may be at it."""
        self._url, self._what, self._on_lost, self._beat_s = url, what, on_lost, beat_s
        self._me = Holder(uuid.uuid4().hex, socket.gethostname(), os.getpid(), _machine(), _started(os.getpid()),
                          promised_s=promised_s)
        self._etag = self._begin()
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._beats, name="heartbeat", daemon=True)
        self._thread.start()

    def check(self) -> None:
        """Overtaken when another process has taken over, StorageError while that cannot be determined."""
        there, _ = _read(self._url)
        if there.owner != self._me.owner:
            raise self._overtaken(there)

    def release(self) -> None:
        """End it, so that the next process need not wait."""
        self._ending.set()
        self._thread.join(self._beat_s)
        with suppress(StorageError):
            self._write(replace(self._me, is_released=True))

    def _begin(self) -> str:
        try:
            return put_bytes(self._url, _bytes_of(self._me), if_absent=True)
        except ObjectChanged:
            holder, state = _read(self._url)
        self._require_free(holder, state)
        try:
            etag = put_bytes(self._url, _bytes_of(self._me), if_match=state.etag)
        except ObjectChanged as error:
            raise StudyConflict(
                "VSE-O045", "{name}: another process has just started it; wait for it", name=self._what
            ) from error
        if not holder.is_released:
            _log.warning("%s: took over from %s, process %s, which is gone", self._what, holder.host, holder.pid)
        return etag

    def _require_free(self, holder: Holder, state: ObjectState) -> None:
        age = _age_s(state)
        if holder.may_live(age):
            heard = "unknown when" if age is None else f"{age:.0f} s ago"
            raise StudyConflict(
                "VSE-O044", "{name}: runs on {host} as process {pid}, last heartbeat {heard}; stop it there, or if "
                "that machine is gone, repeat when its heartbeat is {promised_s:.0f} s old", name=self._what,
                host=holder.host, pid=holder.pid, heard=heard, promised_s=holder.promised_s,
            )

    def _beats(self) -> None:
        """Write until the end. An obstacle is logged once, and its end once."""
        is_beating = True
        while not self._ending.wait(self._beat_s):
            try:
                self._write(self._me)
                if not is_beating:
                    _log.warning("%s: the heartbeat is written again", self._what)
                is_beating = True
            except Overtaken as error:
                self._on_lost(str(error))
                return
            except Exception as error:  # whatever the error: without a heartbeat another machine takes over
                reason = error if isinstance(error, StorageError) else f"{type(error).__name__}: {one_line(error)}"
                if is_beating:
                    _log.warning("%s: the heartbeat is not written for now: %s", self._what, reason)
                is_beating = False

    def _write(self, holder: Holder) -> None:
        """Write the next beat over the last one. Overtaken when another process's is there."""
        self._me = replace(holder, beat=self._me.beat + 1)
        try:
            self._etag = put_bytes(self._url, _bytes_of(self._me), if_match=self._etag)
        except ObjectChanged:
            there, state = _read(self._url)
            if there.owner != self._me.owner:
                raise self._overtaken(there) from None
            self._etag = put_bytes(self._url, _bytes_of(self._me), if_match=state.etag)  # an answer was lost

    def _overtaken(self, there: Holder) -> Overtaken:
        return Overtaken(Problem.of(
            "VSE-O046", "{name}: {host}, process {pid}, has taken it over; this process stops", name=self._what,
            host=there.host, pid=there.pid,
        ))


def holder_of(url: str) -> tuple[Holder, float | None] | None:
    """The process with this heartbeat and the seconds since its last beat; None if nobody is at work.

    StorageError when it cannot be read.
    """
    found = _found(url)
    return None if found is None or found[0].is_released else (found[0], _age_s(found[1]))


def _read(url: str) -> tuple[Holder, ObjectState]:
    found = _found(url)
    if found is None:
        raise StorageError("VSE-O047", "{url}: the heartbeat was removed while it was used; start again", url=url)
    return found


def _found(url: str) -> tuple[Holder, ObjectState] | None:
    try:
        found = find(url, most=_MOST_BYTES)
        return None if found is None else (Holder(**json.loads(found[0])), found[1])
    except (DataError, ValueError, TypeError, RecursionError) as error:
        raise StorageError(
            "VSE-O048", "{url}: damaged heartbeat ({reason}); remove it if nothing runs", url=url,
            reason=one_line(error),
        ) from error


def _age_s(state: ObjectState) -> float | None:
    """Seconds since the last write, by the server's clock."""
    return None if state.now is None else (state.now - state.modified).total_seconds()


def _bytes_of(holder: Holder) -> bytes:
    return json.dumps(asdict(holder), indent=1).encode()


def _machine() -> str:
    """This boot of this machine and its process-id namespace; empty where that cannot be determined."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{boot} {os.readlink('/proc/self/ns/pid')}"
    except OSError:
        return ""


def _started(pid: int) -> int:
    """When a process of this machine started, in ticks since the boot; -1 if it does not exist or has ended."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return -1 if fields[0] in ("Z", "X") else int(fields[19])
    except (OSError, ValueError, IndexError):
        return -1
