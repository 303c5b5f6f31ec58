"""What the driver waits for whenever a worker is free: `StudyLedger.next`, which looks through all trials.

    PYTHONPATH=platform python benchmarks/ledger_next.py [--cells 40] [--trials 25] [--one 5000] [--calls 200]

Studies in memory: so many cells of so many trials of which the last wave runs, the same with their confirmations
running, the same with a budget in device-seconds, and one cell with thousands of trials. `next` has nothing to hand out
in any of them, as in nearly all of its calls: the driver asks whenever it has heard of a trial. Then what the live
table and the exported metrics show of all trials, after a report of one of them. Medians in milliseconds. Takes half a
minute. Expect at most 2 ms, and 30 ms for what is shown.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace

from vsetune.config.spec.loading import parse_spec
from vsetune.config.study.cells import resolve_cells
from vsetune.config.study.study_spec import StudySpec
from vsetune.records.events import Drawn, StudyRecord, ValidationPoint
from vsetune.records.writer import StudyWriter
from vsetune.study.cell_numbers import CellNumbers
from vsetune.study.ledger import StudyLedger
from vsetune.study.trials import PlannedTrial

EPOCHS, AT_ONCE = 6, 8


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cells", type=int, default=40)
    parser.add_argument("--trials", type=int, default=25, help="in each of these cells")
    parser.add_argument("--one", type=int, default=5000, help="trials of the study with one cell")
    parser.add_argument("--calls", type=int, default=200)
    arguments = parser.parse_args()
    print(f"{'':34} {'ms':>8}")
    searching = begun(cells=arguments.cells, trials=arguments.trials)
    show(f"{arguments.cells} x {arguments.trials}, searching", median_ms(searching, arguments.calls))
    end_until(searching, arguments.trials)
    open_all(searching)
    show(f"{arguments.cells} x {arguments.trials}, confirming", median_ms(searching, arguments.calls))
    in_seconds = begun(cells=arguments.cells, trials=arguments.trials, budget={"device_seconds_per_cell": 1e6})
    show(f"{arguments.cells} x {arguments.trials}, budget in seconds", median_ms(in_seconds, arguments.calls))
    large = begun(cells=1, trials=arguments.one)
    show(f"1 x {arguments.one}, searching", median_ms(large, arguments.calls))
    show(f"{arguments.cells} x {arguments.trials}, shown", shown_ms(in_seconds, arguments.calls))
    show(f"1 x {arguments.one}, shown", shown_ms(large, arguments.calls))


def show(name: str, milliseconds: float) -> None:
    print(f"{name:34} {milliseconds:8.3f}")


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
    ledger = StudyLedger(study, made, writer)
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


def median_ms(ledger: StudyLedger, calls: int) -> float:
    seconds: list[float] = []
    for _ in range(calls):
        started = time.perf_counter()
        answer = ledger.next()
        seconds.append(time.perf_counter() - started)
        assert answer == "wait", answer
    return 1000 * statistics.median(seconds)


def shown_ms(ledger: StudyLedger, calls: int) -> float:
    """Everything that is shown of the study, after a validation of the trial that was handed out last."""
    seconds: list[float] = []
    name = next(reversed(ledger.trials))
    for _ in range(calls):
        epoch = ledger.trials[name].epoch + 1e-3
        ledger.record_point(name, ValidationPoint(round(1e6 * epoch), epoch, 1, 30.0, 1.0, {"device_seconds": 1.0}))
        started = time.perf_counter()
        _ = Counter(trial.state for trial in ledger.trials.values())
        _ = [CellNumbers.of(cell.trials) for cell in ledger.cells.values()]
        seconds.append(time.perf_counter() - started)
    return 1000 * statistics.median(seconds)


if __name__ == "__main__":
    main()
