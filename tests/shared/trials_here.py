"""Trials of a study one after another in this process, by the worker that Ray would run; recorded as ever."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from vsetune.study.ledger import StudyLedger
from vsetune.study.placement import _worker_config
from vsetune.study.preparation import PreparedStudy
from vsetune.study.stopping import StopRequest
from vsetune.study.trainable import AttemptTrainable, report_of
from vsetune.study.trials import PlannedTrial
from vsetune.study.tune_adapter import record_report


def without_ray(monkeypatch: pytest.MonkeyPatch) -> None:
    """`run_study` trains here and needs no Ray; it waits for the store as long as it takes."""
    for patience in ("DELIVER_WITHIN_S", "_EXPORT_OPENS_WITHIN_S"):
        monkeypatch.setattr(f"vsetune.study.run.{patience}", 120.0)
    monkeypatch.setattr("vsetune.study.run.place_trials", place_here)
    monkeypatch.setattr("vsetune.study.run.require_places", lambda _: [])
    monkeypatch.setattr("vsetune.study.run.ray_cluster", lambda *_, **__: nullcontext())
    monkeypatch.setattr("vsetune.study.run.exported", lambda *_, **__: nullcontext())
    monkeypatch.setattr("vsetune.study.trainable.beat", lambda *_: False)  # nobody asks the study to stop


def place_here(
    prepared: PreparedStudy, ledger: StudyLedger, stop: StopRequest, console: Console, *,
    forget: Callable[[Path], None], metrics: Any, first_board: Any,
) -> None:
    """As `placement.place_trials`, until the ledger hands out no more."""
    while isinstance(planned := ledger.next(), PlannedTrial):
        name, cell = planned.name, planned.spec.cell
        network, loss = cell.split(".", 1)
        needs = prepared.spec.resources.needs_of(network, loss)
        recorded = ledger.trials[name].attempts.number
        worker = AttemptTrainable(_worker_config(prepared, planned, needs, signals="none", recorded=recorded))
        report: dict[str, Any] = {}
        while not report.get("done"):
            report = report_of(worker.step())
            if report["event"] == "interrupted":
                ledger.interrupted(name, report["error"])
            else:
                record_report(ledger, name, report)
        worker.cleanup()
