"""How a running study is asked to stop: Ctrl-C, SIGTERM, or the loss of Ray; all end the same way."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

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
    """Set once, by a signal or by another thread. reason: one phrase for people; `since`: on the monotonic clock."""

    def __init__(self) -> None:
        self.reason: str | None = None
        self.since = float("inf")
        self._is_listening = False

    @property
    def is_requested(self) -> bool:
        """Somebody wants the study to stop."""
        return self.reason is not None

    def request(self, reason: str) -> None:
        """Ask, from any thread. The first reason counts."""
        if self.reason is None:
            self.reason, self.since = reason, time.monotonic()
        if self._is_listening:
            os.kill(os.getpid(), signal.SIGUSR1)  # Tune's own signal to end its loop after the step at hand

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Inside, Ctrl-C and SIGTERM ask to stop, and a second one raises KeyboardInterrupt at once. Does not nest.

        Only the main thread can listen; elsewhere nothing changes. A signal that came before and was swallowed counts.
        """
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        wanted = {signal.SIGINT: self._asked, signal.SIGTERM: self._asked, signal.SIGUSR1: _nothing}
        before = {number: signal.signal(number, handler) for number, handler in wanted.items()}
        self._is_listening = True
        if _heard:
            self.request(_named(_heard[0]))
        try:
            yield
        finally:
            self._is_listening = False
            for number, handler in before.items():
                signal.signal(number, handler)

    def _asked(self, number: int, frame: FrameType | None) -> None:
        if self.is_requested:
            raise KeyboardInterrupt
        self.request(_named(number))


@contextmanager
def sigterm_handler_kept() -> Iterator[None]:
    """Inside, nobody replaces the handler of SIGTERM.

    Ray puts one of its own in place when it connects. It raises SystemExit wherever the process happens to be, which
    some libraries swallow and others turn into a C++ stack; no setting prevents it.
    """
    original = signal.signal

    def keeping(number: int, handler: Any) -> Any:
        return signal.getsignal(number) if number == signal.SIGTERM else original(number, handler)

    signal.signal = keeping  # type: ignore[assignment]
    try:
        yield
    finally:
        signal.signal = original
        # Below Python, Ray's C++ has taken the signal over all the same; setting ours again puts it back.
        original(signal.SIGTERM, signal.getsignal(signal.SIGTERM))


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


def _nothing(number: int, frame: FrameType | None) -> None:
    """SIGUSR1 would end the process before Tune has put its own handler in place."""
