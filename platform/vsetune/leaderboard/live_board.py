"""A board that is made again when its study has changed, for those who look at it while it runs."""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from vsetune.errors import UsageError
from vsetune.leaderboard.building import build
from vsetune.leaderboard.page import Live, to_html, to_update
from vsetune.leaderboard.rows import Leaderboard
from vsetune.leaderboard.shown_runs import ShownRuns, shown_runs
from vsetune.tracking.records import AttemptRecord
from vsetune.tracking.store import TrackingStore

PAUSE_S = 1.0
"""Between two looks into the store, however many ask."""


@dataclass(frozen=True)
class Update:
    """tag: differs whenever the content does, also from those of an earlier process. content: JSON of `to_update`."""

    tag: str
    content: bytes


class LiveBoard:
    """Of one study. baseline: name of a loss, None for the study's own. lock: of the store, which boards share.

    Every method raises UsageError while the study has no attempts, or where it is unknown, and StorageError while the
    store cannot be read. Threads may share it.
    """

    def __init__(
        self, store: TrackingStore, study: str, *, baseline: str | None, mlflow_url: str | None, lock: threading.Lock,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._store, self.study, self._baseline, self._mlflow_url = store, study, baseline, mlflow_url
        self._lock, self._clock = lock, clock
        self._looked = float("-inf")
        self._attempts: Sequence[AttemptRecord] = ()
        self._made: tuple[Leaderboard, ShownRuns] | None = None
        self._update: Update | None = None
        self._process, self._number = secrets.token_hex(4), 0

    def update(self) -> Update:
        """What a page puts in place, as of now."""
        with self._lock:
            return self._updated()[2]

    def page(self, updates: str, artifacts: str, studies: Sequence[tuple[str, str]]) -> bytes:
        """The whole page; its addresses are those of `Live`."""
        with self._lock:
            board, runs, update = self._updated()
            return to_html(board, runs=runs, live=Live(updates, artifacts, update.tag, studies)).encode()

    def _updated(self) -> tuple[Leaderboard, ShownRuns, Update]:
        board, runs = self._current()
        if self._update is None:
            self._number += 1
            self._update = Update(f'"{self._process}-{self._number}"', to_update(board, runs=runs).encode())
        return board, runs, self._update

    def _current(self) -> tuple[Leaderboard, ShownRuns]:
        if self._made is not None and self._clock() - self._looked < PAUSE_S:
            return self._made
        attempts = self._store.attempts(self.study)
        if self._made is None or attempts != self._attempts:
            board = build(attempts, baseline=self._baseline or self._own_baseline())
            self._made = board, shown_runs(self._store, board, attempts, mlflow_url=self._mlflow_url)
            self._attempts, self._update = attempts, None
        self._looked = self._clock()
        return self._made

    def _own_baseline(self) -> str:
        known = {record.name: record for record in self._store.studies()}
        if self.study not in known:
            raise UsageError(f"study {self.study}: not in this store any more")
        return str(known[self.study].config["baseline"])
