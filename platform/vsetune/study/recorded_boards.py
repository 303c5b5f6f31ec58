"""Boards of recorded studies: their attempts, with what study files and logs add to them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from vsetune.board.building import build
from vsetune.board.recalls import with_recalls
from vsetune.board.rows import Leaderboard
from vsetune.errors import UsageError
from vsetune.metrics.efficiency import TARGET_SHARE
from vsetune.records.events import StudyRecord
from vsetune.records.state import Attempt
from vsetune.records.studies import Studies
from vsetune.study.range_ends import board_with_ends


def recorded_board(
    store: Studies, study: str, attempts: Sequence[Attempt] | None = None, *, baseline: str | None = None,
    target_share: float = TARGET_SHARE,
) -> Leaderboard:
    """The board of a recorded study, as `vsetune leaderboard show` prints it.

    attempts: of the study, read if None. baseline: a loss, by default the study's own. target_share: as of
    `building.build`. UsageError for an unknown study, one without attempts, and a baseline that was not run.
    """
    record = store.record(study)
    board = build(
        store.attempts(study) if attempts is None else attempts, baseline=baseline_of(record, baseline),
        target_share=target_share,
    )
    return completed_board(board, [record], store)


def baseline_of(record: StudyRecord, given: str | None) -> str:
    """The loss to compare with: the given one, else that of the study. UsageError if there is neither, as in studies
    that early versions recorded."""
    named = given or record.config.get("baseline")
    if not named:
        raise UsageError(
            "VSE-S192", "study {study}: its record names no baseline; name the loss to compare with by --baseline",
            study=record.name,
        )
    return str(named)


def completed_board(
    board: Leaderboard, records: Sequence[StudyRecord], store: Studies, *, is_over: bool | None = None
) -> Leaderboard:
    """The board with marks where a winner lies at an end of its range, with recalls, and with the studies that have
    trials left. records: of its studies. is_over: none of them has; None: as the logs say.

    Raises StorageError if a log cannot be read.
    """
    unfinished = () if is_over else tuple(
        name for name in dict.fromkeys(row.study for row in board.rows)
        if is_over is False or store.status(name) in ("running", "killed")
    )
    return with_recalls(board_with_ends(replace(board, unfinished=unfinished), records), store)
