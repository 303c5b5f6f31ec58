"""Requests to stop a running study: by Ctrl-C, SIGTERM, another thread, or the loss of Ray. All end the same way."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import Any

SIGNALS = (signal.SIGINT, signal.SIGTERM)
"""Signals that end a command."""
_heard: list[int] = []


def interrupt(number: int, frame: FrameType | None) -> None:
    """Handler of SIGINT and SIGTERM for a whole command: raises KeyboardInterrupt at any point of the process.

    The signal is remembered, since a library that is being imported may swallow the error with a bare `except:`.
    """
    _heard.append(number)
    raise KeyboardInterrupt


def forget_interruptions() -> None:
    """Forgets earlier signals, at the start of a command."""
    _heard.clear()


class StopRequest:
    """A request that is set once, by a signal or by another thread. reason: one phrase to print. since: on the
    monotonic clock. leaves_time: whether trials may first write a checkpoint. signals: those that request it inside
    `listening`; a notebook or a server keeps SIGTERM to itself.
    """

    def __init__(self, signals: Sequence[signal.Signals] = SIGNALS) -> None:
        self.signals = signals
        self.reason: str | None = None
        self.since = float("inf")
        self.leaves_time = True
        self._before: dict[signal.Signals, Any] = {}

    @property
    def is_requested(self) -> bool:
        """Whether the study has been asked to stop."""
        return self.reason is not None

    def request(self, reason: str, *, leaves_time: bool = True) -> None:
        """Requests the stop, from any thread. Only the first reason counts."""
        if self.reason is None:
            self.since, self.leaves_time, self.reason = time.monotonic(), leaves_time, reason

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Inside the context, `signals` request the stop; a second one raises KeyboardInterrupt at once. Does not nest.

        Only the main thread can listen; elsewhere nothing changes. An earlier signal that was swallowed counts.
        """
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = self._before = {number: signal.getsignal(number) for number in SIGNALS}
        self.listen_again()
        if _heard:
            self.request(_named(_heard[0]))
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def listen_again(self) -> None:
        """Sets the handlers again. To be called inside `listening` after Ray has connected, because Ray sets its own
        handler of SIGTERM, which raises SystemExit at any point of the process."""
        if threading.current_thread() is threading.main_thread():
            for number, handler in self._before.items():
                signal.signal(number, self._asked if number in self.signals else handler)

    def _asked(self, number: int, frame: FrameType | None) -> None:
        if self.is_requested:
            raise KeyboardInterrupt
        self.request(_named(number))


@contextmanager
def sigterm_like_ctrl_c() -> Iterator[None]:
    """Inside the context, SIGTERM raises KeyboardInterrupt. Only in the main thread; elsewhere nothing changes."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _named(number: int) -> str:
    return "Ctrl-C" if number == signal.SIGINT else "SIGTERM"
