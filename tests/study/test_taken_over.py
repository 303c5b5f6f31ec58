"""A driver that was paused inside `ask` and taken over meanwhile: nothing that it writes afterwards counts."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path

import pytest
from driven_ledgers import begin, point
from logged_studies import begun
from s3_server import endpoint, machine, prefix

from vsetune.config.spec.loading import parse_spec
from vsetune.config.study.cells import resolve_cells
from vsetune.config.study.study_spec import StudySpec
from vsetune.errors import Overtaken, StudyConflict
from vsetune.home import heartbeat
from vsetune.home.paths import remote_place
from vsetune.records.log import LogWriter
from vsetune.records.state import Attempt
from vsetune.records.studies import Studies, folder_of_study
from vsetune.records.writer import StudyWriter
from vsetune.search.configurations import Refusal
from vsetune.study.ledger import StudyLedger
from vsetune.study.study_home import held_home
from vsetune.study.trials import PlannedTrial

__all__ = ["endpoint", "machine", "prefix"]
pytestmark = pytest.mark.filterwarnings("default")  # the S3 server's own
STUDY = parse_spec(
    {"study": "tiny", "data": {"path": "x"}, "networks": [{"name": "vsepp"}], "losses": [{"name": "lmh"}],
     "search": {"configurations": 5, "sampler": "tpe", "at_once": 2}},
    StudySpec, where="test",
)
CELLS = resolve_cells(STUDY, where="test")
(CELL,) = (cell.name for cell in CELLS)


class Driver:
    """A process that runs the study; its trials last one validation."""

    def __init__(self, writer: StudyWriter, refuses: Refusal | None = None) -> None:
        self.writer = begun(writer, STUDY)
        self.ledger = StudyLedger(STUDY, CELLS, self.writer, refuses=refuses)
        self.ledger.recover()

    def begin(self) -> str | None:
        planned = self.ledger.next()
        if not isinstance(planned, PlannedTrial):
            return None
        name = planned.name
        begin(self.ledger, name, number=self.ledger.trials[name].attempts.number + 1)
        return name

    def end(self, name: str) -> None:
        m_recall = 50.0 + 3 * self.ledger.trials[name].number
        self.ledger.record_point(name, point(1, m_recall))
        self.ledger.close(name, "finished", summary={"epochs": 1.0})

    def run_all(self) -> None:
        while (name := self.begin()) is not None:
            self.end(name)


Take = Callable[[], StudyWriter]


@pytest.fixture
def take(
    machine: Callable[[str], None], monkeypatch: pytest.MonkeyPatch
) -> Iterator[Take]:
    """Takes the study, from whoever has it, on another machine each time."""
    monkeypatch.setattr(heartbeat.Holder, "is_gone", lambda holder: True)
    names = iter(("first", "second", "third"))
    with ExitStack() as held:

        def on_another_machine() -> StudyWriter:
            machine(next(names))
            folder = folder_of_study(STUDY.study)
            home = held.enter_context(held_home(folder))
            log = LogWriter(folder, remote_place(folder), on_overtaken=home.on_lost)
            held.callback(log.close)
            return StudyWriter(log)

        yield on_another_machine


def recorded(machine: Callable[[str], None]) -> list[Attempt]:
    """What the study's log says to a machine that had nothing of it."""
    machine("reader")
    return Studies().attempts(STUDY.study)


def tried(attempts: list[Attempt]) -> dict[str, Mapping[str, object]]:
    return {each.start.trial: dict(each.start.configuration) for each in attempts}


def test_a_draw_of_a_driver_that_was_taken_over_meanwhile_counts_for_nothing(
    take: Take, machine: Callable[[str], None]
) -> None:
    undisturbed = StudyWriter()
    Driver(undisturbed).run_all()

    later: list[Driver] = []
    draws: list[str] = []

    def paused(cell: str, configuration: object) -> str | None:
        """Between a draw and its record. The fourth draw is disturbed, while the third configuration is trained."""
        draws.append(cell)
        if len(draws) == 4:
            later.append(Driver(take()))
            third, fourth = later[0].begin(), later[0].begin()
            assert (third, fourth) == (f"{CELL}-c002-s0", f"{CELL}-c003-s0")
        return None

    first = Driver(take(), paused)
    for _ in range(2):
        first.end(first.begin() or "")
    running = first.begin()
    assert running is not None
    first.writer.settle()
    assert first.begin() is None
    assert first.ledger.outage is not None

    (second,) = later
    for name in (f"{CELL}-c002-s0", f"{CELL}-c003-s0"):
        second.end(name)
    second.run_all()
    second.writer.settle()
    assert tried(recorded(machine)).keys() == tried(undisturbed.attempts()).keys()
    assert len({str(each) for each in tried(recorded(machine)).values()}) == STUDY.search.configurations

    third_driver = Driver(take())
    assert not third_driver.ledger.has_work()
    assert len(third_driver.ledger.history(CELL)) == STUDY.search.configurations


def test_an_outcome_of_a_driver_that_was_taken_over_counts_for_nothing(
    take: Take, machine: Callable[[str], None]
) -> None:
    first = Driver(take())
    name = first.begin()
    assert name is not None
    first.writer.settle()
    second = Driver(take())
    first.end(name)
    for _ in range(2):
        with pytest.raises(Overtaken):
            first.writer.settle()
    (trial,) = second.ledger.history(CELL)
    assert trial.state.name == "RUNNING"
    second.writer.settle()
    (attempt,) = recorded(machine)
    assert (attempt.status, attempt.curve) == ("killed", ())


def test_a_driver_that_is_paused_inside_ask_holds_its_folder(tmp_path: Path) -> None:
    folder = tmp_path / "tiny"

    def paused(cell: str, configuration: object) -> str | None:
        with pytest.raises(StudyConflict), held_home(folder):
            pass
        return None

    with held_home(folder):
        assert Driver(StudyWriter(), paused).begin() is not None
