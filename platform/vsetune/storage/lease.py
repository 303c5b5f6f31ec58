"""Mutual exclusion among all machines: a lease is an object that its holder rewrites every few seconds.

An object that was not written for longer than its holder promised can be taken over by a conditional write, so only one
of several processes succeeds. Its age is measured by the server: the time of its last write and the time of the answer
both come from the server's clock, so the clocks of the machines do not matter. A holder that cannot renew in time (a
paused process, a network split) loses the lease until a renewal succeeds, measured by a clock that runs on while the
machine sleeps.

A lease whose holder was a process of this machine that no longer exists is taken over at once.
"""

from __future__ import annotations

import json
import logging
import os
import socket
import threading
import time
import uuid
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from vsetune.errors import DataError, Problem, StorageError, StudyConflict, one_line
from vsetune.storage.s3 import ObjectChanged, ObjectState, find, put_bytes

_log = logging.getLogger(__name__)
LEASE_S, BEAT_S = 60.0, 15.0
_MARGIN_S = 5.0
"""A holder that did not renew stops this long before other processes may take over."""
_MOST_BYTES = 1 << 16


class LeaseLost(StorageError):
    """Another process holds the lease now; a further write of this one would overwrite that process's work."""


@dataclass(frozen=True)
class Holder:
    """The holder of a lease. owner: a new name for every take. machine: boot and process-id namespace, which show
    whether `pid` is a process here. started: start of the process, in clock ticks since the boot. beat: counts
    renewals. promised_s: how long the lease lasts after a renewal. is_released: the holder has given it up."""

    owner: str
    host: str
    pid: int
    machine: str
    started: int
    beat: int = 0
    promised_s: float = LEASE_S
    is_released: bool = False

    def is_gone(self) -> bool:
        """Whether it was a process of this machine that no longer exists."""
        return self.machine == _machine() != "" and _started(self.pid) != self.started

    def may_live(self, age_s: float | None) -> bool:
        """Whether the holder may still be at work. age_s: seconds since its renewal, None if unknown; the server gives
        times in whole seconds."""
        if self.is_released or self.is_gone():
            return False
        return age_s is None or age_s <= self.promised_s + 1.0


class Lease:
    """A lease that this process holds. on_lost: called once, from the thread that renews it, with the reason."""

    def __init__(
        self, url: str, what: str, *, on_lost: Callable[[str], None], promised_s: float = LEASE_S,
        beat_s: float = BEAT_S,
    ) -> None:
        """Take the lease. what: what it is for; opens the messages. StudyConflict in one line while another process
        holds it."""
        self._url, self._what, self._on_lost, self._beat_s = url, what, on_lost, beat_s
        self._me = Holder(uuid.uuid4().hex, socket.gethostname(), os.getpid(), _machine(), _started(os.getpid()),
                          promised_s=promised_s)
        self._lock = threading.RLock()
        self._holds_until, self._lost = 0.0, ""
        self._etag = self._take()
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._beats, name="lease", daemon=True)
        self._thread.start()

    def check(self) -> None:
        """Call before every write that only the holder may make. Renews if the lease was not renewed in time.

        LeaseLost when another process has it, StorageError while that cannot be determined.
        """
        if self._lost or _clock() > self._holds_until:
            self._renew()

    def release(self) -> None:
        """Give up the lease, so that the next process need not wait."""
        self._ending.set()
        self._thread.join(self._beat_s)
        with self._lock, suppress(StorageError):
            if not self._lost:
                self._write(Holder(**{**asdict(self._me), "beat": self._me.beat + 1, "is_released": True}), self._etag)

    def _take(self) -> str:
        begin = _clock()
        try:
            etag = put_bytes(self._url, _bytes_of(self._me), if_absent=True)
        except ObjectChanged:
            holder, state = _read(self._url)
            self._require_free(holder, state)
            try:
                etag = self._write(self._me, state.etag)
            except ObjectChanged as error:
                raise StudyConflict(
                    "VSE-O045", "{name}: another process has just started it; wait for it", name=self._what
                ) from error
            if not holder.is_released:
                _log.warning("%s: took over from %s, process %s, which is gone", self._what, holder.host, holder.pid)
        self._holds_until = begin + self._me.promised_s - _MARGIN_S
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
        """Renew until the end. An obstacle is logged once, and its end once."""
        is_beating = True
        while not self._ending.wait(self._beat_s):
            try:
                self._renew()
                if not is_beating:
                    _log.warning("%s: the heartbeat is written again", self._what)
                is_beating = True
            except LeaseLost as error:
                self._on_lost(str(error))
                return
            except Exception as error:  # whatever the error: without a heartbeat another machine takes the lease
                reason = error if isinstance(error, StorageError) else f"{type(error).__name__}: {one_line(error)}"
                if is_beating:
                    _log.warning("%s: the heartbeat is not written for now: %s", self._what, reason)
                is_beating = False

    def _renew(self) -> None:
        with self._lock:
            if self._lost:
                raise LeaseLost(self._lost)
            begin = _clock()
            following = Holder(**{**asdict(self._me), "beat": self._me.beat + 1})
            self._etag = self._write(following, self._etag)
            self._me, self._holds_until = following, begin + following.promised_s - _MARGIN_S

    def _write(self, holder: Holder, etag: str) -> str:
        """Write over the version with this ETag; returns the new ETag. ObjectChanged while taking, LeaseLost once held.
        """
        try:
            return put_bytes(self._url, _bytes_of(holder), if_match=etag)
        except ObjectChanged:
            there, state = _read(self._url)
            if there.owner == self._me.owner:  # the answer to an earlier beat was lost
                return put_bytes(self._url, _bytes_of(holder), if_match=state.etag)
            if holder.beat == 0:
                raise
            self._lost = Problem.of(
                "VSE-O046", "{name}: {host}, process {pid}, has taken it over; this process stops", name=self._what,
                host=there.host, pid=there.pid,
            )
            raise LeaseLost(self._lost) from None


def holder_of(url: str) -> tuple[Holder, float | None] | None:
    """The holder of the lease at this address and the seconds since its renewal; None if it is free.

    StorageError when it cannot be read.
    """
    found = find(url, most=_MOST_BYTES)
    if found is None:
        return None
    holder, state = _read(url)
    return None if holder.is_released else (holder, _age_s(state))


def _read(url: str) -> tuple[Holder, ObjectState]:
    try:
        found = find(url, most=_MOST_BYTES)
        if found is None:
            raise StorageError("VSE-O047", "{url}: the lease was removed while it was used; start again", url=url)
        return Holder(**json.loads(found[0])), found[1]
    except (DataError, ValueError, TypeError, RecursionError) as error:
        raise StorageError(
            "VSE-O048", "{url}: damaged lease ({reason}); remove it if nothing runs", url=url, reason=one_line(error)
        ) from error


def _age_s(state: ObjectState) -> float | None:
    """Seconds since the last write, by the server's clock."""
    return None if state.now is None else (state.now - state.modified).total_seconds()


def _bytes_of(holder: Holder) -> bytes:
    return json.dumps(asdict(holder), indent=1).encode()


def _clock() -> float:
    """Seconds of a clock that also runs while the machine sleeps."""
    return time.clock_gettime(time.CLOCK_BOOTTIME) if hasattr(time, "CLOCK_BOOTTIME") else time.monotonic()


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
