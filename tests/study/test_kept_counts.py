"""Whatever happens to trials, what the ledger has counted is what counting them anew gives, and so are its answers."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any, get_args

import pytest
from logged_studies import begun
from recounting.recounted_tally import RecountedTally

from vsetune.config.spec.loading import parse_spec
from vsetune.config.study.cells import Cell, resolve_cells
from vsetune.config.study.study_spec import StudySpec
from vsetune.records.events import TARGET_REACHED, ValidationPoint
from vsetune.records.writer import StudyWriter
from vsetune.search.configurations import ConfigurationSearch
from vsetune.study.cell_budget import at_once
from vsetune.study.confirmations import Confirming, confirmations_of
from vsetune.study.ledger import StudyLedger
from vsetune.study.study_tally import TrialState
from vsetune.study.trials import PlannedTrial, Requeued

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
        self.chance, self.now, self.in_line, self.happened = random.Random(seed), 0.0, [], set()  # type: ignore[var-annotated]
        self.writer = StudyWriter()
        self.start()

    def start(self, *, retry_failed: bool = False) -> None:
        begun(self.writer, self.study)
        search = ConfigurationSearch(self.cells, self.study.search, self.writer)
        self.ledger = StudyLedger(
            self.study, self.cells, self.writer, search, clock=lambda: self.now, confirming=CONFIRMING
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
        trials, counts = self.ledger.trials, RecountedTally.over(self.ledger.tally, self.ledger.trials)
        ready = next((name for name in self.in_line if trials[name].not_before <= self.now), None)
        if ready is not None:
            return ready
        asking = [
            cell for cell in self.cells
            if not counts.count("disturbed", cell) and not counts.is_exhausted(cell)
            and self.ledger._goals.objective(cell) is not None
            and counts.count("open", cell) < at_once(self.study.search, counts.asked(cell))
        ]
        if untried := [cell for cell in asking if not counts.asked(cell)]:
            return min(untried, key=lambda cell: counts.budget(cell).committed)
        for cell in self.cells:
            if (searched := counts.searched(cell)) is not None:
                for planned in confirmations_of(self.study, cell, searched, CONFIRMING, self.ledger._writer.state):
                    if planned.name not in trials and planned.name not in self.was_over:
                        return planned.name
        if asking:
            return min(asking, key=lambda cell: counts.budget(cell).committed)
        return "wait" if counts.count("due") else "done"

    def counted(self, counts: Any) -> list[Any]:
        of_study = [counts.count(state) for state in ("open", "due", "running")]
        return of_study + [
            (
                counts.asked(cell), counts.count("open", cell), counts.count("disturbed", cell), counts.budget(cell),
                counts.is_exhausted(cell), counts.is_searching(cell),
                [trial.name for trial in counts.searched(cell) or ()],
            )
            for cell in self.cells
        ]

    def compare_shown(self) -> None:
        """What people and dashboards are shown, with what looking through all trials gives."""
        tally, anew = self.ledger.tally, RecountedTally.over(self.ledger.tally, self.ledger.trials)
        states = ("ended", *get_args(TrialState))
        assert [tally.count(state) for state in states] == [anew.count(state) for state in states]
        assert set(tally.closed) >= {name for name, trial in self.ledger.trials.items() if trial.is_closed}
        for cell in self.cells:
            kept, plain = dict(vars(tally.cell(cell.name))), dict(vars(anew.cell(cell.name)))
            for key in ("charged_epochs", "wasted_epochs", "device_seconds"):
                assert kept.pop(key) == pytest.approx(plain.pop(key), rel=1e-9)
            assert kept == plain

    def compare(self) -> None:
        tally, anew = self.ledger.tally, RecountedTally.over(self.ledger.tally, self.ledger.trials)
        assert self.counted(tally) == self.counted(anew)
        assert [tally.device_seconds(cell) for cell in self.cells] == pytest.approx(
            [anew.device_seconds(cell) for cell in self.cells], rel=1e-12
        )


def point(epoch: float, m_recall: float) -> ValidationPoint:
    return ValidationPoint(step=round(1000 * epoch), epoch=epoch, pairs_seen=1, m_recall=m_recall, train_seconds=1.0)


@pytest.mark.parametrize("changes", [
    {}, {"budget": {"epochs_per_cell": 10.5}}, {"budget": {"device_seconds_per_cell": 60.0}},
    {"search": {"objective": "epochs_to_target", "target": "baseline"}},
], ids=["configurations", "epochs", "seconds", "target"])
def test_counts_and_answers_are_those_of_a_plain_recount_after_every_step(changes: dict[str, Any]) -> None:
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
    moments = {"a": 9.0, "b": 2.0, "c": 1.0, "d": 0.0}
    line = Requeued(not_before=lambda name: moments[name])
    for name in "abcd":
        line.add(name)
    assert [line.next(1.0)] == ["c"]
    moments["d"] = 4.0  # it was ready, and was interrupted again
    assert [line.next(1.0), line.next(3.0), line.next(3.0)] == [None, "b", None]
    assert [line.next(10.0), line.next(10.0), line.next(10.0)] == ["a", "d", None]
