"""How often a trial was started, and how much work its earlier executions lost.

Two small files stand beside the checkpoint. `executions.json` changes once per execution. `progress.json` is a marker
that the running execution updates every few seconds. If the execution dies, the next one reads from it how much work
beyond the checkpoint was lost. The marker contains the number of its execution, so no loss is counted twice.
"""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from vsetune.errors import DamagedCheckpoint, DataError
from vsetune.storage.whole_files import read_json, write_json

EXECUTIONS_FILE = "executions.json"
PROGRESS_FILE = "progress.json"
MARK_EVERY_S = 5.0
_MOST = 2**53


@dataclass(frozen=True)
class Execution:
    """One execution of a trial. number: 1 is the first.

    wasted_pairs, wasted_seconds: trained by all earlier executions together after their last checkpoint, hence lost;
    exact to MARK_EVERY_S seconds of work per execution, and at least the work up to their last validation.
    """

    number: int
    wasted_pairs: int = 0
    wasted_seconds: float = 0.0


class ExecutionLog:
    """The two files of one folder. Only one process at a time may use it."""

    def __init__(self, folder: Path) -> None:
        self._executions = folder / EXECUTIONS_FILE
        self._progress = folder / PROGRESS_FILE
        self._next_mark = 0.0
        self.current = Execution(number=0)

    def begin(self, *, kept_pairs: int, kept_seconds: float, recorded: int = 0) -> Execution:
        """Count a new execution, which continues from a checkpoint with kept_pairs pairs and kept_seconds of work.

        recorded: number of executions recorded elsewhere; the folder may have been lost since. DamagedCheckpoint when
        one of the files differs from what was written to it.
        """
        earlier = self._earlier()
        lost_pairs, lost_seconds = self._lost(earlier.number, kept_pairs, kept_seconds)
        self.current = Execution(
            number=max(earlier.number, recorded) + 1,
            wasted_pairs=earlier.wasted_pairs + lost_pairs,
            wasted_seconds=earlier.wasted_seconds + lost_seconds,
        )
        write_json(self._executions, asdict(self.current), durable=True)
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
        for path, read in ((self._executions, self._earlier), (self._progress, self._marker)):
            try:
                read()
            except DamagedCheckpoint:
                found.append(path)
        return found

    def _earlier(self) -> Execution:
        saved = _read_json(self._executions)
        if saved is None:
            return Execution(number=0)
        _require(self._executions, saved, Execution(number=0))
        return Execution(**saved)

    def _marker(self) -> dict[str, Any] | None:
        marker: dict[str, Any] | None = _read_json(self._progress)
        if marker is not None:
            _require(self._progress, marker, _Marker(0, 0, 0.0))
        return marker

    def _lost(self, number: int, kept_pairs: int, kept_seconds: float) -> tuple[int, float]:
        marker = self._marker()
        if marker is None or marker["number"] != number:
            return 0, 0.0
        return max(0, marker["pairs"] - kept_pairs), max(0.0, marker["seconds"] - kept_seconds)


def _read_json(path: Path) -> Any | None:
    """The value in the file, or None when there is no such file. DamagedCheckpoint, or StorageError."""
    try:
        return read_json(path)
    except DataError as error:
        raise DamagedCheckpoint(f"{error}, so it is damaged; remove its folder to start the trial again.") from error


@dataclass(frozen=True)
class _Marker:
    number: int
    pairs: int
    seconds: float


def _require(path: Path, saved: Any, like: Execution | _Marker) -> None:
    """DamagedCheckpoint unless these are the fields of `like`: counts, and seconds that are finite, none below 0."""
    expected = asdict(like)
    is_sound = isinstance(saved, dict) and saved.keys() == expected.keys() and all(
        type(saved[key]) in ((int,) if type(value) is int else (int, float)) and 0 <= saved[key] <= _MOST
        for key, value in expected.items()
    )
    if not is_sound:
        raise DamagedCheckpoint(
            f"{path}: damaged (need {', '.join(expected)}, numbers from 0); remove its folder to start the trial again."
        )
