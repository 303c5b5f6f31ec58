"""A driver hears of requests to stop that were left in its tracking store (`vsetune study stop`)."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from vsetune.config.spec.foreign_text import one_line
from vsetune.errors import StorageError, UnusableStore, UsageError
from vsetune.jobs.stopping import StopRequest
from vsetune.tracking.opening import is_memory
from vsetune.tracking.study_state import StudyStates, open_states

LOOK_EVERY_S = 5.0
_FIRST_LOOK_S = 5.0

_log = logging.getLogger(__name__)


@contextmanager
def stop_watched(
    study: str, uri: str, stop: StopRequest, *, is_new: bool = False, every_s: float = LOOK_EVERY_S
) -> Iterator[None]:
    """Inside, a thread looks for a request that came after it started and passes it on to `stop`.

    uri: the tracking store of the study. One that is away is asked again, which is said once; one in memory is not
    asked. is_new: the study began with this driver, so any request is for it. Returns once the first question is
    answered, or has failed, or has taken a few seconds.
    """
    if is_memory(uri):
        yield
        return
    watch = _StopWatch(study, lambda: open_states(uri), stop, is_new=is_new)
    looked, ended = threading.Event(), threading.Event()
    thread = threading.Thread(target=watch.run, args=(looked, ended, every_s), name="stop-watch", daemon=True)
    thread.start()
    looked.wait(_FIRST_LOOK_S)
    try:
        yield
    finally:
        ended.set()
        thread.join(timeout=1.0)


class _StopWatch:
    """What stands in the store at first is an old request: it was followed, or came for an earlier driver."""

    def __init__(
        self, study: str, open_them: Callable[[], StudyStates], stop: StopRequest, *, is_new: bool
    ) -> None:
        self._study, self._open, self._stop, self._is_new = study, open_them, stop, is_new
        self._states: StudyStates | None = None
        self._known: str | None = None
        self._is_away = False

    def run(self, looked: threading.Event, ended: threading.Event, every_s: float) -> None:
        while not ended.is_set() and not self._has_heard():
            looked.set()
            ended.wait(every_s)

    def _has_heard(self) -> bool:
        """Looks once, and passes on what is new. Never raises: the next look may be the one that matters."""
        try:
            asked = self._asked()
        except Exception as error:
            self._note(error)
            return False
        if self._is_away:
            _log.warning("study %s: requests to stop it are heard again", self._study)
        self._is_away = False
        if asked is None or asked == self._known:
            return False
        self._stop.request(f"a request in the tracking store ({asked})")
        return True

    def _asked(self) -> str | None:
        if self._states is None:
            states = self._open()
            if not self._is_new:
                self._known = states.stop_asked(self._study)
            self._states = states
        return self._states.stop_asked(self._study)

    def _note(self, error: Exception) -> None:
        """Once for an outage. A study that has not reached its store yet is none: what is asked of it later is new.
        Nor is a store that nobody can use: it ends the study."""
        if isinstance(error, UnusableStore):
            return
        if isinstance(error, UsageError) and not isinstance(error, StorageError):
            _log.debug("stop watch of %s: %s", self._study, error)
            self._is_new = True
            return
        if not self._is_away:
            _log.warning("study %s: requests to stop it (vsetune study stop) are not heard for now: %s", self._study,
                         error if isinstance(error, StorageError) else f"{type(error).__name__}: {one_line(error)}")
        self._is_away = True
