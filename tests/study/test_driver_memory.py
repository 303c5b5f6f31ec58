"""What the driver of a study keeps of each trial that has ended."""

from __future__ import annotations

import gc
import json
import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from logged_studies import begun

from vsetune.config.spec.loading import parse_spec
from vsetune.config.study.cells import resolve_cells
from vsetune.config.study.study_spec import StudySpec
from vsetune.records.log import LogWriter
from vsetune.records.writer import StudyWriter
from vsetune.study.ledger import StudyLedger
from vsetune.study.metrics_export import MetricsBoard
from vsetune.study.signals import SignsOfLife
from vsetune.study.stopping import StopRequest
from vsetune.study.study_metrics import StudyMetrics
from vsetune.study.trainable import as_result
from vsetune.study.trials import PlannedTrial
from vsetune.study.tune_adapter import CellScheduler, RecordingCallback

VALIDATIONS, MOST_KB = 20, 31
"""Of a trial: how often it validates, and what it may take. Measured: 28 KB, half of it the settings."""
NUMBERS = [f"number_{position}" for position in range(16)]


class Driver:
    """All that hears of trials in the driver, but Ray Tune."""

    def __init__(self, log: LogWriter) -> None:
        plain = {
            "study": "tiny", "data": {"path": "x"}, "networks": [{"name": "vsepp"}], "losses": [{"name": "lmh"}],
            "search": {"configurations": 1000, "sampler": "random", "at_once": 1000}, "training": {"epochs": 4},
        }
        study = parse_spec(plain, StudySpec, where="test")
        cells = resolve_cells(study, where="test")
        writer = begun(StudyWriter(log), study)
        self.ledger = StudyLedger(study, cells, writer)
        self.scheduler = CellScheduler(study.scheduler, epochs={cells[0].name: 4.0})
        stop, board = StopRequest(), MetricsBoard(lambda metric, value, labels: None)
        self.metrics = StudyMetrics(self.ledger, board, backlog=lambda: 0, stop=stop, nodes=list)
        self.callback = RecordingCallback(
            self.ledger, signs=SignsOfLife(60.0, dict), stop=stop, on_change=lambda: None,
            on_tick=lambda: None, on_pause=lambda name, reason, seconds: None, on_warnings=lambda lines: None,
            forget=lambda folder: None, metrics=self.metrics, reasons=self.scheduler.reasons,
        )

    def placed(self) -> Any:
        """The next trial, as Tune has it."""
        planned = self.ledger.next()
        assert isinstance(planned, PlannedTrial)
        trial = SimpleNamespace(config={
            "trial": planned.spec.to_plain(), "phase": "search", "folder": f"trials/{planned.name}",
        })
        self.callback.on_trial_start(0, [], trial)
        return trial

    def train(self, trial: Any) -> None:
        for report in reports():
            result = as_result(report)
            assert self.scheduler.on_trial_result(None, trial, result) == "CONTINUE"
            self.callback.on_trial_result(0, [], trial, result)
        self.metrics.tick(now=True)


def reports() -> Iterator[dict[str, Any]]:
    """Of one trial. No text or number of one is that of another, as in what comes over a network."""
    environment = {f"package_{position}": "1.2.3" for position in range(20)}
    yield json.loads(json.dumps({
        "event": "opened", "number": 1, "environment": environment, "protocol": {"images": 1000},
        "inherited": [],
    }))
    for step in range(1, VALIDATIONS + 1):
        numbers = dict.fromkeys(NUMBERS, step / 7)
        point = {
            "step": step, "epoch": 4 * step / VALIDATIONS, "pairs_seen": step, "m_recall": step + 1 / 3,
            "train_seconds": step / 3, "metrics": numbers,
        }
        ending = {"done": True, "is_finished": True} if step == VALIDATIONS else {}
        yield json.loads(json.dumps({"event": "point", "point": point, "summary": numbers} | ending))


@pytest.mark.parametrize("at_a_time", [1, 50])
def test_a_trial_that_has_ended_takes_no_more_than_its_record(at_a_time: int, tmp_path: Path) -> None:
    log = LogWriter(tmp_path)
    driver = Driver(log)

    def train(trials: int) -> None:
        for _ in range(trials // at_a_time):
            for trial in [driver.placed() for _ in range(at_a_time)]:
                driver.train(trial)
        gc.collect()

    train(50)
    tracemalloc.start()
    try:
        train(100)
        taken = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
        log.close()
    assert taken / 100 < 1000 * MOST_KB
    assert sum(trial.is_closed for trial in driver.ledger.trials.values()) == 150
