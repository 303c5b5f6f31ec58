"""A made-up study of two cells in a store in memory: one with every kind of trial, one that has not begun."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
from written_fields import as_written

from vsetune.config.study.study_spec import StudySpec
from vsetune.records.events import AttemptStart, StudyRecord, ValidationPoint
from vsetune.records.writer import StudyWriter

STOPPED = "patience: best 43.0 of epoch 2, below the median 51.0 of 4 others at epoch 4"
CONFIG = {
    "study": "demo", "data": {"path": "data/scenes"}, "networks": [{"name": "vsepp"}],
    "losses": [{"name": "lmh"}, {"name": "lseh", "search": {"margin": {"low": 0.1, "high": 0.3}}}],
    "training": {"epochs": 6},
    "scheduler": {"kind": "patience"},
    "search": {"configurations": 8, "training": {"learning_rate": {"low": 1e-4, "high": 1e-2, "log": True}}},
}


@pytest.fixture
def study() -> StudyRecord:
    return StudyRecord("demo", "beef", StudySpec.model_validate(CONFIG).to_plain())


@pytest.fixture
def store(study: StudyRecord) -> StudyWriter:
    store = StudyWriter()
    store.open_study(study, resume=False)
    return store


@pytest.fixture
def add(store: StudyWriter) -> Callable[..., None]:
    """add(number, recalls, status): a trial of vsepp.lseh, one validation an epoch of 30 s; None leaves it running."""

    def add(
        number: int, recalls: Sequence[float], status: str | None = "finished", *, error: str | None = None,
        attempt: int = 1, cell: str = "vsepp.lseh", seed: int = 0, phase: str = "search", **changes: Any,
    ) -> None:
        rate = 1e-4 * 1.4 ** (number % 12)
        configuration = {"loss.margin": 0.1 + 0.02 * (number % 9), "training.learning_rate": rate}
        network, loss = cell.split(".")
        run = store.start_attempt(as_written(AttemptStart(
            "demo", f"{cell}-c{number:03d}-s{seed}", cell, network, loss, attempt, seed, phase,  # type: ignore[arg-type]
            configuration | changes, {},
        )))
        store.record_points(run, [
            as_written(ValidationPoint(
                100 * epoch, float(epoch), 100 * epoch, recall, 20.0 * epoch, {"device_seconds": 30.0 * epoch},
            ))
            for epoch, recall in enumerate(recalls, 1)
        ])
        if status is not None:
            store.finish_attempt(run, status, summary={"epochs": float(len(recalls))}, error=error)  # type: ignore[arg-type]

    return add


@pytest.fixture
def searched(store: StudyWriter, add: Callable[..., None]) -> StudyWriter:
    """4 finished, 3 stopped for 2 kinds of reasons, 1 failed, 1 running; the first was killed after an epoch before."""
    add(0, [20.0], "killed", error="its process died", **{"loss.margin": 0.2})
    add(0, [30, 40, 45, 48, 49, 50], attempt=2, **{"loss.margin": 0.2})
    for number, best in ((1, 52.0), (2, 55.5), (3, 51.0)):
        add(number, [best - 20, best - 10, best - 4, best - 1, best, best - 0.5])
    add(4, [30, 43, 41, 40], "pruned", error=STOPPED)
    add(5, [31, 44, 42, 40], "pruned", error=STOPPED.replace("43.0", "44.0"))
    add(6, [5.0], "pruned", error="asha: 5.0 % at epoch 1, needs 30.0 % (4 earlier trials)")
    add(7, [1.0], "failed", error="loss is not finite at step 140")
    add(8, [30, 41], None)
    add(2, [99.0], seed=1, phase="confirm")
    return store
