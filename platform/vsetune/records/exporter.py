"""The driver's thread that copies its study's log to MLflow, however long the store is away."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import Protocol

from vsetune.errors import StorageError, UnusableStore, VsetuneError
from vsetune.records.log import LogWriter, Overtaken

_log = logging.getLogger(__name__)
_LOOK_EVERY_S, _FIRST_PAUSE_S, _LONGEST_PAUSE_S = 1.0, 0.5, 30.0


class Export(Protocol):
    """See `mlflow_export.MlflowExport`."""

    @property
    def number(self) -> int:
        """Number of the last line that was exported; -1 before the first."""

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
        self._outage: StorageError | None = None
        self.refusal: VsetuneError | None = None
        """Why the store cannot be used at all; None as long as waiting may help."""
        self._changed = threading.Condition()
        self._is_wanted = self._is_stopping = False
        self._thread = threading.Thread(target=self._run, name="mlflow-export", daemon=True)
        if open_export is not None:
            self._thread.start()

    def pending(self) -> int:
        """How many events MLflow does not have yet."""
        if self._open is None:
            return 0
        return self._log.last - (self._export.number if self._export is not None else -1)

    def outage(self) -> str | None:
        """Why nothing is exported at the moment, in one line; None when all is well."""
        trouble = self.refusal or self._outage
        return None if trouble is None else str(trouble)

    def wait_until_open(self, timeout_s: float) -> None:
        """Return once the store is open, or found away, or after `timeout_s`. UnusableStore if it cannot be used."""
        with self._changed:
            self._changed.wait_for(lambda: self._export or self._outage or self.refusal or not self._open, timeout_s)
        if self.refusal is not None:
            raise self.refusal

    def deliver(self, patience_s: float) -> int:
        """Wait while events are being exported, and at most `patience_s` without progress. Returns how many are left.
        """
        if self._open is None:
            return 0
        try:
            self._log.settle(patience_s)  # else the rest of the log would be sent within seconds, and exported then
        except Overtaken:
            return self.pending()
        except StorageError:  # lines that count are exported all the same
            pass
        last_change, left = time.monotonic(), self.pending()
        while left and time.monotonic() - last_change < patience_s and self.refusal is None:
            with self._changed:
                self._is_wanted = True
                self._changed.notify_all()
                self._changed.wait(0.2)
            before, left = left, self.pending()
            if left != before:
                last_change = time.monotonic()
        return left

    def close(self) -> None:
        """End the thread; a request in progress is finished, or left behind."""
        with self._changed:
            self._is_stopping = True
            self._changed.notify_all()
        if self._open is not None:
            self._thread.join(_LOOK_EVERY_S)

    def _run(self) -> None:
        pause = _FIRST_PAUSE_S
        while not self._is_stopping and self.refusal is None:
            try:
                has_worked = self._step()
                pause = _FIRST_PAUSE_S
            except UnusableStore as error:
                self._note(error, is_final=True)
                return
            except Exception as error:  # whatever the error, later events must still be exported
                self._note(error if isinstance(error, StorageError) else StorageError(f"MLflow: {error!r}"[:300]))
                self._wait(pause)
                pause = min(2 * pause, _LONGEST_PAUSE_S)
                continue
            if not has_worked:
                self._wait(_LOOK_EVERY_S)

    def _step(self) -> bool:
        assert self._open is not None, "the thread runs only where there is something to open"
        if self._export is None:
            self._export = self._open()
        has_worked = self._export.advance()
        if self._outage is not None:
            _log.warning("%s: the tracking store answers again", self._log.path.parent.name)
        with self._changed:
            self._outage = None
            self._changed.notify_all()
        return has_worked

    def _note(self, error: StorageError, *, is_final: bool = False) -> None:
        if self._outage is None:
            how = "not exported" if is_final else "not exported for now, training goes on"
            _log.warning("%s: %s: %s", self._log.path.parent.name, how, error)
        with self._changed:
            self._outage = error
            self.refusal = error if is_final else None
            self._changed.notify_all()

    def _wait(self, seconds: float) -> None:
        with self._changed:
            self._changed.wait_for(lambda: self._is_wanted or self._is_stopping, seconds)
            self._is_wanted = False
