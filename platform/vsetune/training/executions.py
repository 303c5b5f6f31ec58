"""How often a trial was started, and how much work its earlier executions lost.

Two small files stand beside the checkpoint. `executions.json` changes once per execution. `progress.json` is a marker
that the running execution updates every few seconds. If the execution dies, the next one reads from it how much work
beyond the checkpoint was lost. The marker contains the number of its execution, so no loss is counted twice.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated, TypeVar
from uuid import uuid4

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from vsetune.errors import DamagedCheckpoint, DataError, one_line
from vsetune.home.whole_files import read_json, write_json

EXECUTIONS_FILE = "executions.json"
PROGRESS_FILE = "progress.json"
MARK_EVERY_S = 5.0
_MOST = 2**53


Count = Annotated[int, Field(ge=0, le=_MOST)]
Seconds = Annotated[float, Field(ge=0, le=_MOST)]


class _Record(BaseModel):
    model_config = ConfigDict(strict=True, frozen=True, extra="forbid")


class Execution(_Record):
    """One execution of a trial. number: 1 is the first.

    wasted_pairs, wasted_seconds: trained by all earlier executions together after their last checkpoint, hence lost;
    they may lack up to MARK_EVERY_S seconds of each execution, but no work before its last validation. mark: a random
    text. Two processes that write the same number thus write different files.
    """

    number: Count
    wasted_pairs: Count
    wasted_seconds: Seconds
    mark: str = ""


class _Marker(_Record):
    number: Count
    pairs: Count
    seconds: Seconds


_NONE = Execution(number=0, wasted_pairs=0, wasted_seconds=0.0)


class ExecutionLog:
    """The two files of one folder. Only one process at a time may use it."""

    def __init__(self, folder: Path) -> None:
        self._executions = folder / EXECUTIONS_FILE
        self._progress = folder / PROGRESS_FILE
        self._next_mark = 0.0
        self.current = _NONE

    def begin(self, *, kept_pairs: int, kept_seconds: float, recorded: int = 0) -> Execution:
        """Count a new execution, which continues from a checkpoint with kept_pairs pairs and kept_seconds of work.

        recorded: number of executions recorded elsewhere; the folder may have been lost since. DamagedCheckpoint when
        one of the files differs from what was written to it.
        """
        earlier = _read(self._executions, Execution) or _NONE
        lost_pairs, lost_seconds = self._lost(earlier.number, kept_pairs, kept_seconds)
        self.current = Execution(
            number=max(earlier.number, recorded) + 1,
            wasted_pairs=earlier.wasted_pairs + lost_pairs,
            wasted_seconds=earlier.wasted_seconds + lost_seconds,
            mark=uuid4().hex[:8],
        )
        write_json(self._executions, self.current.model_dump(), durable=True)
        return self.current

    def mark(self, *, pairs: int, seconds: float, now: bool = False) -> None:
        """Record how far the training is; writes at most every MARK_EVERY_S seconds unless `now`."""
        clock = time.monotonic()
        if clock < self._next_mark and not now:
            return
        self._next_mark = clock + MARK_EVERY_S
        marker = {"number": self.current.number, "pairs": pairs, "seconds": seconds}
        write_json(self._progress, marker, durable=False)

    def damaged_files(self) -> list[Path]:
        """The unreadable ones of the two files."""
        found = []
        for path, kind in ((self._executions, Execution), (self._progress, _Marker)):
            try:
                _read(path, kind)
            except DamagedCheckpoint:
                found.append(path)
        return found

    def _lost(self, number: int, kept_pairs: int, kept_seconds: float) -> tuple[int, float]:
        marker = _read(self._progress, _Marker)
        if marker is None or marker.number != number:
            return 0, 0.0
        return max(0, marker.pairs - kept_pairs), max(0.0, marker.seconds - kept_seconds)


_R = TypeVar("_R", bound=_Record)


def _read(path: Path, kind: type[_R]) -> _R | None:
    """The record in the file, or None when there is no such file. DamagedCheckpoint, or StorageError."""
    try:
        plain = read_json(path)
        return None if plain is None else kind.model_validate(plain)
    except (DataError, ValidationError) as error:
        reason = one_line(error) if isinstance(error, DataError) else f"need {', '.join(kind.model_fields)}, from 0"
        raise DamagedCheckpoint(
            "VSE-T010", "{file}: damaged ({reason}); remove {folder} to start the trial again.", file=path,
            reason=reason, folder=path.parent,
        ) from error
