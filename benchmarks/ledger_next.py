"""What the driver waits for whenever a worker is free: `StudyLedger.next`, with counts that are kept as trials change
against the same counts made anew from all trials at every question.

    PYTHONPATH=platform python benchmarks/ledger_next.py [--cells 40] [--trials 25] [--one 5000] [--calls 200]

Studies in memory: so many cells of so many trials of which the last wave runs, the same with their confirmations
running, the same with a budget in device-seconds, and one cell with thousands of trials. `next` has nothing to hand out
in any of them, as in nearly all of its calls: the driver asks whenever it has heard of a trial. Then what the live
table and the exported metrics show of all trials, after a report of one of them. Medians in milliseconds, of the
recount from a tenth of the calls. Takes half a minute. Expect at most 2 ms in each, and ratios above 10.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Mapping
from dataclasses import replace
from typing import get_args

from recounting.recounted_tally import RecountedTally

from vsetune.config.spec.loading import parse_spec
from vsetune.config.study.cells import resolve_cells
from vsetune.config.study.study_spec import StudySpec
from vsetune.records.events import Drawn, StudyRecord, ValidationPoint
from vsetune.records.writer import StudyWriter
from vsetune.search.configurations import ConfigurationSearch
from vsetune.study.ledger import StudyLedger
from vsetune.study.study_tally import StudyTally, TrialState
from vsetune.study.trials import PlannedTrial

EPOCHS, AT_ONCE = 6, 8


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cells", type=int, default=40)
    parser.add_argument("--trials", type=int, default=25, help="in each of these cells")
    parser.add_argument("--one", type=int, default=5000, help="trials of the study with one cell")
    parser.add_argument("--calls", type=int, default=200)
    arguments = parser.parse_args()
    print(f"{'':34} {'kept':>8} {'recounted':>10}   ms, medians of ledger.next()")
    searching = begun(cells=arguments.cells, trials=arguments.trials)
    compare(f"{arguments.cells} x {arguments.trials}, searching", searching, arguments.calls)
    end_until(searching, arguments.trials)
    open_all(searching)
    compare(f"{arguments.cells} x {arguments.trials}, confirming", searching, arguments.calls)
    in_seconds = begun(cells=arguments.cells, trials=arguments.trials, budget={"device_seconds_per_cell": 1e6})
    compare(f"{arguments.cells} x {arguments.trials}, budget in seconds", in_seconds, arguments.calls)
    large = begun(cells=1, trials=arguments.one)
    compare(f"1 x {arguments.one}, searching", large, arguments.calls)
    for name, ledger in ((f"{arguments.cells} x {arguments.trials}, shown", in_seconds),
                         (f"1 x {arguments.one}, shown", large)):
        kept = shown_ms(ledger, ledger.tally, arguments.calls)
        plain = shown_ms(ledger, RecountedTally.over(ledger.tally, ledger.trials), max(3, arguments.calls // 10))
        print(f"{name:34} {kept:8.3f} {plain:10.3f}   ratio: {plain / kept:.0f}")


def begun(*, cells: int, trials: int, budget: Mapping[str, float] | None = None) -> StudyLedger:
    """A study whose cells have asked for all of their trials; the last AT_ONCE of each run."""
    plain = {
        "study": "benchmark", "data": {"path": "none"}, "networks": [{"name": "vsepp"}], "baseline": "lseh",
        "losses": [{"name": "lseh"}], "training": {"epochs": EPOCHS}, "seeds": [0, 1, 2],
        "search": {"sampler": "random", "configurations": trials, "at_once": AT_ONCE},
        "budget": dict(budget or {}),
    }
    study = parse_spec(plain, StudySpec, where="benchmark")
    (cell,) = resolve_cells(study, where="benchmark")
    made = [replace(cell, name=f"{cell.name}{number}") for number in range(cells)]
    writer = StudyWriter()
    writer.open_study(StudyRecord(study.study, study.fingerprint(), plain), resume=False)
    for cell in made:
        for number in range(trials):
            writer.draw(Drawn(cell.name, number, "running", {"loss.margin": number / 1e5}, {}, {}, at=0.0))
    ledger = StudyLedger(study, made, writer, ConfigurationSearch(made, study.search, writer))
    ledger.recover()
    open_all(ledger)
    end_until(ledger, trials - AT_ONCE)
    return ledger


def open_all(ledger: StudyLedger) -> None:
    """Every trial that is handed out runs."""
    while isinstance(planned := ledger.next(), PlannedTrial):
        ledger.open_attempt(planned.name, number=1, environment={}, protocol={}, inherited=[])


def end_until(ledger: StudyLedger, number: int) -> None:
    """Ends the trials with a lower number."""
    for name, trial in ledger.trials.items():
        if trial.number < number and not trial.is_closed:
            end(ledger, name)


def end(ledger: StudyLedger, trial: str) -> None:
    number = ledger.trials[trial].number
    for epoch in range(1, EPOCHS + 1):
        ledger.record_point(trial, ValidationPoint(epoch, float(epoch), epoch, 20 + number % 20 + epoch / 10, 1.0))
    ledger.close(trial, "finished", summary={"epochs": float(EPOCHS), "device_seconds": 60.0})


def compare(name: str, ledger: StudyLedger, calls: int) -> None:
    kept = median_ms(ledger, calls)
    counts = ledger.tally
    recounted = RecountedTally.over(counts, ledger.trials)
    for part in (ledger._goals, ledger._confirmations):
        part._searched = recounted.searched
    ledger.tally = recounted
    plain = median_ms(ledger, max(3, calls // 10))
    for part in (ledger._goals, ledger._confirmations):
        part._searched = counts.searched
    ledger.tally = counts
    print(f"{name:34} {kept:8.3f} {plain:10.3f}   ratio: {plain / kept:.0f}")


def median_ms(ledger: StudyLedger, calls: int) -> float:
    seconds: list[float] = []
    for _ in range(calls):
        started = time.perf_counter()
        answer = ledger.next()
        seconds.append(time.perf_counter() - started)
        assert answer == "wait", answer
    return 1000 * statistics.median(seconds)


def shown_ms(ledger: StudyLedger, tally: StudyTally, calls: int) -> float:
    """Everything that is shown of the study, after a validation of the trial that was handed out last."""
    seconds: list[float] = []
    name = next(reversed(ledger.trials))
    for _ in range(calls):
        epoch = ledger.trials[name].epoch + 1e-3
        ledger.record_point(name, ValidationPoint(round(1e6 * epoch), epoch, 1, 30.0, 1.0, {"device_seconds": 1.0}))
        started = time.perf_counter()
        _ = [tally.count(state) for state in get_args(TrialState)], [tally.cell(cell) for cell in ledger.cells]
        seconds.append(time.perf_counter() - started)
    return 1000 * statistics.median(seconds)


if __name__ == "__main__":
    main()
