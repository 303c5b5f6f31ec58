"""The driver's thread that copies its study's log to MLflow, however long the store is away."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Protocol

from vsetune.errors import Overtaken, StorageError, UnusableStore
from vsetune.home.background import Repeated
from vsetune.records.log import LogWriter

_LOOK_EVERY_S = 1.0


class Export(Protocol):
    """See `mlflow_export.MlflowExport`."""

    number: int
    answers: int
    refused: list[str]

    def advance(self) -> bool:
        """Export the next lines. Returns whether there were any."""


class Exporter:
    """Exports a study's log in a thread. Training never waits for it; the next exporter continues where this one ended.

    open_export: opens the store; called in the thread, repeatedly until it succeeds. None: nothing is exported. log:
    the growing log to export.
    """

    def __init__(self, open_export: Callable[[], Export] | None, log: LogWriter) -> None:
        self._open, self._log = open_export, log
        self._export: Export | None = None
        what = f"{log.path.parent.name}: MLflow"
        self._steps = Repeated(
            self._step, name="mlflow-export", what=what, every_s=_LOOK_EVERY_S, final=UnusableStore
        )
        if open_export is not None:
            self._steps.start()

    @property
    def refusal(self) -> StorageError | None:
        """Why the store cannot be used at all; None as long as waiting may help."""
        return self._steps.refusal

    def pending(self) -> int:
        """How many events MLflow does not have, those that it refuses included."""
        return self.waiting() + (0 if self._export is None else len(self._export.refused))

    def waiting(self) -> int:
        """How many events have not been exported yet, apart from those that MLflow refused."""
        if self._open is None:
            return 0
        return self._log.last - (self._export.number if self._export is not None else -1)

    def outage(self) -> str | None:
        """Why MLflow does not have all events, in one line; None when all is well."""
        refused = [] if self._export is None else self._export.refused
        trouble = self._steps.outage or (refused[0] if refused else None)
        return None if trouble is None else str(trouble)

    def wait_until_open(self, timeout_s: float) -> None:
        """Return once the store is open, or found away, or after `timeout_s`. UnusableStore if it cannot be used."""
        if self._open is not None:
            self._steps.wait_for(lambda: self._export is not None or self._steps.outage is not None, timeout_s)
        if self.refusal is not None:
            raise self.refusal

    def deliver(self, patience_s: float, *, answer_s: float = 0.0) -> int:
        """Wait while events are being exported, and at most `patience_s` without progress. Returns how many are left,
        those that MLflow refuses included. answer_s: how long to wait for one answer while MLflow seems to be there;
        the longer of the two times counts."""
        if self._open is None:
            return 0
        try:
            self._log.settle(patience_s)  # else the rest of the log would be sent within seconds, and exported then
        except Overtaken:
            return self.pending()
        except StorageError:  # lines that count are exported all the same
            pass
        last_change, seen = time.monotonic(), (-1, -1)
        while self.waiting() and self.refusal is None:
            is_away = self._export is None or self._steps.outage is not None
            # while it is away, answers belong to tries that will fail
            now = self.waiting(), 0 if is_away or self._export is None else self._export.answers
            if now != seen:
                last_change, seen = time.monotonic(), now
            if time.monotonic() - last_change >= (patience_s if is_away else max(patience_s, answer_s)):
                break
            self._steps.ask()
            time.sleep(0.2)
        return self.pending()

    def close(self) -> None:
        """End the thread; a request in progress is finished, or left behind."""
        self._steps.close(_LOOK_EVERY_S)

    def _step(self) -> bool:
        assert self._open is not None, "the thread runs only where there is something to open"
        self._export = self._export or self._open()
        return self._export.advance()
