"""A driver hears of requests to stop that were left in its tracking store (`vsetune study stop`)."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from vsetune.errors import StorageError, UsageError
from vsetune.jobs.stopping import StopRequest
from vsetune.tracking.study_state import StudyStates, open_states

LOOK_EVERY_S = 5.0
_FIRST_LOOK_S = 5.0

_log = logging.getLogger(__name__)


@contextmanager
def stop_watched(study: str, uri: str, stop: StopRequest, *, every_s: float = LOOK_EVERY_S) -> Iterator[None]:
    """Inside, a thread looks for a request that came after it started and passes it on to `stop`.

    uri: the tracking store of the study. One that is away is asked again; one in memory is not asked. Returns once the
    first question is answered, or has failed, or has taken a few seconds.
    """
    if uri.startswith("memory:"):
        yield
        return
    looked, ended = threading.Event(), threading.Event()
    watch = threading.Thread(
        target=_watch, args=(study, lambda: open_states(uri), stop, looked, ended, every_s), name="stop-watch",
        daemon=True,
    )
    watch.start()
    looked.wait(_FIRST_LOOK_S)
    try:
        yield
    finally:
        ended.set()
        watch.join(timeout=1.0)


def _watch(
    study: str, open_them: Callable[[], StudyStates], stop: StopRequest, looked: threading.Event,
    ended: threading.Event, every_s: float,
) -> None:
    """The request that stands there at first is an old one: it was followed, or came for an earlier driver."""
    states: StudyStates | None = None
    known: str | None = None
    while not ended.is_set():
        try:
            if states is None:
                opened = open_them()
                known, states = opened.stop_asked(study), opened
            asked = states.stop_asked(study)
            if asked is not None and asked != known:
                stop.request(f"a request in the tracking store ({asked})")
                return
        except (StorageError, UsageError) as error:  # away, or the study has not reached it yet
            _log.debug("stop watch of %s: %s", study, error)
        looked.set()
        ended.wait(every_s)
