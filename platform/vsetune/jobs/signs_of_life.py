"""Ends trials without a sign of life: a worker hangs or was stopped (perhaps as it starts), or a machine is gone."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import ray
from ray.experimental import internal_kv

from vsetune.config.spec.paths import home
from vsetune.training.executions import PROGRESS_FILE

_LOOK_EVERY_S = 2.0
_TELL_LATEST_S = 30.0
_NAMESPACE = b"vsetune-signs"


@dataclass
class _Sign:
    """The last sign of one trial: `seen` on our clock, `mark` as its file had it (its clock does not matter)."""

    trial: Any
    seen: float
    mark: int | None = None
    told: bytes | None = None
    pid: int | None = None
    actor: Any = None  # of a worker that is being made
    is_ended: bool = False


class SignsOfLife:
    """A sign is a report, or that a working attempt moves its marker, which it does every 5 s.

    There are two markers, since nodes need not see one folder and Ray may be away: the file in the trial's folder, and
    a number in Ray's own store (`tell_sign`), looked at where the file has not moved for a while.
    timeout_s: how long a trial may be silent. end: how its worker is ended, told the trial, the actor if it is being
    made, and the process if it is known; Tune then reports its death. told: what a trial last told Ray's store.
    """

    def __init__(
        self, timeout_s: float, *, clock: Callable[[], float] = time.monotonic,
        end: Callable[[Any, Any, int | None], None] | None = None,
        told: Callable[[str], bytes | None] | None = None,
    ) -> None:
        self._timeout_s, self._clock, self._end, self._told = timeout_s, clock, end or end_worker, told or told_sign
        self._signs: dict[str, _Sign] = {}
        self._next_look = 0.0

    def started(self, trial: Any) -> None:
        """A worker has the trial now."""
        self._signs[_name(trial)] = _Sign(trial, self._clock(), _mark(trial))

    def reported(self, trial: Any, report: Mapping[str, Any]) -> None:
        """A report arrived. pid and hostname of the worker are in it."""
        sign = self._signs.setdefault(_name(trial), _Sign(trial, 0.0))
        sign.seen = self._clock()
        if report.get("hostname") == socket.gethostname():
            sign.pid = report.get("pid")

    def ended(self, trial: Any) -> str | None:
        """The trial is no longer placed. The reason, if it was ended here for its silence."""
        sign = self._signs.pop(_name(trial), None)
        if sign is None or not sign.is_ended:
            return None
        return f"process: no sign of life for {self._timeout_s:g} s (resources.silence_timeout_s), its worker was ended"

    def making(self, actors: Iterable[tuple[Any, Any]]) -> None:
        """The trials whose workers Ray is making now, with their actors: it has the resources, the process starts."""
        in_making = {_name(trial): (trial, actor) for trial, actor in actors}
        for name in [name for name, sign in self._signs.items() if sign.actor is not None and name not in in_making]:
            del self._signs[name]
        for name, (trial, actor) in in_making.items():
            if name not in self._signs:
                self._signs[name] = _Sign(trial, self._clock(), _mark(trial), actor=actor)

    def look(self) -> None:
        """Every now and then: who has been silent for too long?"""
        now = self._clock()
        if now < self._next_look:
            return
        self._next_look = now + _LOOK_EVERY_S
        for sign in self._signs.values():
            mark = _mark(sign.trial)
            if mark != sign.mark:
                sign.mark, sign.seen = mark, now
            elif now - sign.seen > min(self._timeout_s / 4, _TELL_LATEST_S):
                told = self._told(_name(sign.trial))
                if told != sign.told:
                    sign.told, sign.seen = told, now
            if now - sign.seen > self._timeout_s and not sign.is_ended:
                sign.is_ended = True
                self._end(sign.trial, sign.actor, sign.pid)


def tell_sign(trial: str, pulse: int) -> None:
    """From the worker of a trial: it lives if this number grows. Kept by Ray's head as long as the job runs."""
    if ray.is_initialized():
        internal_kv._internal_kv_put(_key(trial), str(pulse).encode(), namespace=_NAMESPACE)


def told_sign(trial: str) -> bytes | None:
    """What `tell_sign` last told of a trial of this job."""
    if not ray.is_initialized():
        return None
    found: bytes | None = internal_kv._internal_kv_get(_key(trial), namespace=_NAMESPACE)
    return found


def _key(trial: str) -> bytes:
    return f"{ray.get_runtime_context().get_job_id()}/{trial}".encode()


def end_worker(trial: Any, actor: Any, pid: int | None) -> None:
    """Ends the process of a trial's actor. pid: if it runs on this machine; a stopped process obeys nothing else."""
    actor = actor or trial.temporary_state.ray_actor
    if actor is not None:
        ray.kill(actor)
    if pid is not None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGKILL)


def _name(trial: Any) -> str:
    return str(trial.config["trial"]["trial"])


def _mark(trial: Any) -> int | None:
    try:
        return (home() / str(trial.config["folder"]) / PROGRESS_FILE).stat().st_mtime_ns
    except OSError:  # not there yet, or its disk is away: no sign
        return None
