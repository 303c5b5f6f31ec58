"""Boards that follow their studies: made again when the log of a study has grown. They read the store alone."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from vsetune.board.building import build
from vsetune.board.many_studies import StudyAttempts, build_many
from vsetune.board.page import Live, to_html, to_update
from vsetune.board.recalls import with_recalls
from vsetune.board.rows import Leaderboard, Shown, boards_of
from vsetune.board.shown_runs import ShownRuns, shown_runs
from vsetune.errors import UsageError
from vsetune.metrics.efficiency import TARGET_SHARE
from vsetune.records.events import StudyRecord
from vsetune.records.state import Attempt
from vsetune.records.studies import Studies

PAUSE_S = 1.0
"""Least time between two reads of the store, however many clients ask."""
SHARE = 5
"""A long read is followed by a pause of this many times its duration."""

Told = Callable[[Leaderboard, Sequence[StudyRecord]], Leaderboard]


@dataclass(frozen=True)
class Source:
    """Studies of a page: one study, or several side by side by data set. baseline: name of a loss, None for the
    studies' own. target_share: as in `building.build`."""

    studies: tuple[str, ...]
    baseline: str | None = None
    is_several: bool = False
    target_share: float = TARGET_SHARE


@dataclass(frozen=True)
class Update:
    """tag: differs whenever the content does, also from tags of an earlier process. content: JSON of `to_update`."""

    tag: str
    content: bytes


@dataclass(frozen=True)
class _Made:
    shown: Shown
    runs: ShownRuns
    update: Update


class LiveBoard:
    """mlflow_url: of MLflow's UI, None without one. told: adds information from the study records to a board.

    Every method raises UsageError while there is nothing to show and for unknown studies or baselines, and StorageError
    while the store cannot be read. One thread at a time may use it.
    """

    def __init__(
        self, store: Studies, source: Source, *, mlflow_url: str | None, told: Told = lambda board, _: board,
    ) -> None:
        self._store, self._source, self._mlflow_url, self._told = store, source, mlflow_url, told
        self._next_look = float("-inf")
        self._read: tuple[dict[str, tuple[str, int]], dict[str, str]] = {}, {}
        """Up to where the logs were read for the content that is shown, and the studies that were left out."""
        self._made: _Made | None = None
        self._page: tuple[Live, bytes] | None = None
        self._process, self._number = secrets.token_hex(4), 0

    def update(self) -> Update:
        """The current content for a page to put in place."""
        return self._current().update

    def galleries(self) -> Mapping[str, Sequence[str]]:
        """The gallery pages of the seeds that the board shows, by attempt."""
        return self._current().runs.galleries

    def page(self, updates: str, boards: Sequence[tuple[str, str]]) -> bytes:
        """The whole page, cached until something in it changes; the parameters are those of `Live`."""
        made = self._current()
        live = Live(updates, made.update.tag, boards)
        if self._page is None or self._page[0] != live:
            self._page = live, to_html(made.shown, runs=made.runs, live=live).encode()
        return self._page[1]

    def _current(self) -> _Made:
        began = time.monotonic()
        if self._made is not None and began < self._next_look:
            return self._made
        attempts = self._attempts()
        read = {study: self._store.read_to(study) for study in attempts}, dict(self._store.left_out)
        if self._made is None or read != self._read:
            self._made, self._read = self._make(attempts), read
        ended = time.monotonic()
        self._next_look = ended + max(PAUSE_S, SHARE * (ended - began))
        return self._made

    def _attempts(self) -> dict[str, Sequence[Attempt]]:
        """By study. Of several, one that cannot be read is left out."""
        def read(study: str) -> tuple[str, Sequence[Attempt]]:
            return study, self._store.attempts(study)

        studies = self._source.studies
        return dict(self._store.readable(studies, read) if self._source.is_several else map(read, studies))

    def _make(self, attempts: Mapping[str, Sequence[Attempt]]) -> _Made:
        shown = self._built(attempts)
        every = [attempt for of_study in attempts.values() for attempt in of_study]
        runs = shown_runs(self._store, boards_of(shown).boards, every, mlflow_url=self._mlflow_url)
        self._number += 1
        return _Made(shown, runs, Update(f'"{self._process}-{self._number}"', to_update(shown, runs=runs).encode()))

    def _built(self, attempts: Mapping[str, Sequence[Attempt]]) -> Shown:
        source = self._source
        records = [self._store.record(study) for study in attempts]
        own = {record.name: str(record.config.get("baseline", "")) for record in records}
        if not source.is_several:
            ((study, of_study),) = attempts.items()
            board = build(of_study, baseline=source.baseline or own[study], target_share=source.target_share)
            return self._completed(board, records)
        named = [StudyAttempts(study, own[study], of_study) for study, of_study in attempts.items()]
        if not any(attempts.values()):
            raise UsageError(
                "VSE-B001", "leaderboard: {where} has no attempts yet; wait for its first validation",
                where="this store",
            )
        found = build_many(named, baseline=source.baseline, target_share=source.target_share)
        boards = tuple(self._completed(board, records) for board in found.boards)
        return replace(found, boards=boards, notes=(*found.notes, *self._store.left_out.values()))

    def _completed(self, board: Leaderboard, records: Sequence[StudyRecord]) -> Leaderboard:
        return with_recalls(self._told(board, records), self._store)
