"""How often a trial was started, and how much work its earlier executions lost.

Two small files stand beside the checkpoint. `executions.json` changes once per execution. `progress.json` is a marker
the running execution moves every few seconds: what it trained beyond the checkpoint, if it dies, is the waste the next
execution reads from it. The marker carries the number of its execution, so no waste is counted twice.
"""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from vsetune.training.atomic import read_json, write_json

EXECUTIONS_FILE = "executions.json"
PROGRESS_FILE = "progress.json"
MARK_EVERY_S = 5.0


@dataclass(frozen=True)
class Execution:
    """One execution of a trial. number: 1 is the first.

    wasted_pairs, wasted_seconds: trained by all earlier executions together after their last checkpoint, hence lost;
    exact to MARK_EVERY_S seconds of work per execution.
    """

    number: int
    wasted_pairs: int = 0
    wasted_seconds: float = 0.0


class ExecutionLog:
    """The two files of one folder. One process at a time may hold it."""

    def __init__(self, folder: Path) -> None:
        self._executions = folder / EXECUTIONS_FILE
        self._progress = folder / PROGRESS_FILE
        self._next_mark = 0.0
        self.current = Execution(number=0)

    def begin(self, *, kept_pairs: int, kept_seconds: float) -> Execution:
        """Count a new execution, which continues from a checkpoint with kept_pairs pairs and kept_seconds of work."""
        saved = read_json(self._executions)
        earlier = Execution(**saved) if saved else Execution(number=0)
        lost_pairs, lost_seconds = self._lost(earlier.number, kept_pairs, kept_seconds)
        self.current = Execution(
            number=earlier.number + 1,
            wasted_pairs=earlier.wasted_pairs + lost_pairs,
            wasted_seconds=earlier.wasted_seconds + lost_seconds,
        )
        write_json(self._executions, asdict(self.current), durable=True)
        return self.current

    def mark(self, *, pairs: int, seconds: float, now: bool = False) -> None:
        """Note how far the training is; writes at most every MARK_EVERY_S seconds unless `now`."""
        clock = time.monotonic()
        if clock < self._next_mark and not now:
            return
        self._next_mark = clock + MARK_EVERY_S
        marker = {"number": self.current.number, "pairs": pairs, "seconds": seconds}
        write_json(self._progress, marker, durable=False)

    def _lost(self, number: int, kept_pairs: int, kept_seconds: float) -> tuple[int, float]:
        marker: dict[str, Any] | None = read_json(self._progress)
        if marker is None or marker["number"] != number:
            return 0, 0.0
        return max(0, marker["pairs"] - kept_pairs), max(0.0, marker["seconds"] - kept_seconds)
