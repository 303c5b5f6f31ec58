"""Signs of life and the request to stop, exchanged between the driver of a study and its workers."""

from __future__ import annotations

import contextlib
import logging
import signal
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from types import FrameType
from typing import Any

import ray
from ray.exceptions import RayError

_LOOK_EVERY_S = 2.0
_ANSWERS_WITHIN_S = 10.0


class SignalsBoard:
    """The actor. It is empty after a restart: workers report again, and the driver repeats its request."""

    def __init__(self) -> None:
        self._pulses: dict[str, int] = {}
        self._is_stopping = False

    def beat(self, trial: str, pulse: int) -> bool:
        self._pulses[trial] = pulse
        return self._is_stopping

    def pulses(self) -> dict[str, int]:
        return self._pulses

    def stop(self) -> None:
        self._is_stopping = True


class Signals:
    """The driver's side. Ray must be connected; `close` ends the actor. name: of the actor, for workers (`beat`)."""

    def __init__(self) -> None:
        self.name = f"vsetune-signals-{uuid.uuid4().hex}"
        self._actor = ray.remote(num_cpus=0, max_restarts=-1)(SignalsBoard).options(name=self.name).remote()
        self._asked: Any = None

    def ask_to_stop(self) -> None:
        """Requests the stop. Every worker receives the request with its next beat."""
        self._actor.stop.remote()

    def pulses(self) -> Mapping[str, int] | None:
        """The latest pulse by trial; None until the actor answers. Does not wait: each call takes an answer and
        requests the next one."""
        asked, self._asked = self._asked, self._asked or self._actor.pulses.remote()
        if asked is None or not ray.wait([asked], timeout=0)[0]:
            return None
        self._asked = self._actor.pulses.remote()
        try:
            pulses: dict[str, int] = ray.get(asked)
        except RayError:  # the actor restarts, or Ray has died, which `ray_watch` notices
            return None
        return pulses

    def close(self) -> None:
        """Ends the actor, if Ray is still there."""
        if ray.is_initialized():
            with contextlib.suppress(RayError):
                ray.kill(self._actor)


def beat(name: str, trial: str, pulse: int) -> bool:
    """Reports the pulse of a trial from its worker. Returns whether the study stops. pulse: grows while the attempt
    works. name: of the `Signals`.

    Raises Ray's errors while its head or the actor is not available.
    """
    return bool(ray.get(_found(name).beat.remote(trial, pulse), timeout=_ANSWERS_WITHIN_S))


@cache
def _found(name: str) -> Any:
    return ray.get_actor(name)


@dataclass
class _Sign:
    """The last sign of a placed trial. seen: its time, on the driver's clock. pulse: its pulse. is_ended: its worker
    was ended for silence."""

    trial: Any
    seen: float
    pulse: int | None = None
    is_ended: bool = False


class SignsOfLife:
    """Ends the worker of a trial that is silent for too long: it hangs, was stopped, or its machine is gone.

    A sign is a report, or a pulse that has changed. No worker is ended for silence while pulses cannot be read.
    timeout_s: how long a trial may be silent. pulses: see `Signals.pulses`. end: ends the worker of a trial, whose
    death Tune then reports.
    """

    def __init__(
        self, timeout_s: float, pulses: Callable[[], Mapping[str, int] | None], *,
        clock: Callable[[], float] = time.monotonic, end: Callable[[Any], None] | None = None,
    ) -> None:
        self._timeout_s, self._pulses, self._clock = timeout_s, pulses, clock
        self._end = end or _end_worker
        self._signs: dict[str, _Sign] = {}
        self._next_look = 0.0

    @property
    def are_awaited(self) -> bool:
        """Whether some trial is placed and has not ended."""
        return bool(self._signs)

    def started(self, trial: Any) -> None:
        """Notes that a worker has received the trial."""
        self._signs[_name(trial)] = _Sign(trial, self._clock())

    def reported(self, trial: Any) -> None:
        """Notes that a report of the trial has arrived."""
        self._signs.setdefault(_name(trial), _Sign(trial, 0.0)).seen = self._clock()

    def ended(self, trial: Any) -> str | None:
        """Notes that the trial is no longer placed. Returns the reason if its worker was ended for silence."""
        sign = self._signs.pop(_name(trial), None)
        if sign is None or not sign.is_ended:
            return None
        return f"process: no sign of life for {self._timeout_s:g} s (resources.silence_timeout_s), its worker was ended"

    def look(self) -> None:
        """Looks for silent trials, at most every two seconds."""
        now = self._clock()
        if now < self._next_look:
            return
        self._next_look = now + _LOOK_EVERY_S
        pulses = self._pulses()
        if pulses is None:
            return
        for name, sign in self._signs.items():
            pulse = pulses.get(name)
            if pulse != sign.pulse:
                sign.pulse, sign.seen = pulse, now
            if now - sign.seen > self._timeout_s and not sign.is_ended:
                sign.is_ended = True
                self._end(sign.trial)


def _end_worker(trial: Any) -> None:
    actor = trial.temporary_state.ray_actor
    if actor is not None:
        ray.kill(actor)


def _name(trial: Any) -> str:
    return str(trial.config["trial"]["trial"])


LOOK_EVERY_S = 2.0

_log = logging.getLogger(__name__)


class LeaveWatch:
    """Calls `leave`, in a thread of its own or from the signal's handler, when this process will be ended.

    beat: called every `every_s` seconds outside the training's thread; reports that the attempt works, and returns
    whether its study stops.
    """

    def __init__(self, leave: Callable[[], None], *, beat: Callable[[], bool], every_s: float = LOOK_EVERY_S) -> None:
        self._leave, self._beat, self._every_s = leave, beat, every_s
        self._ended = threading.Event()
        self._has_left = self.was_terminated = False

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Watches inside the context; restores the earlier handler of SIGTERM afterwards."""
        thread = threading.Thread(target=self._look, name="vsetune-leaving", daemon=True)
        thread.start()
        before = self._hear_sigterm()
        try:
            yield
        finally:
            self._ended.set()
            if before is not None:
                signal.signal(signal.SIGTERM, before)

    def _hear_sigterm(self) -> Any:
        """Sets the handler of SIGTERM. Returns the earlier one; None if none can be set outside the main thread."""
        if threading.current_thread() is not threading.main_thread():
            return None
        return signal.signal(signal.SIGTERM, self._terminated)

    def _terminated(self, number: int, frame: FrameType | None) -> None:
        self.was_terminated = True
        self._leave()

    def _look(self) -> None:
        while True:
            try:
                is_stopping = self._beat()
            except Exception as error:  # Ray is not available, which the driver notices
                _log.info("no sign of life was sent (%s)", error)
            else:
                if is_stopping and not self._has_left:
                    self._has_left = True
                    self._leave()
            if self._ended.wait(self._every_s):
                return
