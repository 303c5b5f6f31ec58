"""Whatever happens to a study, in whatever order: once it is let be, its log is that of an undisturbed run."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from driven_ledgers import begin, cells_of, ledger_of, point
from fake_s3 import FakeS3
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test
from tiny_studies import tiny_study

from vsetune.errors import Overtaken, StorageError
from vsetune.home import s3
from vsetune.records import log as logs
from vsetune.records.log import LogWriter, bring_up_to_date, lines_of
from vsetune.records.state import StudyState
from vsetune.records.writer import StudyWriter
from vsetune.study.ledger import StudyLedger
from vsetune.study.trials import PlannedTrial

EPOCHS = 3
STUDY = tiny_study(
    {"name": "lmh"}, {"name": "lseh"}, search={"configurations": 4, "sampler": "tpe", "at_once": 1},
    seeds=[7, 8], training={"epochs": EPOCHS, "batch_size": 8}, resources={"retries": 2},
)
URL = "s3://home/runs/tiny"
MACHINES = st.sampled_from(["one", "two", "three"])
Recorded = Mapping[str, tuple[Mapping[str, Any], str, tuple[tuple[float, float], ...]]]
"""By trial: configuration, status, curve."""


def m_recall(trial: str, epoch: int) -> float:
    """What training gives: the same for every execution of a trial."""
    return 40.0 + 5 * epoch + sum(map(ord, trial)) % 17


def fails(trial: str) -> bool:
    """Whether the trial fails by itself, after its first validation."""
    return "-c001-" in trial and "lseh" in trial


class Driver:
    """One process that runs the study. folder: on its machine. checkpoints: number of validations of each trial, shared
    by all workers of the home."""

    def __init__(self, folder: Path, url: str | None, checkpoints: dict[str, int]) -> None:
        self.now, self.running, self._checkpoints = 0.0, dict[str, int](), checkpoints
        self.heard: list[str] = []
        self.log = LogWriter(folder, url, on_overtaken=self.heard.append)
        self.writer = StudyWriter(self.log)
        self.ledger: StudyLedger = ledger_of(STUDY, self.writer, clock=lambda: self.now)
        self.ledger.places = 2

    def ask(self) -> str | None:
        self.now += 700.0  # every pause is over
        planned = self.ledger.next()
        if not isinstance(planned, PlannedTrial):
            return None
        self._open(planned.name)
        return planned.name

    def _open(self, trial: str) -> None:
        kept = self._checkpoints.get(trial, 0)
        inherited = [point(epoch, m_recall(trial, epoch)) for epoch in range(1, kept + 1)]
        begin(self.ledger, trial, *inherited, number=self.ledger.trials[trial].attempts.number + 1)
        self.running[trial] = kept

    def train(self, trial: str, *, is_kept: bool = True) -> None:
        """Up to the next validation, or to the end. is_kept: with a checkpoint."""
        done = self.running[trial]
        if done == EPOCHS or (done and fails(trial)):
            del self.running[trial]
            self.ledger.close(trial, "failed" if fails(trial) else "finished", summary={"epochs": float(done)},
                              error="numeric: the loss is not finite" if fails(trial) else None)
            return
        self.running[trial] = done + 1
        self.ledger.record_point(trial, point(done + 1, m_recall(trial, done + 1)))
        if is_kept:
            self._checkpoints[trial] = done + 1

    def interrupt(self, trial: str, *, was_asked: bool) -> None:
        del self.running[trial]
        self.ledger.interrupted(trial, "storage: the server is away", was_asked=was_asked)

    def run_all(self) -> None:
        while (trial := self.ask()) is not None:
            while trial in self.running:
                self.train(trial)

    def die(self) -> None:
        """What it had not sent stays on its machine."""
        if self.log._sender is not None:
            self.log._sender._steps.close(0.0)


def recorded(state: StudyState) -> Recorded:
    return {
        name: (dict(trial[0].start.configuration), trial[-1].status, tuple(trial.longest_curve))
        for name, trial in state.trials.items()
    }


def undisturbed() -> Recorded:
    writer = StudyWriter()
    driver = Driver.__new__(Driver)
    driver.now, driver.running, driver._checkpoints, driver.writer = 0.0, {}, {}, writer
    driver.ledger = ledger_of(STUDY, writer, clock=lambda: driver.now)
    driver.ledger.places = 2
    driver.run_all()
    return recorded(writer.state)


UNDISTURBED = undisturbed()


class AnyOrder(RuleBasedStateMachine):
    """Drivers on three machines without a common disk, and the server of their home."""

    url: str | None = URL

    def __init__(self) -> None:
        super().__init__()
        self.server = s3._client()
        assert isinstance(self.server, FakeS3)
        self.server.objects.clear()
        self.server.is_away, self.server.lost_answers = False, 0
        self.folder = Path(tempfile.mkdtemp())
        self.checkpoints: dict[str, int] = {}
        self.drivers: dict[str, Driver] = {}
        self.latest: Driver | None = None
        """The driver that nobody can have overtaken, if that is known."""
        self.ended: dict[str, Any] = {}

    def pick(self, number: int) -> tuple[Driver, str] | None:
        """A running trial of some driver."""
        running = [(driver, trial) for driver in self.drivers.values() for trial in driver.running]
        return running[number % len(running)] if running else None

    @rule(machine=MACHINES)
    def start(self, machine: str) -> None:
        """Also over a driver that lives: on another machine, then both go on; on its own, it was killed."""
        if self.url is None:
            machine = "one"
        if machine in self.drivers:
            self.drivers.pop(machine).die()
        self.latest = None
        with suppress(StorageError):  # the server is away, or its answer was lost
            self.latest = self.drivers[machine] = Driver(self.folder / machine, self.url, self.checkpoints)

    @precondition(lambda self: self.drivers)
    @rule(number=st.integers(0, 5))
    def kill(self, number: int) -> None:
        machine = list(self.drivers)[number % len(self.drivers)]
        self.drivers.pop(machine).die()

    @precondition(lambda self: self.drivers)
    @rule(number=st.integers(0, 5), steps=st.integers(1, 5))
    def work(self, number: int, steps: int) -> None:
        """One driver for a while, whatever the others do."""
        driver = list(self.drivers.values())[number % len(self.drivers)]
        for _ in range(steps):
            for trial in list(driver.running) or [driver.ask()]:
                if trial is not None:
                    driver.train(trial)

    @precondition(lambda self: self.drivers)
    @rule(number=st.integers(0, 5))
    def ask(self, number: int) -> None:
        list(self.drivers.values())[number % len(self.drivers)].ask()

    @rule(number=st.integers(0, 9), is_kept=st.booleans())
    def train(self, number: int, is_kept: bool) -> None:
        if (found := self.pick(number)) is not None:
            found[0].train(found[1], is_kept=is_kept)

    @rule(number=st.integers(0, 9), was_asked=st.booleans())
    def interrupt(self, number: int, was_asked: bool) -> None:
        if (found := self.pick(number)) is not None:
            found[0].interrupt(found[1], was_asked=was_asked)

    @precondition(lambda self: self.url is not None)
    @rule(is_away=st.booleans())
    def outage(self, is_away: bool) -> None:
        self.server.is_away = is_away

    @precondition(lambda self: self.url is not None and any(driver.running for driver in self.drivers.values()))
    @rule(number=st.integers(0, 9))
    def lose_an_answer(self, number: int) -> None:
        """The server stores what a driver sends, its answer is lost, and the log grows before it is sent again."""
        found = self.pick(number)
        assert found is not None
        driver, trial = found
        self.server.is_away, self.server.lost_answers = False, 1
        driver.train(trial)
        with suppress(StorageError):
            driver.writer.settle(0.05)
        if trial in driver.running:
            driver.train(trial)
        self.server.lost_answers = 0
        self.settle(list(self.drivers.values()).index(driver))

    @precondition(lambda self: self.drivers)
    @rule(number=st.integers(0, 5))
    def settle(self, number: int) -> None:
        """A driver that another one has overtaken hears of it, and what it added is nowhere."""
        driver = list(self.drivers.values())[number % len(self.drivers)]
        try:
            driver.writer.settle(0.05 if self.server.is_away else 30.0)
        except Overtaken:
            assert driver is not self.latest
            assert len(driver.heard) == 1
            with pytest.raises(Overtaken):
                driver.writer.settle(0.05)
        except StorageError:
            assert self.server.is_away

    @invariant()
    def what_has_ended_stays_as_it_is(self) -> None:
        known = self.read()
        for trial, before in self.ended.items():
            assert known[trial] == before
        self.ended = {trial: each for trial, each in known.items() if each[1] in ("finished", "failed")}
        for trial, (configuration, _, curve) in known.items():
            assert configuration == UNDISTURBED[trial][0]
            assert curve == UNDISTURBED[trial][2][: len(curve)]

    def read(self) -> Recorded:
        """The log that counts, by a reader that had nothing."""
        away, self.server.is_away = self.server.is_away, False
        path = self.folder / "one" / logs.LOG_FILE
        if self.url is not None:
            path = self.folder / "reader" / logs.LOG_FILE
            shutil.rmtree(path.parent, ignore_errors=True)
            bring_up_to_date(path, self.url)
        self.server.is_away = away
        state = StudyState()
        for line in lines_of(path, number=0, strict=True):
            state.read(line)
        return recorded(state)

    def teardown(self) -> None:
        self.server.is_away, self.server.lost_answers = False, 0
        try:
            for machine in ("one", "last"):
                self.start(machine)
                last = self.drivers["one" if self.url is None else machine]
                last.run_all()
                last.writer.settle()
            assert self.read() == UNDISTURBED
        finally:
            for driver in self.drivers.values():
                driver.die()
            shutil.rmtree(self.folder, ignore_errors=True)


class OneDisk(AnyOrder):
    """With a folder as home: one driver at a time, by its lock."""

    url = None


@pytest.fixture
def orders(monkeypatch: pytest.MonkeyPatch) -> Callable[[type[AnyOrder], int], None]:
    """orders(machine, N): N orders."""
    server = FakeS3()
    monkeypatch.setattr(s3, "_client", lambda *words, **named: server)
    monkeypatch.setattr(logs, "_SEND_EVERY_S", 3600.0)
    monkeypatch.setattr("vsetune.study.ledger._SETTLE_WITHIN_S", 0.2)
    assert cells_of(STUDY)

    def run(machine: type[AnyOrder], examples: int) -> None:
        run_state_machine_as_test(machine, settings=settings(
            max_examples=examples, stateful_step_count=40, deadline=None, derandomize=True, database=None,
            phases=[Phase.generate],  # an order that fails is shown as it was, at once
            suppress_health_check=list(HealthCheck),
        ))

    return run


@pytest.mark.parametrize("machine", [AnyOrder, OneDisk], ids=["object storage", "folder"])
def test_in_any_order(machine: type[AnyOrder], orders: Callable[[type[AnyOrder], int], None]) -> None:
    orders(machine, 25)


@pytest.mark.slow
@pytest.mark.parametrize("machine", [AnyOrder, OneDisk], ids=["object storage", "folder"])
def test_in_hundreds_of_orders(machine: type[AnyOrder], orders: Callable[[type[AnyOrder], int], None]) -> None:
    orders(machine, 400)
