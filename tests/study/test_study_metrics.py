"""What a driver exports follows its ledger: states, epochs, money, failures, and who has been silent since when."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from logged_studies import begun

from vsetune.config.spec.loading import parse_spec
from vsetune.config.study.cells import resolve_cells
from vsetune.config.study.study_spec import StudySpec
from vsetune.records.events import ValidationPoint
from vsetune.records.writer import StudyWriter
from vsetune.study.exported_metrics import ExportedMetric
from vsetune.study.ledger import StudyLedger
from vsetune.study.metrics_export import MetricsBoard
from vsetune.study.stopping import StopRequest
from vsetune.study.study_metrics import ClusterWatch, Node, StudyMetrics, node_of, targets_file

PRICED = Node("gpu", usd_per_hour=3.6, metrics="10.0.0.1:8080")
UNPRICED = Node("cpu", usd_per_hour=None, metrics="10.0.0.2:8080")
Value = Callable[..., float | None]


class Driver:
    """A study, its metrics, and a clock that the test turns."""

    def __init__(self) -> None:
        plain = {
            "study": "tiny", "data": {"path": "x"}, "networks": [{"name": "vsepp"}],
            "losses": [{"name": "lmh"}, {"name": "lseh"}], "search": {"configurations": 1}, "seeds": [7],
        }
        study = parse_spec(plain, StudySpec, where="test")
        cells = resolve_cells(study, where="test")
        writer = begun(StudyWriter(), study)
        self.now, self.stop, self.nodes = 1000.0, StopRequest(), [PRICED, UNPRICED]
        self.ledger = StudyLedger(study, cells, writer, clock=lambda: self.now)
        self.ledger.recover()
        self.told: dict[tuple[str, tuple[str, ...]], float] = {}
        self.board = MetricsBoard(self._hear)
        self.watch = ClusterWatch("tiny", nodes=lambda: self.nodes, clock=lambda: self.now)
        self.metrics = StudyMetrics(
            self.ledger, self.board, backlog=lambda: 7, stop=self.stop, nodes=lambda: self.watch.seen,
            wall_clock=lambda: self.now,
        )

    def _hear(self, metric: ExportedMetric, value: float, labels: dict[str, str]) -> None:
        self.told[metric.name, tuple(labels.values())] = value

    def start(self, **environment: str) -> str:
        planned = self.ledger.next()
        assert not isinstance(planned, str)
        name = planned.name
        self.metrics.placed(name)
        self.ledger.open_attempt(name, number=1, environment=environment, protocol={}, inherited=[])
        self.metrics.reported(name, {"event": "opened"})
        return name

    def validate(self, name: str, epoch: float, m_recall: float) -> None:
        seconds = {"device_seconds": 60 * epoch}
        point = ValidationPoint(
            round(10 * epoch), epoch, pairs_seen=1, m_recall=m_recall, train_seconds=1.0, metrics=seconds
        )
        self.ledger.record_point(name, point, summary={"epochs": epoch, **seconds})
        self.metrics.reported(name, {"event": "point", "point": {"epoch": epoch}})

    def tell(self) -> dict[tuple[str, tuple[str, ...]], float]:
        """What Prometheus would read now; gauges that ended are not in it."""
        self.told = {}
        self.watch.look()
        self.metrics.refresh()
        self.board.hand_over()
        return self.told


@pytest.fixture
def driver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Driver:
    monkeypatch.setenv("VSETUNE_HOME", str(tmp_path))
    return Driver()


def test_a_study_of_two_trials_tells_its_states_epochs_and_best(driver: Driver) -> None:
    first = driver.start()
    driver.validate(first, 2.0, 40.0)
    told = driver.tell()
    assert told["vsetune_study_promised_trials", ("tiny",)] == 2
    assert told["vsetune_study_trials", ("tiny", "running")] == 1
    assert told["vsetune_study_trials", ("tiny", "failed")] == 0
    assert told["vsetune_cell_attempts", ("tiny", "vsepp.lmh", "running", "none")] == 1
    assert told["vsetune_cell_charged_epochs", ("tiny", "vsepp.lmh")] == 2
    assert told["vsetune_cell_device_seconds", ("tiny", "vsepp.lmh")] == 120
    assert told["vsetune_cell_best_m_recall_ratio", ("tiny", "vsepp.lmh")] == 0.4
    assert told["vsetune_cell_best_m_recall_ratio", ("tiny", "vsepp.lseh")] == 0
    assert told["vsetune_study_journal_backlog_records", ("tiny",)] == 7
    assert told["vsetune_cell_validations", ("tiny", "vsepp.lmh")] == 1


def test_a_trial_is_silent_since_it_was_placed_or_last_validated_and_no_longer_when_it_left(driver: Driver) -> None:
    trial = driver.start()
    key = ("vsetune_trial_last_validation_timestamp_seconds", ("tiny", "vsepp.lmh", trial, "search"))
    assert driver.tell()[key] == 1000
    driver.now = 1300
    driver.validate(trial, 1.0, 40.0)
    driver.now = 1400
    told = driver.tell()
    assert told[key] == told["vsetune_study_last_report_timestamp_seconds", ("tiny",)] == 1300
    driver.ledger.interrupted(trial, "process: its process died")
    driver.metrics.died(trial)
    assert key not in driver.tell()


def test_attempts_are_counted_by_kind_of_failure_and_a_strange_kind_makes_no_series(driver: Driver) -> None:
    first, second = driver.start(), driver.start()
    driver.ledger.close(first, "failed", summary={}, error="numeric: loss: nan")
    driver.ledger.interrupted(second, "a sentence of somebody: else")
    told = driver.tell()
    counted = {key: value for (name, key), value in told.items() if name == "vsetune_cell_attempts" and value}
    assert counted == {
        ("tiny", "vsepp.lmh", "failed", "numeric"): 1, ("tiny", "vsepp.lseh", "killed", "other"): 1,
    }
    assert told["vsetune_study_trials", ("tiny", "failed")] == 1


def test_validations_that_a_new_attempt_inherits_count_once(driver: Driver) -> None:
    trial = driver.start()
    driver.validate(trial, 1.0, 40.0)
    driver.validate(trial, 2.0, 41.0)
    driver.ledger.interrupted(trial, "process: its process died")
    point = ValidationPoint(10, 1.0, pairs_seen=1, m_recall=40.0, train_seconds=1.0)
    driver.ledger.open_attempt(trial, number=2, environment={}, protocol={}, inherited=[point])
    driver.validate(trial, 2.0, 41.0)
    driver.validate(trial, 3.0, 42.0)
    assert driver.tell()["vsetune_cell_validations", ("tiny", "vsepp.lmh")] == 3


def test_a_trial_costs_its_share_of_the_node_up_to_its_last_validation(driver: Driver) -> None:
    trial = driver.start(usd_per_hour="1.8")
    assert driver.tell()["vsetune_cell_usd_per_hour", ("tiny", "vsepp.lmh")] == 1.8
    driver.validate(trial, 60.0, 40.0)  # an hour
    told = driver.tell()
    assert told["vsetune_cell_cost_usd", ("tiny", "vsepp.lmh")] == pytest.approx(1.8)
    assert ("vsetune_cell_cost_usd", ("tiny", "vsepp.lseh")) not in told
    driver.ledger.close(trial, "pruned", summary={"device_seconds": 3600.0})
    told = driver.tell()
    assert told["vsetune_cell_cost_usd", ("tiny", "vsepp.lmh")] == pytest.approx(1.8)
    assert told["vsetune_cell_usd_per_hour", ("tiny", "vsepp.lmh")] == 0


def test_trials_on_nodes_without_a_price_are_counted_and_cost_nothing(driver: Driver) -> None:
    driver.validate(driver.start(), 60.0, 40.0)
    driver.start()
    told = driver.tell()
    assert told["vsetune_study_unpriced_trials", ("tiny",)] == 2
    assert not any(name in ("vsetune_cell_cost_usd", "vsetune_cell_usd_per_hour") for name, _ in told)
    assert told["vsetune_cluster_usd_per_hour", ("tiny", "gpu")] == 3.6
    assert told["vsetune_cluster_nodes", ("tiny", "cpu")] == 1


def test_the_reason_of_a_stop_is_told_without_its_details(driver: Driver) -> None:
    assert driver.tell()["vsetune_study_stop_requested", ("tiny", "none")] == 0
    driver.stop.request("the death of Ray (pid 123 is gone)")
    told = driver.tell()
    assert told["vsetune_study_stop_requested", ("tiny", "the death of Ray")] == 1
    assert ("vsetune_study_stop_requested", ("tiny", "none")) not in told


def test_prometheus_finds_the_nodes_while_the_study_runs_and_a_lost_type_is_told_no_longer(driver: Driver) -> None:
    driver.tell()
    wanted = [{"labels": {"job": "ray"}, "targets": ["10.0.0.1:8080", "10.0.0.2:8080"]}]
    assert json.loads(targets_file("tiny").read_text()) == wanted
    driver.nodes, driver.now = [UNPRICED], driver.now + 60
    assert ("vsetune_cluster_nodes", ("tiny", "gpu")) not in driver.tell()
    assert json.loads(targets_file("tiny").read_text())[0]["targets"] == ["10.0.0.2:8080"]
    driver.watch.close()
    assert not targets_file("tiny").exists()


def test_a_fault_in_the_metrics_is_told_once_and_the_study_goes_on(
    driver: Driver, caplog: pytest.LogCaptureFixture
) -> None:
    driver.ledger.promised = lambda: 1 // 0  # type: ignore[method-assign, assignment]
    driver.metrics.tick(now=True)
    driver.metrics.tick(now=True)
    assert [record.getMessage() for record in caplog.records] == [
        "study tiny: its metrics are no longer exported, it goes on"
    ]


@pytest.mark.parametrize(("changes", "wanted"), [
    ({}, ("gpu", 0.53, "10.0.0.1:8080")),
    ({"Labels": {"ray.io/node-group": "workers"}}, ("workers", None, "10.0.0.1:8080")),
    ({"Labels": {"vsetune.io/usd-per-hour": "cheap"}}, ("unnamed", None, "10.0.0.1:8080")),
    ({"MetricsExportPort": -1, "NodeManagerAddress": "::1"}, ("gpu", 0.53, None)),
    ({"NodeManagerAddress": "::1"}, ("gpu", 0.53, "[::1]:8080")),
])
def test_a_node_of_ray_is_read(changes: dict[str, Any], wanted: tuple[str, float | None, str | None]) -> None:
    plain = {
        "NodeID": "n1", "NodeManagerAddress": "10.0.0.1", "MetricsExportPort": 8080, "Resources": {"CPU": 4.0},
        "Labels": {"vsetune.io/node-type": "gpu", "vsetune.io/usd-per-hour": "0.53"},
    }
    node = node_of(plain | changes)
    assert (node.node_type, node.usd_per_hour, node.metrics) == wanted
