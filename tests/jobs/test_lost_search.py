"""A search whose database is lost, or older than the record, is rebuilt from the record: nothing that ended runs again.
"""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

import pytest
from vsetune.tracking.memory_store import MemoryStore

from vsetune.config.spec.loading import parse_spec
from vsetune.config.study.cells import Cell, resolve_cells
from vsetune.config.study.study_spec import StudySpec
from vsetune.errors import StudyConflict
from vsetune.jobs.ledger import StudyLedger
from vsetune.jobs.study_progress import rebuilt_line
from vsetune.jobs.trial_progress import Assignment
from vsetune.records.attempts import StudyRecord, ValidationPoint
from vsetune.search.configurations import ConfigurationSearch

STUDY = parse_spec(
    {"study": "tiny", "data": {"path": "x"}, "networks": [{"name": "vsepp"}], "losses": [{"name": "lmh"}],
     "search": {"configurations": 5, "sampler": "tpe", "at_once": 1}, "seeds": [7, 8]},
    StudySpec, where="test",
)
CELLS = resolve_cells(STUDY, where="test")
(CELL,) = CELLS


class Driver:
    """A process that runs the study; opened anew it stands for a resumed one."""

    def __init__(self, store: MemoryStore, file: Path) -> None:
        store.open_study(StudyRecord("tiny", STUDY.fingerprint(), STUDY.to_plain()), resume=True)
        self.store = store
        self.search = ConfigurationSearch(
            "tiny", CELLS, STUDY.search, storage=f"sqlite:///{file}", refuses=refuses,
        )
        self.ledger = StudyLedger(STUDY, CELLS, store, self.search)
        self.ledger.recover()

    def begin(self) -> str | None:
        assignment = self.ledger.next()
        if not isinstance(assignment, Assignment):
            return None
        name = assignment.trial.trial
        executions[name] += 1
        self.ledger.open_attempt(name, number=executions[name], environment={}, protocol={}, inherited=[])
        return name

    def run(self, most: int = 1000) -> None:
        """Trials that end, one of them failed and one stopped."""
        for _ in range(most):
            name = self.begin()
            if name is None:
                return
            number = self.ledger.trials[name].assignment.number
            self.ledger.record_point(name, ValidationPoint(10, 0.5, 640, 40.0 + number, 1.0))
            statuses = {1: "failed", 3: "pruned"}
            self.ledger.close(name, statuses.get(number, "finished"), summary={"epochs": 0.5})  # type: ignore[arg-type]


executions: Counter[str] = Counter()
"""As the folders of the trials count them, which are still there."""
refused: list[Mapping[str, object]] = []


def refuses(cell: str, configuration: Mapping[str, object]) -> str | None:
    """The third draw, and the same whenever it is made again."""
    if configuration not in refused:
        refused.append(configuration)
    return "a test" if refused.index(configuration) == 2 else None


@pytest.fixture(autouse=True)
def _forgotten() -> None:
    refused.clear()
    executions.clear()


def records(store: MemoryStore) -> list[tuple[str, str, dict[str, object]]]:
    return [(each.start.trial, each.status, dict(each.start.configuration)) for each in store.attempts("tiny")]


def asked(driver: Driver) -> list[tuple[int, bool]]:
    return [(each.number, each.is_open) for each in driver.search.suggestions(CELL.name)]


def undisturbed(folder: Path) -> tuple[MemoryStore, Driver]:
    store = MemoryStore()
    driver = Driver(store, folder / "undisturbed.db")
    driver.run()
    return store, driver


def test_a_finished_study_whose_search_is_gone_trains_nothing_again(tmp_path: Path) -> None:
    store, driver = undisturbed(tmp_path)
    before = records(store)
    assert rebuilt_line(driver.ledger) is None
    resumed = Driver(store, tmp_path / "new.db")
    assert not resumed.ledger.has_work()
    assert records(store) == before
    assert asked(resumed) == asked(driver)
    assert rebuilt_line(resumed.ledger) == (
        "tiny: its search lacked 6 configurations of the record (its database is gone, or an older one); they are "
        "rebuilt from the record, and nothing that has ended is trained again"
    )
    assert rebuilt_line(Driver(store, tmp_path / "new.db").ledger) is None


