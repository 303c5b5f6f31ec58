"""What a worker's log warns of its data, for the driver to tell: nobody reads the log of a worker."""

from __future__ import annotations

import logging
from collections import deque

_OF_DATA = ("vsetune.data", "vsetune.object_storage.node_cache", "vsetune.object_storage.kept_objects")
_MOST = 20


class HeardWarnings(logging.Handler):
    """Listens from when it is made until it is closed; of many warnings the last are kept."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self._heard: deque[str] = deque(maxlen=_MOST)
        for name in _OF_DATA:
            logging.getLogger(name).addHandler(self)

    def emit(self, record: logging.LogRecord) -> None:
        self._heard.append(record.getMessage())
        if logging.lastResort is not None and not logging.getLogger().handlers:  # as if nobody listened
            logging.lastResort.handle(record)

    def take(self) -> list[str]:
        """Those since the last call, oldest first."""
        return [self._heard.popleft() for _ in range(len(self._heard))]

    def close(self) -> None:
        for name in _OF_DATA:
            logging.getLogger(name).removeHandler(self)
        super().close()
