"""A cell without a further valid configuration: exhausted, or failed alone if its samples were refused."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from driven_ledgers import cells_of, ledger_of, point, run_through
from logged_studies import Logs, begun, logs

from vsetune.board.board_notes import notes
from vsetune.board.building import build
from vsetune.config.spec.loading import parse_spec
from vsetune.config.study.study_spec import StudySpec
from vsetune.records.studies import Studies
from vsetune.records.writer import StudyWriter
from vsetune.study.ledger import StudyLedger
from vsetune.study.observed import observe

__all__ = ["logs"]

PLAIN: dict[str, Any] = {
    "study": "tiny", "data": {"path": "x"}, "networks": [{"name": "vsepp"}], "training": {"epochs": 2},
    "losses": [{"name": "lmh"}, {"name": "lseh"}], "baseline": "lmh",
    "search": {"configurations": 4, "sampler": "random"}, "seeds": [7, 8],
}
WHY = "loss.margin: got 0.31, need a margin below the default"


class Cells:
    """A study of two cells, of which one refuses what it draws as long as it `is_strict`."""

    def __init__(self, *, strict: str, plain: Mapping[str, Any] = PLAIN, takes_defaults: bool) -> None:
        self.study = parse_spec(dict(plain), StudySpec, where="test")
        self._defaults = {cell.name: cell.defaults() for cell in cells_of(self.study)}
        self._strict, self._takes_defaults, self.is_strict = strict, takes_defaults, True
        self.writer = StudyWriter()

    def _refuses(self, cell: str, configuration: Mapping[str, Any]) -> str | None:
        is_default = configuration == self._defaults[cell]
        is_refused = self.is_strict and cell == self._strict and not (self._takes_defaults and is_default)
        return f"cell {cell}: {WHY}" if is_refused else None

    def ledger(self, *, retry_failed: bool = False) -> StudyLedger:
        """As a process has it that starts or resumes the study."""
        return ledger_of(self.study, self.writer, retry_failed=retry_failed, refuses=self._refuses)

    def run(self, ledger: StudyLedger, *, most: int = 99) -> list[str]:
        """Names of the trials in the order in which they were handed out, each finished before the next."""
        names: list[str] = []
        while len(names) < most and not isinstance(planned := ledger.next(), str):
            names.append(planned.name)
            run_through(ledger, names[-1], [(2, 40.0)])
        return names


def statuses(ledger: StudyLedger, cell: str) -> list[str]:
    return [trial.status for trial in ledger.trials.values() if trial.spec.cell == cell]


@pytest.mark.parametrize("takes_defaults", [True, False])
def test_the_other_cells_run_to_their_end_and_the_cell_has_one_failed_trial_that_says_why(
    takes_defaults: bool,
) -> None:
    made = Cells(strict="vsepp.lseh", takes_defaults=takes_defaults)
    ledger = made.ledger()
    names = made.run(ledger)
    assert sum(name.startswith("vsepp.lmh-") for name in names) == 5
    # the papers' defaults, and the same with the second seed
    assert sum(name.startswith("vsepp.lseh-") for name in names) == (2 if takes_defaults else 0)
    (failed,) = (trial for trial in ledger.trials.values() if trial.status == "failed")
    assert not ledger.has_work()
    assert failed.spec.cell == "vsepp.lseh"
    assert failed.name.startswith("vsepp.lseh-refused")  # no configuration has that name
    assert failed.spec.seed == 7  # that of the search
    error = failed.error or ""
    assert "\n" not in error
    assert error.startswith("no valid configuration for cell vsepp.lseh: 100 draws in a row were refused, the last (")
    values = error.partition("(")[2].partition(")")[0]
    assert {each.split()[0] for each in values.split(", ")} == {"loss.margin", "loss.semantic_temperature"}
    assert f"because {WHY}; " in error
    assert "losses check" in error
    assert "narrow the ranges under" not in error


def test_board_and_study_name_the_cell_and_the_reason(logs: Logs) -> None:
    made = Cells(strict="vsepp.lseh", takes_defaults=True)
    made.writer = logs.opened(made.study)
    made.run(made.ledger())
    board = build(made.writer.attempts(), baseline="lmh")
    flags = {row.loss: row.flags for row in board.rows}
    assert "cannot_draw" in flags["lseh"]
    assert "less_than_budget" in flags["lseh"]
    assert "cannot_draw" not in flags["lmh"]
    (told,) = (note for note in notes(board) if WHY in note)
    assert "vsepp lseh (no valid configuration for cell vsepp.lseh" in told
    studies = Studies()
    view = observe(studies, studies.record("tiny"))
    assert [(cell, WHY in why) for cell, why in view.cannot_draw.items()] == [("vsepp.lseh", True)]


def test_a_board_is_made_where_the_baseline_cannot_draw_at_all() -> None:
    made = Cells(strict="vsepp.lmh", takes_defaults=False)
    made.run(made.ledger())
    rows = {row.loss: row for row in build(made.writer.attempts(), baseline="lmh").rows}
    assert "cannot_draw" in rows["lmh"].flags
    assert rows["lmh"].best_m_recall is None
    assert rows["lseh"].best_m_recall == 40.0
    assert rows["lseh"].configurations == 4


def test_resuming_keeps_what_became_of_the_cell_and_draws_no_more() -> None:
    made = Cells(strict="vsepp.lseh", takes_defaults=True)
    first = made.ledger()
    made.run(first)
    attempts = made.writer.attempts()
    again = made.ledger()
    assert made.run(again) == []
    assert not again.has_work()
    assert statuses(again, "vsepp.lseh") == statuses(first, "vsepp.lseh")
    assert made.writer.attempts() == attempts


def test_a_driver_that_died_before_the_failed_trial_was_recorded_records_it_when_it_resumes() -> None:
    made = Cells(strict="vsepp.lseh", takes_defaults=False)
    made.run(made.ledger())
    expected = made.writer.attempts()
    for keeps_start in (False, True):
        drawn, made.writer = made.writer.state.draws, begun(StudyWriter(), made.study)
        for each in drawn:
            made.writer.draw(each)
        for attempt in expected:
            if attempt.status == "failed" and not keeps_start:
                continue
            known = made.writer.start_attempt(attempt.start)
            if attempt.status != "failed":
                made.writer.record_points(known, [point(2, 40.0)])
                made.writer.finish_attempt(known, "finished", summary=attempt.summary, error=None)
        ledger = made.ledger()
        assert made.run(ledger) == []
        (failed,) = (each for each in made.writer.attempts() if each.status == "failed")
        assert failed.error == next(each.error for each in expected if each.status == "failed")


def test_with_retry_failed_the_cell_draws_again() -> None:
    made = Cells(strict="vsepp.lseh", takes_defaults=True)
    made.run(made.ledger())
    still = made.ledger(retry_failed=True)
    assert made.run(still) == []
    assert statuses(still, "vsepp.lseh").count("failed") == 1
    made.is_strict = False
    mended = made.ledger(retry_failed=True)
    names = made.run(mended)
    assert sum(name.endswith("-s7") for name in names) == 3
    assert statuses(mended, "vsepp.lseh").count("failed") == 0
    board = build(made.writer.attempts(), baseline="lmh")
    assert not [row.loss for row in board.rows if "cannot_draw" in row.flags]


@pytest.mark.parametrize("retry_failed", [False, True])
def test_a_finite_space_without_a_valid_configuration_fails_its_cell_alone(retry_failed: bool) -> None:
    losses = [{"name": "lmh"}, {"name": "lseh", "search": {"margin": {"choices": [0.1, 0.3]}}}]
    made = Cells(strict="vsepp.lseh", plain={**PLAIN, "losses": losses}, takes_defaults=False)
    ledger = made.ledger()
    assert sum(name.startswith("vsepp.lmh-") for name in made.run(ledger)) == 5
    (failed,) = (trial for trial in ledger.trials.values() if trial.status == "failed")
    assert (failed.error or "").startswith(
        "no valid configuration for cell vsepp.lseh: all 2 configurations of its space were refused, the last ("
    )
    again = made.ledger(retry_failed=retry_failed)
    assert made.run(again) == []
    assert statuses(again, "vsepp.lseh") == ["failed"]


FINITE = PLAIN | {
    "losses": [{"name": "lmh", "search": {"margin": {"choices": [0.1, 0.2, 0.3]}}}, {"name": "lseh"}],
    "search": {"configurations": 5, "sampler": "random"},
}


def test_a_cell_whose_space_is_all_tried_is_confirmed_and_the_study_ends() -> None:
    made = Cells(strict="", plain=FINITE, takes_defaults=True)
    ledger = made.ledger()
    assert ledger.promised() == 3 + 5 + 2
    names = made.run(ledger)
    assert sum(name.startswith("vsepp.lmh-c") and name.endswith("s7") for name in names) == 3
    assert sum(name.startswith("vsepp.lseh-c") and name.endswith("s7") for name in names) == 5
    assert sum(name.endswith("s8") for name in names) == 2
    assert ledger.promised() == 10
    rows = build(made.writer.attempts(), baseline="lmh").rows
    assert [(row.loss, row.search_budget.words, "less_than_budget" in row.flags) for row in rows] == [
        ("lmh", "6 of 10, no trial is left to begin", True), ("lseh", "10 of 10", False),
    ]


class Narrow(Cells):
    """A study that accepts two of the three configurations of its finite space."""

    def _refuses(self, cell: str, configuration: Mapping[str, Any]) -> str | None:
        return "too large" if cell == "vsepp.lmh" and configuration["loss.margin"] > 0.25 else None


@pytest.mark.parametrize("stops_after", [99, 2, 6])
def test_configurations_that_make_no_trial_are_no_longer_promised_even_after_a_restart(stops_after: int) -> None:
    made = Narrow(strict="", plain=FINITE, takes_defaults=True)
    names = made.run(made.ledger(), most=stops_after)
    ledger = made.ledger()
    names += made.run(ledger)
    assert sum(name.startswith("vsepp.lmh-c") and name.endswith("s7") for name in names) == 2
    assert (ledger.next(), ledger.promised(), ledger.has_work()) == ("done", 9, False)
