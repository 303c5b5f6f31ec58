"""Watch for requests to stop that are written to a study's folder (`vsetune study stop`)."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from vsetune.errors import StorageError
from vsetune.records.studies import Studies
from vsetune.storage.foreign_text import one_line
from vsetune.study.stopping import StopRequest

LOOK_EVERY_S = 5.0

_log = logging.getLogger(__name__)


@contextmanager
def stop_watched(
    study: str, stop: StopRequest, *, every_s: float = LOOK_EVERY_S, asked: Callable[[], str | None] | None = None
) -> Iterator[None]:
    """Inside the context, a thread looks for a new request and passes it on to `stop`.

    If the home cannot be read, the thread tries again; this is logged once. asked: reads the last request; None: from
    the study's folder.
    """
    ask = asked or (lambda: Studies().stop_asked(study))
    try:
        known = ask()
    except StorageError:  # an old request may then be followed, which is better than missing a new one
        known = None
    ended = threading.Event()
    watch = threading.Thread(
        target=_watch, args=(study, ask, known, stop, ended, every_s), name="stop-watch", daemon=True
    )
    watch.start()
    try:
        yield
    finally:
        ended.set()
        watch.join(timeout=1.0)


def _watch(
    study: str, ask: Callable[[], str | None], known: str | None, stop: StopRequest, ended: threading.Event,
    every_s: float,
) -> None:
    is_away = False
    while not ended.wait(every_s):
        try:
            request = ask()
        except Exception as error:  # the thread must survive to see a later request
            if not is_away:
                why = error if isinstance(error, StorageError) else f"{type(error).__name__}: {one_line(error)}"
                _log.warning("study %s: requests to stop it (vsetune study stop) are not heard for now: %s", study, why)
            is_away = True
            continue
        if is_away:
            _log.warning("study %s: requests to stop it are heard again", study)
        is_away = False
        if request is not None and request != known:
            stop.request(f"a request in its folder ({request})")
            return
