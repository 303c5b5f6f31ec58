"""Trials that leave because their study is stopped are interrupted, not preempted."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from driven_ledgers import begin, ledger_of
from tiny_studies import tiny_study

from vsetune.records.writer import StudyWriter
from vsetune.study.ledger import INTERRUPTED
from vsetune.study.metrics_export import MetricsBoard
from vsetune.study.signals import SignsOfLife
from vsetune.study.stopping import StopRequest
from vsetune.study.study_metrics import StudyMetrics
from vsetune.study.trainable import as_result
from vsetune.study.tune_adapter import RecordingCallback


@pytest.mark.parametrize(("is_stopped", "error", "told"), [
    (True, "preempted: its process will be ended", INTERRUPTED),
    (True, "storage: the disk is full", "storage: the disk is full"),
    (False, "preempted: its process will be ended", "preempted: its process will be ended"),
])
def test_the_reason_of_a_trial_that_leaves(is_stopped: bool, error: str, told: str) -> None:
    ledger, stop = ledger_of(tiny_study(seeds=[0]), StudyWriter()), StopRequest()
    name = ledger.next().name  # type: ignore[union-attr]
    begin(ledger, name)
    board = MetricsBoard(lambda metric, value, labels: None)
    ignored: Any = lambda *_: None  # noqa: E731
    callback = RecordingCallback(
        ledger, signs=SignsOfLife(60.0, dict), stop=stop, on_change=ignored, on_tick=ignored, on_pause=ignored,
        on_warnings=ignored, forget=ignored, reasons={},
        metrics=StudyMetrics(ledger, board, backlog=lambda: 0, stop=stop, nodes=list),
    )
    trial = SimpleNamespace(config={"trial": ledger.trials[name].spec.to_plain(), "phase": "search", "folder": "t"})
    callback.on_trial_start(0, [], trial)
    if is_stopped:
        stop.request("Ctrl-C")
    callback.on_trial_result(0, [], trial, as_result({"event": "interrupted", "error": error, "done": True}))
    assert ledger.trials[name].error == told
