"""How many validations a second the driver takes: through the ledger into the study's log.

    PYTHONPATH=platform python benchmarks/recording.py [--trials 24] [--points 200]

Trials go on at once and report in turn, each with as many numbers as a training reports. A second: from the first
report until the disk has them all. A report: the time of the caller, mean and 99th percentile in milliseconds. Nothing
is exported meanwhile: the exporter reads the log in its own time. Takes seconds. Expect at least 1,500 points a second.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import time
from pathlib import Path

from vsetune.config.spec.loading import parse_spec
from vsetune.config.study.cells import resolve_cells
from vsetune.config.study.study_spec import StudySpec
from vsetune.records.events import StudyRecord, ValidationPoint
from vsetune.records.log import LogWriter
from vsetune.records.studies import Studies, folder_of_study
from vsetune.records.writer import StudyWriter
from vsetune.study.ledger import StudyLedger
from vsetune.study.trials import PlannedTrial

NUMBERS = (
    "train_loss", "learning_rate", "load_seconds", "validation_seconds", "device_seconds", "pairs_per_second", "i2t_r1",
    "i2t_r5", "i2t_r10", "t2i_r1", "t2i_r5", "t2i_r10", "rsum",
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=24)
    parser.add_argument("--points", type=int, default=200, help="of each trial")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as home:
        os.environ["VSETUNE_HOME"] = home
        log = LogWriter(folder_of_study("recording"))
        ledger = begun(StudyWriter(log), arguments.trials)
        names = [opened(ledger) for _ in range(arguments.trials)]
        log.settle()
        reports: list[float] = []
        begin = time.perf_counter()
        for step in range(1, arguments.points + 1):
            for name in names:
                started = time.perf_counter()
                ledger.record_point(name, point(step), summary={"epochs": step / 10})
                reports.append(time.perf_counter() - started)
        log.settle()
        seconds = time.perf_counter() - begin
        log.close()
        assert {len(each.curve) for each in Studies().attempts("recording")} == {arguments.points}
        size = Path(log.path).stat().st_size / len(reports)
    late = statistics.quantiles(reports, n=100)[-1]
    print(f"{len(reports) / seconds:,.0f} points a second; a report takes {1000 * statistics.mean(reports):.3f} ms, "
          f"{1000 * late:.3f} ms at the 99th percentile; a point is {size:.0f} bytes of the log")


def begun(writer: StudyWriter, trials: int) -> StudyLedger:
    """A study that draws at random: what a draw takes is not measured here."""
    plain = {
        "study": "recording", "data": {"path": "none"}, "networks": [{"name": "vsepp"}], "baseline": "lseh",
        "losses": [{"name": "lseh"}], "training": {"epochs": 100},
        "search": {"sampler": "random", "configurations": trials, "at_once": trials},
    }
    study = parse_spec(plain, StudySpec, where="benchmark")
    cells = resolve_cells(study, where="benchmark")
    writer.open_study(StudyRecord(study.study, study.fingerprint(), study.to_plain()), resume=False)
    return StudyLedger(study, cells, writer)


def opened(ledger: StudyLedger) -> str:
    """The next trial, which runs now."""
    planned = ledger.next()
    assert isinstance(planned, PlannedTrial), planned
    name = planned.name
    ledger.open_attempt(name, number=1, environment={}, protocol={}, inherited=[])
    return name


def point(step: int) -> ValidationPoint:
    metrics = {name: step + position / 7 for position, name in enumerate(NUMBERS)}
    return ValidationPoint(10 * step, step / 10, 640 * step, 20 + step / 7, step / 3, metrics)


if __name__ == "__main__":
    main()
