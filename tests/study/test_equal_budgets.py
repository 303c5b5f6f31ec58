"""Whatever happens to trials, the searches of all cells are charged the same epochs, to one training."""

from __future__ import annotations

import random
from typing import Any

import pytest
from driven_ledgers import ledger_of

from vsetune.board.building import build
from vsetune.board.rows import Row
from vsetune.config.spec.loading import parse_spec
from vsetune.config.study.study_spec import StudySpec
from vsetune.records.events import ValidationPoint
from vsetune.records.writer import StudyWriter
from vsetune.study.trials import PlannedTrial

WHOLE, GIVEN, WORKERS = 12.0, 40.0, 5
FATES = {  # of the trials of a cell: how many in a hundred are stopped, fail; stopped ones until which epoch
    "lmh": (0, 0, 12), "lseh": (90, 0, 12), "lsh": (100, 0, 1), "irtm": (40, 20, 9), "luwm": (0, 30, 12),
}


class Cluster:
    """A study whose workers finish, stop, fail, die and leave by chance; now and then its driver is killed."""

    def __init__(self, seed: int) -> None:
        self.study = parse_spec({
            "study": "even", "data": {"path": "x"}, "networks": [{"name": "vsepp"}], "baseline": "lmh",
            "losses": [{"name": name} for name in FATES],
            "training": {"epochs": WHOLE}, "search": {"configurations": 3, "sampler": "random"},
            "scheduler": {"kind": "patience", "grace_epochs": 1},
            "budget": {"epochs_per_cell": GIVEN}, "resources": {"retries": 1}, "seeds": [0],
        }, StudySpec, where="test")
        self.chance, self.now = random.Random(seed), 0.0
        self.writer = StudyWriter()
        self.fates: dict[str, tuple[str, int]] = {}
        self.start()

    def start(self) -> None:
        self.running: list[str] = []
        self.ledger = ledger_of(self.study, self.writer, clock=lambda: self.now)

    def run(self) -> None:
        while self.ledger.has_work():
            answer = self.ledger.next() if len(self.running) < WORKERS else "wait"
            if isinstance(answer, PlannedTrial):
                self.open(answer.name, answer.spec.loss.name)
            elif self.running:
                self.advance(self.chance.choice(self.running))
            elif answer == "done":  # trials were left open
                self.start()
            self.now += 5.0
            if self.chance.random() < 0.005:
                self.start()

    def open(self, name: str, loss: str) -> None:
        progress = self.ledger.trials[name]
        points = [point(epoch) for epoch, _ in progress.curve]
        self.ledger.open_attempt(
            name, number=progress.attempts.number + 1, environment={}, protocol={"validate_every_steps": 1},
            inherited=points,
        )
        self.running.append(name)
        stopped, failed, latest = FATES[loss]
        drawn = self.chance.uniform(0, 100)
        fate = "pruned" if drawn < stopped else "failed" if drawn < stopped + failed else "finished"
        epoch = int(WHOLE) if fate == "finished" else self.chance.randint(1, latest)
        self.fates.setdefault(name, (fate, epoch))

    def advance(self, name: str) -> None:
        if self.chance.random() < 0.05:
            self.ledger.interrupted(name, "it died", was_asked=self.chance.random() < 0.3)
            self.running.remove(name)
            return
        epoch, (fate, last) = self.ledger.trials[name].epoch + 1, self.fates[name]
        if epoch <= last:
            self.ledger.record_point(name, point(epoch))
        if epoch >= last:
            self.ledger.close(name, fate, summary={}, error=None)  # type: ignore[arg-type]
            self.running.remove(name)

    def rows(self) -> list[Row]:
        return list(build(self.writer.attempts(), baseline="lmh").rows)


def point(epoch: float) -> ValidationPoint:
    return ValidationPoint(step=int(epoch), epoch=epoch, pairs_seen=1, m_recall=20 + epoch, train_seconds=epoch)


@pytest.mark.parametrize("seed", range(6))
def test_the_searches_of_all_cells_are_charged_the_same_to_one_training(seed: int) -> None:
    cluster = Cluster(seed)
    cluster.run()
    statuses = {trial.status for trial in cluster.ledger.trials.values()}
    assert statuses == {"finished", "pruned", "failed"}
    budgets: dict[str, Any] = {row.loss: row.search_budget for row in cluster.rows()}
    charged = [budget.charged for budget in budgets.values()]
    assert max(charged) - min(charged) <= WHOLE
    assert all(abs(each - GIVEN) <= WHOLE / 2 for each in charged)
    for budget in budgets.values():
        assert budget.trained == budget.charged or budget.failed > 0
        assert bool(budget.why) == (round(budget.trained, 1) != GIVEN), budget.words
