"""How a running study is asked to stop: Ctrl-C, SIGTERM, or the loss of Ray; all end the same way."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

_SIGNALS = (signal.SIGINT, signal.SIGTERM)
_heard: list[int] = []


def interrupt(number: int, frame: FrameType | None) -> None:
    """Handler of SIGINT and SIGTERM for a whole command: KeyboardInterrupt, wherever the process happens to be.

    It is remembered, since a library that is being imported may swallow it with a bare `except:`.
    """
    _heard.append(number)
    raise KeyboardInterrupt


def forget_interruptions() -> None:
    """At the start of a command."""
    _heard.clear()


class StopRequest:
    """Set once, by a signal or by another thread. reason: one phrase for people; `since`: on the monotonic clock.

    leaves_time: whether trials may first leave with a checkpoint.
    """

    def __init__(self) -> None:
        self.reason: str | None = None
        self.since = float("inf")
        self.leaves_time = True

    @property
    def is_requested(self) -> bool:
        """Somebody wants the study to stop."""
        return self.reason is not None

    def request(self, reason: str, *, leaves_time: bool = True) -> None:
        """Ask, from any thread. The first reason counts."""
        if self.reason is None:
            self.since, self.leaves_time, self.reason = time.monotonic(), leaves_time, reason

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Inside, Ctrl-C and SIGTERM ask to stop, and a second one raises KeyboardInterrupt at once. Does not nest.

        Only the main thread can listen; elsewhere nothing changes. A signal that came before and was swallowed counts.
        """
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = {number: signal.getsignal(number) for number in _SIGNALS}
        self.listen_again()
        if _heard:
            self.request(_named(_heard[0]))
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def listen_again(self) -> None:
        """Inside `listening`, after Ray has connected: Ray has set its own handler of SIGTERM, which raises SystemExit
        wherever the process happens to be."""
        if threading.current_thread() is threading.main_thread():
            for number in _SIGNALS:
                signal.signal(number, self._asked)

    def _asked(self, number: int, frame: FrameType | None) -> None:
        if self.is_requested:
            raise KeyboardInterrupt
        self.request(_named(number))


@contextmanager
def sigterm_like_ctrl_c() -> Iterator[None]:
    """Inside, SIGTERM raises KeyboardInterrupt. Only in the main thread; elsewhere nothing changes."""
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
