"""What asking for a configuration, telling how it went and reporting a validation take, in a search of one cell that
has so many ended trials in an SQLite file; beside a plain Optuna study with the same trials.

    python benchmarks/search_store.py [--sampler tpe] [--trials 0 500 5000] [--calls 20]

Ours: `ConfigurationSearch.ask`; for a validation the decision of the stopping rule (`patience`), of a trial that
levels off, for which it looks at all others (the store hears of a curve when its trial ends); and
`ConfigurationSearch.tell` with a curve of six validations. Optuna's: `study.ask` with its TPE, `trial.report` with
`trial.should_prune` (its median rule), `study.tell`. Medians in milliseconds; a round is ask + report + tell.
"""

from __future__ import annotations

import argparse
import shutil
import sqlite3
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import optuna
from optuna.distributions import distribution_to_json
from optuna.storages._rdb import models
from optuna.trial import FrozenTrial, TrialState, create_trial

from vsetune.config.spec.loading import parse_spec
from vsetune.config.study.cells import Cell, resolve_cells
from vsetune.config.study.study_spec import SchedulerSpec, StudySpec
from vsetune.search.configurations import ConfigurationSearch
from vsetune.search.drawing import distributions_of
from vsetune.search.even_points import value_at
from vsetune.search.stopping.choosing import stopping_rule
from vsetune.search.trial_storage import SearchStorage