@pytest.mark.parametrize("kept", [0, 1, 3], ids=["gone", "after one trial", "after three"])
@pytest.mark.parametrize("is_running", [True, False])
def test_a_half_finished_study_goes_on_from_its_record(tmp_path: Path, kept: int, is_running: bool) -> None:
    whole, undisturbed_driver = undisturbed(tmp_path)
    refused.clear()
    executions.clear()
    store, file = MemoryStore(), tmp_path / "search.db"
    first = Driver(store, file)
    first.run(kept)
    copy(file, tmp_path / "older.db")
    first.run(4 - kept)
    if is_running:
        assert first.begin() is not None
    for path in tmp_path.glob("search.db*"):
        path.unlink()
    if kept:
        copy(tmp_path / "older.db", file)
    second = Driver(store, file)
    second.run()
    ended = Counter(trial for trial, status, _ in records(store) if status != "killed")
    assert set(ended.values()) == {1}
    assert len(ended) == len(records(whole))
    assert len(asked(second)) == len(asked(undisturbed_driver))
    configurations = [str(configuration) for trial, status, configuration in records(store) if status != "killed"]
    assert len(set(configurations)) == len({str(configuration) for _, _, configuration in records(whole)})
    assert not Driver(store, file).ledger.has_work()


def copy(database: Path, to: Path) -> None:
    """As a backup does, what is not in the file itself included."""
    for path in database.parent.glob(f"{database.name}*"):
        shutil.copy(path, to.with_name(path.name.replace(database.name, to.name)))


def test_a_search_that_is_another_than_that_of_the_record_is_refused_in_one_line(tmp_path: Path) -> None:
    store, _ = undisturbed(tmp_path)
    other = ConfigurationSearch("tiny", CELLS, STUDY.search.model_copy(update={"seed": 5}),
                                storage=f"sqlite:///{tmp_path / 'other.db'}")
    for _ in range(3):
        suggestion = other.ask(CELL.name)
        assert suggestion is not None
        other.tell(CELL.name, suggestion.number, "finished", curve=[(0.5, 40.0)])
    with pytest.raises(StudyConflict) as caught:
        Driver(store, tmp_path / "other.db")
    assert str(caught.value) == (
        f"search.storage: sqlite:///{tmp_path / 'other.db'} has another configuration 1 of {CELL.name} than the record "
        "of the study; bring back the database that it began with, or move this one away: it is rebuilt from the record"
    )


def test_a_cell_that_searches_nothing_is_rebuilt_too(tmp_path: Path) -> None:
    study = parse_spec({**STUDY.to_plain(), "networks": [{"name": "vsepp", "search": "none"}],
                        "losses": [{"name": "lmh", "search": "none"}]}, StudySpec, where="test")
    cells: list[Cell] = resolve_cells(study, where="test")
    store = MemoryStore()
    for name in ("one.db", "other.db"):
        store.open_study(StudyRecord("tiny", study.fingerprint(), study.to_plain()), resume=True)
        search = ConfigurationSearch("tiny", cells, study.search, storage=f"sqlite:///{tmp_path / name}")
        ledger = StudyLedger(study, cells, store, search)
        ledger.recover()
        while isinstance(assignment := ledger.next(), Assignment):
            trial = assignment.trial.trial
            ledger.open_attempt(trial, number=1, environment={}, protocol={}, inherited=[])
            ledger.record_point(trial, ValidationPoint(10, 1.0, 640, 40.0, 1.0))
            ledger.close(trial, "finished", summary={})
    assert len(store.attempts("tiny")) == len(study.seeds)
