"""A driver that was paused inside `ask` and taken over meanwhile: nothing that it writes afterwards counts."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from s3_server import endpoint, machine, prefix
from vsetune.jobs.held_search import HeldSearch
from vsetune.tracking.guarded_store import GuardedStore
from vsetune.tracking.memory_store import MemoryStore

from vsetune.config.spec.loading import parse_spec
from vsetune.config.spec.paths import home
from vsetune.config.study.cells import resolve_cells
from vsetune.config.study.study_spec import StudySpec
from vsetune.errors import StorageError, StudyConflict
from vsetune.jobs.ledger import StudyLedger
from vsetune.jobs.study_home import held_home
from vsetune.jobs.trial_progress import Assignment
from vsetune.object_storage import lease
from vsetune.records.attempts import StudyRecord, ValidationPoint
from vsetune.search.configurations import Refusal

__all__ = ["endpoint", "machine", "prefix"]
pytestmark = pytest.mark.filterwarnings("default")  # the S3 server's own
STUDY = parse_spec(
    {"study": "tiny", "data": {"path": "x"}, "networks": [{"name": "vsepp"}], "losses": [{"name": "lmh"}],
     "search": {"configurations": 5, "sampler": "tpe", "at_once": 2}},
    StudySpec, where="test",
)
CELLS = resolve_cells(STUDY, where="test")
(CELL,) = (cell.name for cell in CELLS)
Check = Callable[[], None]


class Driver:
    """A process that runs the study; its trials last one validation."""

    def __init__(self, store: MemoryStore, file: Path, check: Check, refuses: Refusal | None = None) -> None:
        guarded = GuardedStore(store, check)
        guarded.open_study(StudyRecord("tiny", STUDY.fingerprint(), STUDY.to_plain()), resume=True)
        self.search = HeldSearch(
            "tiny", CELLS, STUDY.search, storage=f"sqlite:///{file}", refuses=refuses, check=check,
        )
        self.ledger = StudyLedger(STUDY, CELLS, guarded, self.search)
        self.ledger.recover()

    def begin(self) -> str | None:
        assignment = self.ledger.next()
        if not isinstance(assignment, Assignment):
            return None
        name = assignment.trial.trial
        number = self.ledger.trials[name].number + 1
        self.ledger.open_attempt(name, number=number, environment={}, protocol={}, inherited=[])
        return name

    def end(self, name: str) -> None:
        m_recall = 50.0 + 3 * self.ledger.trials[name].assignment.number
        self.ledger.record_point(name, ValidationPoint(10, 1.0, 640, m_recall, 1.0))
        self.ledger.close(name, "finished", summary={"epochs": 1.0})

    def run_all(self) -> None:
        while (name := self.begin()) is not None:
            self.end(name)


def tried(store: MemoryStore) -> list[tuple[str, dict[str, object]]]:
    return [(each.start.trial, dict(each.start.configuration)) for each in store.attempts("tiny")]


@pytest.fixture(params=["folder", "s3"])
def take(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], Check]]:
    """Takes the study, from whoever has it, on another machine each time."""
    with ExitStack() as held:
        if request.param == "folder":  # on a disk whose locks are not kept

            def on_a_folder() -> Check:
                return lambda: None

            yield on_a_folder
            return
        on_machine = request.getfixturevalue("machine")
        monkeypatch.setattr(lease.Holder, "is_gone", lambda holder: True)
        names = iter(("first", "second", "third"))

        def on_s3() -> Check:
            on_machine(next(names))
            return held.enter_context(held_home(home() / "runs" / "tiny")).check

        yield on_s3


def test_a_draw_of_a_driver_that_was_taken_over_meanwhile_counts_for_nothing(
    take: Callable[[], Check], tmp_path: Path
) -> None:
    undisturbed = MemoryStore()
    Driver(undisturbed, tmp_path / "undisturbed.db", lambda: None).run_all()

    store, file = MemoryStore(), tmp_path / "search.db"
    later: list[Driver] = []
    draws: list[str] = []

    def paused(cell: str, configuration: object) -> str | None:
        """Between a draw and its write. The fourth draw is disturbed, while the third configuration is trained."""
        draws.append(cell)
        if len(draws) == 4:
            later.append(Driver(store, file, take()))
            third, fourth = later[0].begin(), later[0].begin()
            assert (third, fourth) == (f"{CELL}-c002-s0", f"{CELL}-c003-s0")
        return None

    first = Driver(store, file, take(), paused)
    for _ in range(2):
        first.end(first.begin() or "")
    running = first.begin()
    assert running is not None
    assert first.begin() is None
    assert "taken" in str(first.ledger.search_outage)  # by the lease, or by the database

    (second,) = later
    for name in (f"{CELL}-c002-s0", f"{CELL}-c003-s0"):
        second.end(name)
    second.run_all()
    assert {name for name, _ in tried(store)} == {name for name, _ in tried(undisturbed)}
    assert len({str(configuration) for _, configuration in tried(store)}) == STUDY.search.configurations

    third_driver = Driver(store, file, take())
    assert not third_driver.ledger.has_work()
    assert len(third_driver.search.suggestions(CELL)) == STUDY.search.configurations


def test_an_outcome_told_by_a_driver_that_was_taken_over_counts_for_nothing(tmp_path: Path) -> None:
    """Its own look at the lease came before."""

    def search() -> HeldSearch:
        url = f"sqlite:///{tmp_path / 'search.db'}"
        return HeldSearch("tiny", CELLS, STUDY.search, storage=url, refuses=None, check=lambda: None)

    first = search()
    assert first.ask(CELL) is not None
    second = search()
    for _ in range(2):
        with pytest.raises(StorageError, match=r"^search\.storage: .*another process has taken the study over"):
            first.tell(CELL, 0, "failed", curve=[])
    (suggestion,) = second.suggestions(CELL)
    assert suggestion.is_open
    second.tell(CELL, 0, "finished", curve=[(1.0, 40.0)])
    assert not second.suggestions(CELL)[0].is_open


def test_a_driver_that_is_paused_inside_ask_holds_its_folder(tmp_path: Path) -> None:
    folder = tmp_path / "tiny"

    def paused(cell: str, configuration: object) -> str | None:
        with pytest.raises(StudyConflict, match="another process is running it"), held_home(folder):
            pass
        return None

    with held_home(folder) as held:
        assert Driver(MemoryStore(), tmp_path / "search.db", held.check, paused).begin() is not None
