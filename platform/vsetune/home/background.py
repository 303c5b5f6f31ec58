"""A thread that repeats one step, with growing pauses while a server is away."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from vsetune.errors import StorageError, one_line

_log = logging.getLogger(__name__)
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.5, 30.0


class Repeated:
    """Repeats a step in a thread until it is closed. Whatever error a step raises, it is an outage, and the step is
    repeated after a pause; only an error of the type `final` ends the thread.

    step: returns whether more is left to do at once. what: opens log lines. every_s: pause while nothing is left to do.
    outage, refusal: why the last step failed, and why no further step will be made; None when all is well.
    """

    def __init__(
        self, step: Callable[[], bool], *, name: str, what: str, every_s: float, final: type[StorageError]
    ) -> None:
        self._step, self._what, self._every_s, self._final = step, what, every_s, final
        self._changed = threading.Condition()
        self._is_asked = self._is_closing = False
        self.outage: StorageError | None = None
        self.refusal: StorageError | None = None
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        """Start the thread, unless it has started."""
        if self._thread.ident is None:
            self._thread.start()

    def ask(self) -> None:
        """End the present pause."""
        with self._changed:
            self._is_asked = True
            self._changed.notify_all()

    def wait_for(self, is_reached: Callable[[], bool], within_s: float) -> None:
        """Return when a step has reached this, when no further step will be made, or after `within_s`."""
        with self._changed:
            self._changed.wait_for(lambda: is_reached() or self.refusal is not None, within_s)

    def close(self, within_s: float) -> None:
        """End the thread; a step that takes longer than `within_s` is left behind."""
        with self._changed:
            self._is_closing = True
            self._changed.notify_all()
        if self._thread.is_alive():
            self._thread.join(within_s)

    def _run(self) -> None:
        pause = _FIRST_PAUSE_S
        while not self._is_closing and self.refusal is None:
            self._is_asked = False
            try:
                is_more = self._step()
            except self._final as error:
                _log.warning("%s: not sent: %s", self._what, error)
                self._note(error, refusal=error)
            except Exception as error:
                if self.outage is None:
                    _log.warning("%s: not sent for now, training goes on: %s", self._what, error)
                self._note(error if isinstance(error, StorageError) else StorageError(one_line(repr(error))))
                self._pause(pause)
                pause = min(2 * pause, _LONGEST_PAUSE_S)
            else:
                if self.outage is not None:
                    _log.warning("%s: answers again", self._what)
                self._note(None)
                pause = _FIRST_PAUSE_S
                if not is_more:
                    self._pause(self._every_s)

    def _note(self, outage: StorageError | None, *, refusal: StorageError | None = None) -> None:
        with self._changed:
            self.outage, self.refusal = outage, refusal
            self._changed.notify_all()

    def _pause(self, seconds: float) -> None:
        with self._changed:
            self._changed.wait_for(lambda: self._is_asked or self._is_closing, seconds)
