"""What recording validations costs whoever reports them, until MLflow and Optuna have them all.

    PYTHONPATH=platform python benchmarks/recording.py [--trials 24] [--points 100] [--rate 2000]

Trials go on at once and report in turn. Three ways, each on a SQLite file and, where its programs are installed, on a
PostgreSQL server of its own (left out with a line that says so where they are not):

- directly: whoever reports logs the validation in MLflow and reports it to Optuna, as callbacks of Ray Tune do. It is
  so slow that each trial has only `--slow-points` of them;
- requests: through the journal; its thread sends MLflow a request for each attempt, as it must to a server;
- rows: through the journal; its thread writes one transaction for all attempts. This is what a study does.

A second: from the first report until everything is delivered and every trial's end is told to the search. A report: the
time of the caller, mean and 99th percentile in milliseconds; an end: of telling the search the whole trial. Reports
come at `--rate` a second while the thread works. Takes a minute. Expect at least 1,000 points a second and at most 1 ms
a report on rows.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import optuna
from optuna.distributions import FloatDistribution
from vsetune.tracking import AttemptStart, JournaledStore, StudyRecord, ValidationPoint, open_store

from vsetune.config.spec.loading import parse_spec
from vsetune.config.study.cells import resolve_cells
from vsetune.config.study.study_spec import StudySpec
from vsetune.search.configurations import ConfigurationSearch

CELL = "vsepp.lseh"
STUDY = StudyRecord("recording", "f00d", {})
NUMBERS = (
    "train_loss", "learning_rate", "load_seconds", "validation_seconds", "device_seconds", "pairs_per_second", "i2t_r1",
    "i2t_r5", "i2t_r10", "t2i_r1", "t2i_r5", "t2i_r10", "rsum",
)


class Measured(NamedTuple):
    """points: how many. seconds: until all were everywhere. reports, ends: seconds of the caller, each."""

    points: int
    seconds: float
    reports: list[float]
    ends: list[float]

    @property
    def rate(self) -> float:
        return self.points / self.seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=24)
    parser.add_argument("--points", type=int, default=100, help="of each trial")
    parser.add_argument("--slow-points", type=int, default=5, help="of each trial where they are logged directly")
    parser.add_argument("--rate", type=float, default=2000, help="reports a second, as far as they are taken")
    arguments = parser.parse_args()
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    print(f"{'':24} {'points/s':>9} {'ms a report':>12} {'99 %':>7} {'ms an end':>10}")
    with tempfile.TemporaryDirectory() as folder, ExitStack() as servers:
        for name, database in databases(Path(folder), servers):
            direct = shown(f"{name}, directly", directly(database, arguments.trials, arguments.slow_points))
            requests, rows = (
                shown(f"{name}, {way}", journaled(database, way, arguments)) for way in ("requests", "rows")
            )
            print(f"{name}, ratio of points: {rows.rate / direct.rate:.1f} to directly, "
                  f"{rows.rate / requests.rate:.1f} to requests")


def databases(folder: Path, servers: ExitStack) -> Iterator[tuple[str, Callable[[str], str]]]:
    """Names, and what makes an empty database and returns its URL; one whose programs are missing is left out."""
    folder.chmod(0o755)  # PostgreSQL's server may have to run as another user
    (folder / "sqlite").mkdir()
    yield "sqlite", lambda name: f"sqlite:///{folder / 'sqlite' / name}.db"
    sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "shared"))
    import pytest
    from real_servers import postgres

    try:
        made = servers.enter_context(postgres(folder))
    except pytest.skip.Exception as reason:
        print(f"postgresql left out: {reason}")
        return
    yield "postgresql", made


def shown(name: str, measured: Measured) -> Measured:
    late = statistics.quantiles(measured.reports, n=100)[-1]
    print(f"{name:24} {measured.rate:9.0f} {1000 * statistics.mean(measured.reports):12.3f} {1000 * late:7.2f} "
          f"{1000 * statistics.mean(measured.ends):10.2f}", flush=True)
    return measured


def directly(database: Callable[[str], str], trials: int, points: int) -> Measured:
    """MLflow and Optuna by their own calls, one point at a time."""
    with opened(database("tracking_directly")) as store:
        study = optuna.create_study(storage=database("search_directly"), direction="maximize")
        space: dict[str, Any] = {"loss.margin": FloatDistribution(0.0, 1.0)}
        asked = {store.start_attempt(start(number)): study.ask(space) for number in range(trials)}
        reports, ends = Times(), Times()
        begin = time.perf_counter()
        for step in range(1, points + 1):
            for attempt_id, trial in asked.items():
                with reports.one():
                    store.record_points(attempt_id, [point(step)])
                    trial.report(point(step).m_recall, step)
        for trial in asked.values():
            with ends.one():
                study.tell(trial, point(points).m_recall)
        return Measured(trials * points, time.perf_counter() - begin, reports.seconds, ends.seconds)


def journaled(database: Callable[[str], str], way: str, arguments: argparse.Namespace) -> Measured:
    """Through the journal, and to the search when a trial ends, as a study does."""
    search = searching(database(f"search_{way}"))
    with opened(database(f"tracking_{way}")) as inner, tempfile.TemporaryDirectory() as folder:
        if way == "requests":
            inner._rows = None
        store = JournaledStore(lambda: inner, Path(folder))
        store.open_study(STUDY, resume=True)
        trials = range(arguments.trials)
        asked = [(store.start_attempt(start(number)), search.ask(CELL).number) for number in trials]
        assert store.flush(120) == 0
        reports, ends = Times(), Times()
        begin = time.perf_counter()
        for step in range(1, arguments.points + 1):
            for number, (attempt_id, _) in enumerate(asked):
                due = begin + (arguments.trials * (step - 1) + number) / arguments.rate
                time.sleep(max(0.0, due - time.perf_counter()))
                with reports.one():
                    store.record_points(attempt_id, [point(step)])
        curve = [(point(step).epoch, point(step).m_recall) for step in range(1, arguments.points + 1)]
        for _, number in asked:
            with ends.one():
                search.tell(CELL, number, "finished", curve=curve)
        assert store.flush(600) == 0
        seconds = time.perf_counter() - begin
        assert store.close(10) == 0
        assert all(len(attempt.curve) == arguments.points for attempt in inner.attempts(STUDY.name))
    return Measured(arguments.trials * arguments.points, seconds, reports.seconds, ends.seconds)


class Times:
    """Seconds of each of many calls."""

    def __init__(self) -> None:
        self.seconds: list[float] = []

    @contextmanager
    def one(self) -> Iterator[None]:
        begin = time.perf_counter()
        yield
        self.seconds.append(time.perf_counter() - begin)


@contextmanager
def opened(uri: str) -> Iterator[Any]:
    """MLflow's tables in an empty database, with the study in it."""
    with tempfile.TemporaryDirectory() as artifacts:
        store = open_store(uri, Path(artifacts), curve_plots=False)
        store.open_study(STUDY, resume=False)
        yield store


def searching(storage: str) -> ConfigurationSearch:
    """Draws at random: what a draw takes is not measured here."""
    plain = {
        "study": STUDY.name, "data": {"path": "none"}, "networks": [{"name": "vsepp"}], "baseline": "lseh",
        "losses": [{"name": "lseh"}], "training": {"epochs": 100},
        "search": {"training": {"learning_rate": "default"}, "sampler": "random", "configurations": 6000},
    }
    study = parse_spec(plain, StudySpec, where="benchmark")
    cells = resolve_cells(study, where="benchmark")
    assert [cell.name for cell in cells] == [CELL]
    return ConfigurationSearch(STUDY.name, list(cells), study.search, storage=storage)


def start(number: int) -> AttemptStart:
    return AttemptStart(STUDY.name, f"{CELL}-c{number:02}-s0", CELL, "vsepp", "lseh", 1, 0, "search", {}, {})


def point(step: int) -> ValidationPoint:
    """With as many numbers as a training reports."""
    metrics = {name: step + position / 7 for position, name in enumerate(NUMBERS)}
    return ValidationPoint(10 * step, step / 10, 640 * step, 20 + step / 7, step / 3, metrics)


if __name__ == "__main__":
    main()
