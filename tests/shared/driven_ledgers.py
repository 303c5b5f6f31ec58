"""Ledgers of processes that run a study, and trials of theirs that train nothing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from logged_studies import begun

from vsetune.config.study.cells import Cell, repeated_cells, resolve_cells
from vsetune.config.study.study_spec import StudySpec
from vsetune.records.events import ValidationPoint
from vsetune.records.writer import StudyWriter
from vsetune.study.ledger import StudyLedger


def cells_of(study: StudySpec) -> list[Cell]:
    return repeated_cells(study, resolve_cells(study, where="test"))


def ledger_of(
    study: StudySpec, writer: StudyWriter, *, is_open: bool = False, retry_failed: bool = False, **more: Any
) -> StudyLedger:
    """Of a process that begins the study or resumes it: the second one on a writer stands for a restart. is_open: the
    study has been opened in the log."""
    if not is_open:
        begun(writer, study)
    ledger = StudyLedger(study, cells_of(study), writer, **more)
    ledger.recover(retry_failed=retry_failed)
    return ledger


def point(epoch: float, m_recall: float) -> ValidationPoint:
    return ValidationPoint(
        step=round(1000 * epoch), epoch=float(epoch), pairs_seen=1, m_recall=m_recall, train_seconds=1.0
    )


def begin(ledger: StudyLedger, trial: str, *points: ValidationPoint, number: int = 1) -> None:
    """An attempt begins, which goes on from these validations."""
    ledger.open_attempt(trial, number=number, environment={}, protocol={}, inherited=points)


def run_through(
    ledger: StudyLedger, trial: str, curve: Sequence[tuple[float, float]], *, number: int = 1,
    status: Any = "finished", error: str | None = None, **summary: float
) -> None:
    """An attempt from its beginning to its end. curve: (epoch, M-Recall) of every validation."""
    begin(ledger, trial, number=number)
    for epoch, m_recall in curve:
        ledger.record_point(trial, point(epoch, m_recall))
    ledger.close(trial, status, summary=summary, error=error)
