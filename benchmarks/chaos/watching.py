"""What can be seen of a running study from outside: its log and the files in its home folder."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from vsetune.errors import StorageError
from vsetune.records.log import LOG_FILE, lines_of
from vsetune.records.state import StudyState


@dataclass(frozen=True)
class Sight:
    """attempts: ever opened. points: validations recorded. closed: attempts finished or pruned. checkpoint: when the
    newest checkpoint was written, in ns.
    """

    attempts: int = 0
    points: int = 0
    closed: int = 0
    checkpoint: int = 0


class Watch:
    """Looks again and again; a log that cannot be read now is as it was at the last look."""

    def __init__(self, home: Path, study: str) -> None:
        self._log, self._home = home / "runs" / study / LOG_FILE, home
        self._state, self._end = StudyState(), 0
        self._checkpoint = 0

    def look(self) -> Sight:
        try:
            for line in lines_of(self._log, self._end):
                self._state.read(line)
                self._end = line.end
        except StorageError:
            pass
        attempts = self._state.attempts.values()
        self._checkpoint = self._newest_checkpoint()
        return Sight(
            attempts=len(attempts), points=sum(len(each.curve) for each in attempts),
            closed=sum(each.status in ("finished", "pruned") for each in attempts), checkpoint=self._checkpoint,
        )

    def _newest_checkpoint(self) -> int:
        newest = self._checkpoint
        for path in self._home.glob("runs/*/trials/*/checkpoint.pt"):
            try:
                newest = max(newest, path.stat().st_mtime_ns)
            except OSError:  # its trial ended between the two calls
                continue
        return newest
