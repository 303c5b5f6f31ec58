"""Records that no store takes, kept in a file beside their journal."""

from __future__ import annotations

import json
import logging
import time
from pathlib import Path

from vsetune.tracking.encoding import one_line, to_json
from vsetune.tracking.journal import Entry

_log = logging.getLogger(__name__)


def put_aside(aside: Path, entry: Entry, error: Exception) -> None:
    """Say once that a record was refused, and keep it as a line of JSON with the reason."""
    _log.error("a record (%s, number %d) cannot be delivered and is kept in %s: %s", entry.kind, entry.number, aside,
               one_line(error))
    line = json.loads(to_json(entry._asdict())) | {"error": one_line(error), "time": time.time()}
    try:
        with open(aside, "a", encoding="utf-8") as stream:
            stream.write(to_json(line) + "\n")
    except OSError as refused:
        _log.error("%s: cannot be written (%s); the record still stands in the journal", aside, refused.strerror)
