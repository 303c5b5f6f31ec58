"""What is put on the board reaches Ray at each handing over, ends with its trial, and never reaches the training."""

from __future__ import annotations

import logging
import threading

import pytest

from vsetune.records.events import ValidationPoint
from vsetune.study.exported_metrics import (
    METRICS,
    MOST_LOSS_PARTS,
    OF_TRIAL,
    STUDY_PROMISED_TRIALS,
    TRIAL_DATA_WAIT,
    TRIAL_DEVICE_MEMORY,
    TRIAL_LOSS,
    TRIAL_M_RECALL,
    ExportedMetric,
)
from vsetune.study.metrics_export import MetricsBoard
from vsetune.study.trial_measures import TrialMetrics, loss_parts, waiting_share

LABELS = {"study": "s", "cell": "c", "trial": "t", "phase": "search"}


class Heard:
    """A recorder that remembers: (metric name, value, labels) in the order it was told."""

    def __init__(self) -> None:
        self.all: list[tuple[str, float, dict[str, str]]] = []

    def __call__(self, metric: ExportedMetric, value: float, labels: dict[str, str]) -> None:
        self.all.append((metric.name, value, labels))

    def names(self) -> set[str]:
        return {name for name, _, _ in self.all}


def point(step: int, *, train: float, load: float, **metrics: float) -> ValidationPoint:
    return ValidationPoint(step=step, epoch=step / 10, pairs_seen=step, m_recall=25.0, train_seconds=train,
                           metrics={"load_seconds": load, **metrics})


def test_a_gauge_is_told_each_time_with_what_it_was_last_set_to() -> None:
    heard, memory = Heard(), iter((5.0, 6.0))
    board = MetricsBoard(heard)
    board.put(STUDY_PROMISED_TRIALS, {("s",): 1.0, ("t",): 2.0})
    board.put(STUDY_PROMISED_TRIALS, {("s",): 3.0})
    board.put(TRIAL_DEVICE_MEMORY, lambda: {tuple(LABELS.values()): next(memory)})
    board.hand_over()
    board.hand_over()
    assert heard.all == [
        ("vsetune_study_promised_trials", 3.0, {"study": "s"}), ("vsetune_trial_device_memory_bytes", 5.0, LABELS),
        ("vsetune_study_promised_trials", 3.0, {"study": "s"}), ("vsetune_trial_device_memory_bytes", 6.0, LABELS),
    ]


def test_what_is_not_finite_is_left_out() -> None:
    heard = Heard()
    board = MetricsBoard(heard)
    board.put(STUDY_PROMISED_TRIALS, {("s",): float("nan"), ("t",): float("inf")})
    board.hand_over()
    assert heard.all == []


def test_the_series_of_a_trial_end_with_it() -> None:
    heard = Heard()
    board = MetricsBoard(heard)
    trial = TrialMetrics(board, LABELS)
    trial.validated(point(5, train=3.0, load=1.0, train_loss=0.5, loss_image=0.2, pairs_per_second=9.0))
    board.hand_over()
    assert heard.names() == {metric.name for metric in METRICS if metric.source == "worker"}
    assert all(set(labels) >= set(OF_TRIAL) for _, _, labels in heard.all)
    heard.all.clear()
    trial.close()
    board.hand_over()
    assert heard.all == []


def test_a_validation_is_told_in_base_units_and_the_memory_is_read_when_it_is_told() -> None:
    heard = Heard()
    board = MetricsBoard(heard)
    trial = TrialMetrics(board, LABELS, [point(5, train=3.0, load=1.0)])
    trial.validated(point(10, train=6.0, load=2.0, train_loss=0.5, loss_image=0.2))
    board.hand_over()
    values = {(name, labels.get("part")): value for name, value, labels in heard.all}
    assert values[TRIAL_M_RECALL.name, None] == 0.25
    assert values[TRIAL_DATA_WAIT.name, None] == 0.25
    assert values[TRIAL_LOSS.name, "total"] == 0.5
    assert values[TRIAL_LOSS.name, "image"] == 0.2
    assert values[TRIAL_DEVICE_MEMORY.name, None] > 1e6


def test_the_share_of_waiting_is_that_since_the_validation_before() -> None:
    first, second = point(1, train=3.0, load=1.0), point(2, train=4.0, load=4.0)
    assert waiting_share(None, first) == 0.25
    assert waiting_share(first, second) == 0.75
    assert waiting_share(second, second) is None


def test_a_loss_of_many_parts_shows_some_of_them() -> None:
    parts = loss_parts({"train_loss": 1.0, "gradient_norm": 2.0} | {f"loss_{n:03d}": float(n) for n in range(99)})
    assert list(parts)[:2] == ["total", "000"]
    assert len(parts) == MOST_LOSS_PARTS + 1


def test_an_export_that_fails_says_so_once_and_the_training_hears_nothing(caplog: pytest.LogCaptureFixture) -> None:
    asked = threading.Event()

    def refuse(metric: ExportedMetric, value: float, labels: dict[str, str]) -> None:
        asked.set()
        raise RuntimeError("no agent\nat all")

    board = MetricsBoard(refuse, every_s=0.001)
    board.put(STUDY_PROMISED_TRIALS, {("s",): 1.0})
    with caplog.at_level(logging.WARNING):
        board.start()
        assert asked.wait(10)
        for step in range(100):
            board.put(STUDY_PROMISED_TRIALS, {("s",): float(step)})
        board.close()
    assert [record.getMessage() for record in caplog.records] == [
        "metrics: no longer exported by this process, training goes on (RuntimeError: no agent at all)"
    ]


def test_closing_hands_over_what_was_last_set() -> None:
    heard = Heard()
    board = MetricsBoard(heard, every_s=3600)
    board.start()
    board.put(STUDY_PROMISED_TRIALS, {("s",): 7.0})
    board.close()
    assert heard.all[-1] == ("vsetune_study_promised_trials", 7.0, {"study": "s"})
