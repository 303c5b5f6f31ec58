"""The search of a cell ends when its space has no further configuration, whatever of its budget is left."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from logged_studies import begun

from vsetune.config.spec.loading import parse_spec
from vsetune.config.study.cells import resolve_cells
from vsetune.config.study.study_spec import StudySpec
from vsetune.records.events import ValidationPoint
from vsetune.records.writer import StudyWriter
from vsetune.report.building import build
from vsetune.search.configurations import Refusal
from vsetune.study.ledger import StudyLedger
from vsetune.study.study_records import logged_search

PLAIN: dict[str, Any] = {
    "study": "tiny", "data": {"path": "x"}, "networks": [{"name": "vsepp"}], "training": {"epochs": 2},
    "losses": [{"name": "lmh", "search": {"margin": {"choices": [0.1, 0.2, 0.3]}}}, {"name": "lseh"}],
    "search": {"configurations": 5, "sampler": "random"}, "seeds": [7, 8],
}
STUDY = parse_spec(PLAIN, StudySpec, where="test")
CELLS = resolve_cells(STUDY, where="test")


def too_large(cell: str, configuration: Mapping[str, Any]) -> str | None:
    return "too large" if cell == "vsepp.lmh" and configuration["loss.margin"] > 0.25 else None


def run(ledger: StudyLedger, *, most: int = 99) -> list[str]:
    """Names of the trials in the order in which they were handed out, each finished before the next."""
    names: list[str] = []
    while len(names) < most and not isinstance(assignment := ledger.next(), str):
        names.append(assignment.trial.trial)
        ledger.open_attempt(names[-1], number=1, environment={}, protocol={}, inherited=[])
        ledger.record_point(names[-1], ValidationPoint(1, 2.0, 1, 40.0, 1.0))
        ledger.close(names[-1], "finished", summary={})
    return names


def ledger_of(writer: StudyWriter, refuses: Refusal | None = None) -> StudyLedger:
    begun(writer, STUDY)
    ledger = StudyLedger(STUDY, CELLS, writer, logged_search(writer, CELLS, STUDY.search, refuses=refuses))
    ledger.recover()
    return ledger


def test_a_cell_whose_space_is_all_tried_is_confirmed_and_the_study_ends() -> None:
    ledger = ledger_of(StudyWriter())
    assert ledger.promised() == 3 + 5 + 2
    names = run(ledger)
    assert sum(name.startswith("vsepp.lmh-c") and name.endswith("s7") for name in names) == 3
    assert sum(name.startswith("vsepp.lseh-c") and name.endswith("s7") for name in names) == 5
    assert sum(name.endswith("s8") for name in names) == 2
    assert ledger.next() == "done"
    assert ledger.promised() == 10


def test_the_board_marks_the_cell_that_had_less_to_try() -> None:
    writer = StudyWriter()
    run(ledger_of(writer))
    rows = build(writer.attempts(), baseline="lmh").rows
    assert [(row.loss, row.search_budget.words, "less_than_budget" in row.flags) for row in rows] == [
        ("lmh", "6 of 10, no trial is left to begin", True), ("lseh", "10 of 10", False),
    ]


def test_configurations_that_make_no_trial_are_no_longer_promised_even_after_a_restart() -> None:
    for stops_after in (99, 2, 6):
        writer = StudyWriter()
        names = run(ledger_of(writer, too_large), most=stops_after)
        ledger = ledger_of(writer, too_large)
        names += run(ledger)
        assert sum(name.startswith("vsepp.lmh-c") and name.endswith("s7") for name in names) == 2
        assert (ledger.next(), ledger.promised(), ledger.has_work()) == ("done", 9, False)
