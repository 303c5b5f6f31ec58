"""What can be seen of a running study from outside: rows of its tracking database and files in its home folder."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

_STATUSES = (
    "SELECT s.value, COUNT(*) FROM tags s JOIN tags k ON k.run_uuid = s.run_uuid "
    "AND k.key = 'vsetune.kind' AND k.value = 'attempt' WHERE s.key = 'status' GROUP BY s.value"
)


@dataclass(frozen=True)
class Sight:
    """attempts: ever opened. points: validations recorded. closed: attempts finished or pruned. checkpoint: when the
    newest checkpoint was written, in ns. has_database: the tracking database is there.
    """

    attempts: int = 0
    points: int = 0
    closed: int = 0
    checkpoint: int = 0
    has_database: bool = False


class Watch:
    """Looks again and again; a database that cannot be read now is as it was at the last look."""

    def __init__(self, database: Path, home: Path) -> None:
        self._database, self._home = database, home
        self._last = Sight()

    def look(self) -> Sight:
        statuses, points = self._rows()
        self._last = Sight(
            attempts=sum(statuses.values()), points=points,
            closed=statuses.get("finished", 0) + statuses.get("pruned", 0), checkpoint=self._newest_checkpoint(),
            has_database=self._database.exists(),
        )
        return self._last

    def _rows(self) -> tuple[dict[str, int], int]:
        """Attempts by status and points. A database that is just being made is left alone."""
        before = {"known": self._last.attempts - self._last.closed, "finished": self._last.closed}
        if not self._database.exists() or self._database.stat().st_size == 0:
            return before, self._last.points
        try:
            with closing(sqlite3.connect(f"file:{self._database}?mode=ro", uri=True, timeout=0.2)) as connection:
                points = connection.execute("SELECT COUNT(*) FROM metrics WHERE key = 'm_recall'").fetchone()[0]
                return dict(connection.execute(_STATUSES).fetchall()), int(points)
        except sqlite3.Error:
            return before, self._last.points

    def _newest_checkpoint(self) -> int:
        newest = self._last.checkpoint
        for path in self._home.glob("runs/*/trials/*/checkpoint.pt"):
            try:
                newest = max(newest, path.stat().st_mtime_ns)
            except OSError:  # its trial ended between the two calls
                continue
        return newest