EPOCHS = 6
Times = dict[str, list[float]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sampler", default="tpe", help="of search.sampler; Optuna's is always its TPE")
    parser.add_argument("--trials", type=int, nargs="+", default=[0, 500, 5000])
    parser.add_argument("--calls", type=int, default=20)
    arguments = parser.parse_args()
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    print(f"{'trials':>6} {'whose':>6} {'ask':>8} {'report':>8} {'tell':>8} {'round':>8}   ms, medians")
    for count in arguments.trials:
        study = _study(arguments.sampler)
        (cell,) = resolve_cells(study, where="benchmark")
        with tempfile.TemporaryDirectory() as folder:
            rounds, filled = [], Path(folder) / "filled.db"
            _fill(filled, cell, count)
            for whose, measure in (("ours", _ours), ("optuna", _optunas)):
                file = Path(folder) / f"{whose}.db"
                shutil.copy(filled, file)
                if whose == "optuna":
                    _as_optuna_makes_it(file)
                times = measure(study, cell, file, arguments.calls)
                medians = {name: 1000 * statistics.median(seconds) for name, seconds in times.items()}
                rounds.append(sum(medians.values()))
                print(f"{count:6d} {whose:>6}", *(f"{medians[name]:8.2f}" for name in ("ask", "report", "tell")),
                      f"{rounds[-1]:8.2f}")
            print(f"{count:6d}  ratio of rounds: {rounds[1] / rounds[0]:.1f}")


def _study(sampler: str) -> StudySpec:
    plain = {
        "study": "benchmark", "data": {"path": "none"}, "networks": [{"name": "vsepp"}], "baseline": "lseh",
        "losses": [{"name": "lseh"}], "training": {"epochs": EPOCHS},
        "search": {"training": {"learning_rate": "default"}, "sampler": sampler, "configurations": 6000},
    }
    return parse_spec(plain, StudySpec, where="benchmark")


def _fill(file: Path, cell: Cell, count: int) -> None:
    """A database of ours with so many ended trials, a third of them stopped half-way, written in one go."""
    name = f"benchmark/{cell.name}"
    storage = SearchStorage(f"sqlite:///{file}", studies=[name])
    backend, study = storage.backend, storage.studies[name]
    trials = list(enumerate(_ended_trials(cell, count), start=1))
    finite = models.TrialValueModel.TrialValueType.FINITE
    point = models.TrialIntermediateValueModel.TrialIntermediateValueType.FINITE
    rows: dict[str, list[dict[str, Any]]] = {
        "trials": [
            {"trial_id": key, "number": key - 1, "study_id": study._study_id, "state": trial.state,
             "datetime_start": trial.datetime_start, "datetime_complete": trial.datetime_complete}
            for key, trial in trials
        ],
        "trial_params": [
            {"trial_id": key, "param_name": name, "param_value": trial.distributions[name].to_internal_repr(value),
             "distribution_json": distribution_to_json(trial.distributions[name])}
            for key, trial in trials for name, value in trial.params.items()
        ],
        "trial_values": [
            {"trial_id": key, "objective": 0, "value": trial.value, "value_type": finite} for key, trial in trials
        ],
        "trial_intermediate_values": [
            {"trial_id": key, "step": step, "intermediate_value": value, "intermediate_value_type": point}
            for key, trial in trials for step, value in trial.intermediate_values.items()
        ],
    }
    with backend.engine.begin() as connection:
        for name, entries in rows.items():
            if entries:
                connection.execute(models.BaseModel.metadata.tables[name].insert(), entries)
    backend.remove_session()
    backend.engine.dispose()


def _as_optuna_makes_it(file: Path) -> None:
    with closing(sqlite3.connect(file)) as database:
        database.execute("PRAGMA journal_mode=DELETE")


def _ended_trials(cell: Cell, count: int) -> Iterator[FrozenTrial]:
    random = np.random.default_rng(0)
    distributions = distributions_of(cell)
    for number in range(count):
        curve = _curve(random)
        points = dict(list(curve.items())[: 3 if number % 3 == 0 else EPOCHS])
        yield create_trial(
            params={name: value_at(each, float(random.random())) for name, each in distributions.items()},
            distributions=distributions, intermediate_values=points,
            value=list(points.values())[-1] if number % 3 == 0 else max(points.values()),
            state=TrialState.PRUNED if number % 3 == 0 else TrialState.COMPLETE,
        )


def _curve(random: np.random.Generator) -> dict[int, float]:
    """M-Recall by thousandths of an epoch."""
    values = random.uniform(20, 60) * (1 - np.exp(-np.arange(1, EPOCHS + 1) / 2)) + random.normal(0, 0.5, EPOCHS)
    return {1000 * (epoch + 1): float(value) for epoch, value in enumerate(values)}


def _ours(study: StudySpec, cell: Cell, file: Path, calls: int) -> Times:
    rule = stopping_rule(SchedulerSpec(), epochs=EPOCHS)
    assert rule is not None
    search = ConfigurationSearch("benchmark", [cell], study.search, storage=f"sqlite:///{file}")
    for trial in search._storage.trials(f"benchmark/{cell.name}"):
        rule.replay(str(trial.number), [(step / 1000, value) for step, value in trial.intermediate_values.items()])
    times = _no_times()
    for number in range(calls):
        suggestion = _timed(times["ask"], search.ask, cell.name)
        curve = [(float(epoch), 30.0 - epoch) for epoch in range(1, EPOCHS + 1)]
        for epoch, value in curve:
            _timed(times["report"] if 3 <= epoch < EPOCHS else [], rule.note, f"new-{number}", epoch, value)
        _timed(times["tell"], partial(search.tell, curve=curve), cell.name, suggestion.number, "finished")
    return _without_first(times)


def _optunas(study: StudySpec, cell: Cell, file: Path, calls: int) -> Times:
    plain = optuna.load_study(
        study_name=f"benchmark/{cell.name}", storage=f"sqlite:///{file}", sampler=optuna.samplers.TPESampler(seed=0),
        pruner=optuna.pruners.MedianPruner(),
    )
    times, space = _no_times(), distributions_of(cell)
    for _ in range(calls):
        trial = _timed(times["ask"], plain.ask, space)
        for epoch in range(1, EPOCHS + 1):
            _timed(times["report"], _reported, trial, 1000 * epoch, 30.0 - epoch)
        _timed(times["tell"], plain.tell, trial, 29.0)
    return _without_first(times)


def _reported(trial: optuna.Trial, step: int, value: float) -> bool:
    trial.report(value, step)
    return trial.should_prune()


def _no_times() -> Times:
    return {"ask": [], "report": [], "tell": []}


def _without_first(times: Times) -> Times:
    """The first call reads the database; a study does that once."""
    return {name: seconds[1:] if name == "ask" and len(seconds) > 1 else seconds for name, seconds in times.items()}


def _timed(seconds: list[float], call: Callable[..., Any], *arguments: Any) -> Any:
    started = time.perf_counter()
    found = call(*arguments)
    seconds.append(time.perf_counter() - started)
    return found


if __name__ == "__main__":
    main()
