"""Whatever happens to trials, what runs next and what is shown follow from a plain look through all trials."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace
from typing import Any

import pytest
from logged_studies import begun

from vsetune.board.selection import cost_of
from vsetune.config.spec.loading import parse_spec
from vsetune.config.study.cells import Cell, resolve_cells
from vsetune.config.study.study_spec import StudySpec
from vsetune.records.events import TARGET_REACHED, ValidationPoint, was_cut_short
from vsetune.records.writer import StudyWriter
from vsetune.study.cell_budget import CellBudget, at_once
from vsetune.study.cell_numbers import CellNumbers
from vsetune.study.confirmations import Confirming, confirmations_of
from vsetune.study.ledger import StudyLedger
from vsetune.study.next_trial import next_trial
from vsetune.study.trials import TERMINAL, PlannedTrial, kind_of

CONFIRMING = Confirming(2, contenders=True)


class History:
    """A study to which things happen by chance. in_line: interrupted trials, in the order in which they were.

    Every answer of the ledger is compared with one that is found by looking through all trials.
    """

    def __init__(self, seed: int, **changes: Any) -> None:
        plain = {
            "study": "tiny", "data": {"path": "x"}, "networks": [{"name": "vsepp"}], "baseline": "lmh",
            "losses": [{"name": "lmh"}, {"name": "lseh"}, {"name": "lsh"}], "training": {"epochs": 3}, "seeds": [6],
            "search": {"configurations": 4, "sampler": "random", "at_once": 3}, "resources": {"retries": 1},
        }
        changes["search"] = plain["search"] | changes.get("search", {})  # type: ignore[operator]
        self.study = parse_spec(plain | changes, StudySpec, where="test")
        self.cells = resolve_cells(self.study, where="test")
        self.shortened: dict[str, float] = {}
        self.chance, self.now, self.in_line, self.happened = random.Random(seed), 0.0, [], set()  # type: ignore[var-annotated]
        self.writer = StudyWriter()
        self.start()

    def start(self, *, retry_failed: bool = False) -> None:
        begun(self.writer, self.study)
        self.ledger = StudyLedger(
            self.study, self.cells, self.writer, clock=lambda: self.now, confirming=CONFIRMING
        )
        self.ledger.recover(retry_failed=retry_failed)
        over = ("finished", "pruned") if retry_failed else ("finished", "pruned", "failed")
        latest = {attempt.start.trial: attempt for attempt in self.writer.attempts()}
        self.was_over = {trial for trial, attempt in latest.items() if attempt.status in over}
        self.in_line = [name for name, trial in self.ledger.trials.items() if trial.status == "waiting"]

    def step(self) -> None:
        running = [name for name, trial in self.ledger.trials.items() if trial.status == "running"]
        asking = self.chance.random() < (0.6 if len(running) < 5 else 0.2)
        if asking or not running:
            self.ask()
        else:
            name = self.chance.choice(running)
            self.chance.choices((self.report, self.end, self.interrupt), (8, 4, 2))[0](name)
        if self.chance.random() < 0.01:
            self.restart()
        self.now += self.chance.choice((0.0, 0.5, 5.0))

    def ask(self) -> None:
        expected, answer = self.plain_answer(), self.ledger.next()
        found = answer if isinstance(answer, str) else answer.name
        if isinstance(expected, Cell):
            assert isinstance(answer, PlannedTrial)
            assert (answer.spec.cell, answer.phase) == (expected.name, "search")
        else:
            assert found == expected
        self.happened.add(answer if isinstance(answer, str) else answer.phase)
        if found in self.in_line:
            self.in_line.remove(found)
            self.happened.add("went on")
        if isinstance(answer, PlannedTrial):
            self.open(found)

    def open(self, name: str) -> None:
        planned = self.ledger.trials[name]
        points, number = [point(epoch, m_recall) for epoch, m_recall in planned.curve], planned.attempts.number + 1
        self.ledger.open_attempt(name, number=number, environment={}, protocol={}, inherited=points)

    def report(self, name: str) -> None:
        epoch = self.ledger.trials[name].epoch + self.chance.choice((0.1, 0.3, 0.7))
        seconds = {"device_seconds": 8 * epoch}
        measured = replace(point(epoch, self.chance.uniform(20, 60)), metrics=seconds)
        self.ledger.record_point(name, measured, summary=seconds)

    def end(self, name: str) -> None:
        status, error = self.chance.choice((
            ("finished", None), ("finished", None), ("finished", f"{TARGET_REACHED}: 50"), ("pruned", "patience"),
            ("pruned", "patience"), ("failed", "not finite"),
        ))
        self.ledger.close(name, status, summary={**self.ledger.trials[name].totals}, error=error)  # type: ignore[arg-type]
        self.happened.add(status)

    def interrupt(self, name: str) -> None:
        pause = self.ledger.interrupted(name, "it died", was_asked=self.chance.random() < 0.3)
        self.happened.add("left open" if pause is None else "paused")
        if pause is not None:
            self.in_line.append(name)

    def restart(self) -> None:
        if self.chance.random() < 0.5:
            self.ledger.interrupt()
        self.start(retry_failed=self.chance.random() < 0.5)
        self.happened.add("restarted")

    def plain_answer(self) -> Cell | str:
        """The trial that is next, or the cell that is to be asked for one, or `wait` or `done`."""
        trials = self.ledger.trials
        plain = {cell.name: PlainCell(self, cell) for cell in self.cells}
        ready = next((name for name in self.in_line if trials[name].not_before <= self.now), None)
        if ready is not None:
            return ready
        asking = [
            cell for cell in self.cells
            if not plain[cell.name].is_disturbed and not plain[cell.name].is_exhausted
            and self.ledger.cells[cell.name].objective is not None
            and len(plain[cell.name].open) < at_once(self.study.search, len(plain[cell.name].searched))
        ]
        if untried := [cell for cell in asking if not plain[cell.name].searched]:
            return untried[0]
        for cell in self.cells:
            if plain[cell.name].is_over:
                searched = plain[cell.name].searched
                for planned in confirmations_of(self.study, cell, searched, CONFIRMING, self.ledger._writer.state):
                    if planned.name not in trials and planned.name not in self.was_over:
                        return planned.name
        if asking:
            return min(asking, key=lambda cell: plain[cell.name].committed)
        return "wait" if any(not is_over(trial) and not trial.is_left_open for trial in trials.values()) else "done"

    def compare(self) -> None:
        for cell in self.cells:
            found, plain = self.ledger.cells[cell.name], PlainCell(self, cell)
            assert (found.searched, found.open, found.committed, found.room) == (
                plain.searched, plain.open, plain.committed, plain.room)
            assert (found.is_exhausted, found.is_over) == (plain.is_exhausted, plain.is_over)
        is_due = any(not is_over(trial) and not trial.is_left_open for trial in self.ledger.trials.values())
        assert any(cell.is_running_or_pausing for cell in self.ledger.cells.values()) == is_due

    def compare_shown(self) -> None:
        """What people and dashboards are shown."""
        for name, trial in self.ledger.trials.items():
            is_left = trial.is_left_open and not is_over(trial)
            assert trial.state == ("left_open" if is_left else trial.status), name
        for cell in self.cells:
            shown = dict(vars(CellNumbers.of(self.ledger.cells[cell.name].trials)))
            plain = PlainCell(self, cell).numbers()
            for key in ("charged_epochs", "wasted_epochs", "device_seconds"):
                assert shown.pop(key) == pytest.approx(plain.pop(key), rel=1e-9)
            assert shown == plain


def is_over(trial: PlannedTrial) -> bool:
    return trial.status in TERMINAL


class PlainCell:
    """A cell by a look through all trials of the study. Nothing is kept, except the epochs of a shortened trial."""

    def __init__(self, history: History, cell: Cell) -> None:
        self._study, self._cell, self._found = history.study, cell, history.ledger.cells[cell.name]
        self.trials = [trial for trial in history.ledger.trials.values() if trial.cell == cell.name]
        self.searched = [trial for trial in self.trials if trial.phase == "search"]
        self.open = [trial for trial in self.searched if not is_over(trial)]
        self.is_disturbed = any(trial.status == "waiting" and trial.error is not None for trial in self.searched)
        self.committed = sum([
            history.shortened.setdefault(trial.name, cost_of([trial.attempts]).budget_epochs) if is_short(trial)
            else history.shortened.get(trial.name, float(cell.training["epochs"])) for trial in self.searched
        ])
        budget = replace(CellBudget.of(self._study, cell), committed=self.committed)
        self.room = 0 if self._found.has_no_more else budget.room(len(self.searched))
        cost, most_s = cost_of([trial.attempts for trial in self.trials]), self._study.budget.device_seconds_per_cell
        self.is_exhausted = not self.room or (most_s is not None and cost.device_seconds >= most_s)
        self.is_over = bool(self.searched) and self.is_exhausted and not self.open

    def numbers(self) -> dict[str, Any]:
        cost = cost_of([trial.attempts for trial in self.trials])
        return {
            "ended": sum(is_over(trial) for trial in self.trials),
            "running": tuple(trial for trial in self.trials if trial.status == "running"),
            "best": max((trial.best_m_recall or 0.0 for trial in self.trials), default=0.0),
            "charged_epochs": cost.budget_epochs, "wasted_epochs": cost.wasted_epochs,
            "device_seconds": cost.device_seconds, "usd": cost.usd,
            "validations": sum(len(trial.attempts.longest_curve) for trial in self.trials),
            "attempts": Counter((each.status, kind_of(each)) for trial in self.trials for each in trial.attempts),
        }


def is_short(trial: PlannedTrial) -> bool:
    return trial.status == "pruned" or was_cut_short(trial.status, trial.error)


def point(epoch: float, m_recall: float) -> ValidationPoint:
    return ValidationPoint(step=round(1000 * epoch), epoch=epoch, pairs_seen=1, m_recall=m_recall, train_seconds=1.0)


@pytest.mark.parametrize("changes", [
    {}, {"budget": {"epochs_per_cell": 10.5}}, {"budget": {"device_seconds_per_cell": 60.0}},
    {"search": {"objective": "epochs_to_target", "target": "baseline"}},
], ids=["configurations", "epochs", "seconds", "target"])
def test_answers_and_numbers_are_those_of_a_plain_look_after_every_step(changes: dict[str, Any]) -> None:
    happened: set[str] = set()
    for seed in range(4):
        history = History(seed, **changes)
        for _ in range(150):
            history.step()
            history.compare()
            if history.chance.random() < 0.3:
                history.compare_shown()
        happened |= history.happened
    assert happened >= {
        "search", "confirm", "wait", "went on", "finished", "pruned", "failed", "paused", "left open", "restarted",
    }


def test_the_first_in_line_goes_on_whose_pause_is_over_even_if_it_was_moved_meanwhile() -> None:
    history = History(0)
    for _ in range(4):
        history.ask()
    line = list(history.ledger.trials.values())[:4]
    for trial, moment in zip(line, (9.0, 2.0, 1.0, 0.0), strict=True):
        trial.not_before = moment

    def first(now: float) -> PlannedTrial | None:
        found = next_trial(list(history.ledger.cells.values()), line, now=now, places=0)
        if isinstance(found, PlannedTrial) and found in line:
            line.remove(found)
            return found
        return None

    a, b, c, d = line
    assert first(1.0) is c
    d.not_before = 4.0  # it was ready, and was interrupted again
    assert [first(1.0), first(3.0), first(3.0)] == [None, b, None]
    assert [first(10.0), first(10.0), first(10.0)] == [a, d, None]
