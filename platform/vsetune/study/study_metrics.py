"""Metrics that a study's driver exports: states, epochs, money, failures, and the time of each trial's last report."""

from __future__ import annotations

import contextlib
import json
import logging
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

import ray

from vsetune.config.study.resources import Needs
from vsetune.errors import StorageError
from vsetune.records.events import AttemptStatus
from vsetune.storage.paths import home
from vsetune.storage.whole_files import make_folder, write_text
from vsetune.study.exported_metrics import (
    CELL_ATTEMPTS,
    CELL_BEST_M_RECALL,
    CELL_CHARGED_EPOCHS,
    CELL_COST,
    CELL_DEVICE_SECONDS,
    CELL_WASTED_EPOCHS,
    CLUSTER_NODES,
    CLUSTER_PRICE,
    STUDY_FAILURES,
    STUDY_JOURNAL_BACKLOG,
    STUDY_LAST_REPORT,
    STUDY_PROMISED_TRIALS,
    STUDY_STOP_REQUESTED,
    STUDY_TRIALS,
    STUDY_UNPRICED_TRIALS,
    STUDY_VALIDATIONS,
    TRIAL_LAST_VALIDATION,
)
from vsetune.study.ledger import StudyLedger
from vsetune.study.metrics_export import MetricsBoard
from vsetune.study.node_types import share_of, type_of
from vsetune.study.stopping import StopRequest
from vsetune.study.study_tally import TrialState
from vsetune.study.trial_measures import price_of
from vsetune.training.failures import Kind

REFRESH_EVERY_S = 5.0
_LONGEST_REASON = 60
_log = logging.getLogger(__name__)


class StudyMetrics:
    """A listener of the driver's loop that receives events of trials and puts the state of the study on the board.

    backlog: number of events that MLflow does not have yet. nodes: gives the cost of a trial's share of its node.
    wall_clock: Unix time. The state is read from the ledger, in the thread that owns it, at most every REFRESH_EVERY_S.
    """

    def __init__(
        self, ledger: StudyLedger, board: MetricsBoard, *, backlog: Callable[[], int], stop: StopRequest,
        nodes: ClusterWatch, wall_clock: Callable[[], float] = time.time,
    ) -> None:
        self._ledger, self._board, self._backlog, self._stop, self._nodes = ledger, board, backlog, stop, nodes
        self._clock = wall_clock
        self._placed: dict[str, str | None] = {}  # trial -> node, None until its worker has reported it
        self._paid_until: dict[str, float] = {}
        self._last_report = wall_clock()
        self._next_refresh = float("-inf")
        self._is_exporting = True

    def placed(self, trial: str) -> None:
        """Notes that a worker has received the trial."""
        self._placed[trial] = None
        self._paid_until[trial] = self._clock()
        self._board.set(TRIAL_LAST_VALIDATION, self._clock(), **self._labels(trial))

    def reported(self, trial: str, report: Mapping[str, Any]) -> None:
        """Notes a report of AttemptTrainable that has been recorded in the ledger."""
        self._last_report = self._clock()
        event = report.get("event")
        if event == "opened":
            self._placed[trial] = report.get("node_id")
            self._paid_until.setdefault(trial, self._last_report)
        elif event == "point" and report.get("point") is not None:
            self._board.add(STUDY_VALIDATIONS, 1, study=self._study)
            self._board.set(TRIAL_LAST_VALIDATION, self._last_report, **self._labels(trial))
        elif event in ("failed", "interrupted"):
            self._failed(trial, str(report.get("kind")))
        if report.get("done"):
            self._left(trial)

    def died(self, trial: str, reason: str) -> None:
        """Notes that the worker of a trial has died. reason: one line that begins with the kind of failure."""
        self._last_report = self._clock()
        self._failed(trial, reason.partition(":")[0])
        self._left(trial)

    def tick(self, *, now: bool = False) -> None:
        """Refreshes the board if REFRESH_EVERY_S have passed; may be called at any rate. now: refresh at once."""
        time_is = self._clock()
        if not self._is_exporting or (time_is < self._next_refresh and not now):
            return
        self._next_refresh = time_is + REFRESH_EVERY_S
        try:
            self.refresh()
        except Exception:  # a study is worth more than its metrics; logged once
            self._is_exporting = False
            _log.warning("study %s: its metrics are no longer exported, it goes on", self._study, exc_info=True)

    def refresh(self) -> None:
        """Puts the present state of the study on the board."""
        self._pay()
        board, study = self._board, self._study
        for state in get_args(TrialState):
            board.set(STUDY_TRIALS, self._ledger.tally.count(state), study=study, state=state)
        board.set(STUDY_PROMISED_TRIALS, self._ledger.promised(), study=study)
        board.set(STUDY_LAST_REPORT, self._last_report, study=study)
        board.set(STUDY_JOURNAL_BACKLOG, self._backlog(), study=study)
        reason = (self._stop.reason or "none").partition(" (")[0][:_LONGEST_REASON]
        board.drop(STUDY_STOP_REQUESTED)
        board.set(STUDY_STOP_REQUESTED, float(self._stop.is_requested), study=study, reason=reason)
        self._refresh_cells()

    def _refresh_cells(self) -> None:
        board = self._board
        for cell in self._ledger.cells:
            tally, labels = self._ledger.tally.cell(cell), {"study": self._study, "cell": cell}
            board.set(CELL_CHARGED_EPOCHS, tally.charged_epochs, **labels)
            board.set(CELL_WASTED_EPOCHS, tally.wasted_epochs, **labels)
            board.set(CELL_DEVICE_SECONDS, tally.device_seconds, **labels)
            board.set(CELL_BEST_M_RECALL, tally.best / 100, **labels)
            for state in get_args(AttemptStatus):
                board.set(CELL_ATTEMPTS, tally.attempts[state], state=state, **labels)

    def _pay(self) -> None:
        """Adds the cost of placed trials since the last call to their cells."""
        now, unpriced = self._clock(), 0
        for trial, node_id in self._placed.items():
            cell = self._ledger.trials[trial].assignment.trial.cell
            rate = None if node_id is None else self._nodes.usd_per_second(node_id, self._needs(cell))
            if rate is not None:
                self._board.add(CELL_COST, rate * (now - self._paid_until[trial]), study=self._study, cell=cell)
                self._paid_until[trial] = now
            elif node_id is not None:
                unpriced += 1
        self._board.set(STUDY_UNPRICED_TRIALS, unpriced, study=self._study)

    def _failed(self, trial: str, kind: str) -> None:
        known = kind if kind in get_args(Kind) else "bug"
        outcome = "failed" if self._ledger.trials[trial].status == "failed" else "interrupted"
        self._board.add(STUDY_FAILURES, 1, study=self._study, kind=known, outcome=outcome)

    def _left(self, trial: str) -> None:
        self._pay()
        self._placed.pop(trial, None)
        self._paid_until.pop(trial, None)
        self._board.drop(TRIAL_LAST_VALIDATION, trial=trial)

    def _needs(self, cell: str) -> Needs:
        found = self._ledger.cells[cell]
        return self._ledger.study.resources.needs_of(found.network_name, found.loss_name)

    @property
    def _study(self) -> str:
        return self._ledger.study.study

    def _labels(self, trial: str) -> dict[str, str]:
        assignment = self._ledger.trials[trial].assignment
        return {
            "study": self._study, "cell": assignment.trial.cell, "trial": trial, "phase": assignment.phase,
        }


@contextmanager
def exported(ledger: StudyLedger, *, backlog: Callable[[], int], stop: StopRequest) -> Iterator[StudyMetrics]:
    """Exports the metrics of a study inside the context. Ray must be connected."""
    board = MetricsBoard()
    nodes = ClusterWatch(ledger.study.study, board)
    metrics = StudyMetrics(ledger, board, backlog=backlog, stop=stop, nodes=nodes)
    board.each_time(lambda: None if stop.is_requested else nodes.look())  # Ray itself may have died
    board.start()
    try:
        yield metrics
    finally:
        metrics.tick(now=True)
        board.close()
        nodes.close()


LOOK_EVERY_S = 15.0


@dataclass(frozen=True)
class Node:
    """A living node. usd_per_hour: None without a price. metrics: HOST:PORT, None if it serves no metrics."""

    node_id: str
    node_type: str
    cpus: float
    gpus: float
    usd_per_hour: float | None
    metrics: str | None


def targets_file(study: str) -> Path:
    """The targets file for Prometheus (`file_sd_configs`) that the driver of a study maintains while it runs."""
    return home() / "prometheus" / "targets" / f"{study}.json"


class ClusterWatch:
    """Looks at the nodes every LOOK_EVERY_S, in the board's thread. Its results may be read from any thread."""

    def __init__(
        self, study: str, board: MetricsBoard, *, nodes: Callable[[], Iterable[Node]] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """nodes: None asks Ray, which must be connected."""
        self._study, self._board, self._nodes, self._clock = study, board, nodes or ray_nodes, clock
        self._file = targets_file(study)
        self._next_look = float("-inf")
        self._seen: dict[str, Node] = {}
        self._types: set[str] = set()

    def look(self) -> None:
        """Looks at the nodes if LOOK_EVERY_S have passed."""
        now = self._clock()
        if now < self._next_look:
            return
        self._next_look = now + LOOK_EVERY_S
        seen = {node.node_id: node for node in self._nodes()}
        targets = sorted({node.metrics for node in seen.values() if node.metrics is not None})
        if targets != sorted({node.metrics for node in self._seen.values() if node.metrics is not None}):
            self._write(targets)
        self._seen = seen
        self._export(seen)

    def usd_per_second(self, node_id: str, needs: Needs) -> float | None:
        """Price of the share of a node that a trial occupies. None without a price."""
        node = self._seen.get(node_id)
        if node is None or node.usd_per_hour is None:
            return None
        return node.usd_per_hour / 3600 * share_of({"CPU": node.cpus, "GPU": node.gpus}, needs)

    def close(self) -> None:
        """Removes the targets file, so that Prometheus no longer looks for this study's nodes."""
        with contextlib.suppress(OSError):
            self._file.unlink()

    def _write(self, targets: list[str]) -> None:
        """Writes the targets with the form and labels of Ray's own file, so that a node in both is scraped once."""
        with contextlib.suppress(StorageError):  # a full disk: the study goes on, Prometheus keeps what it knows
            make_folder(self._file.parent)
            write_text(self._file, json.dumps([{"labels": {"job": "ray"}, "targets": targets}]))

    def _export(self, seen: Mapping[str, Node]) -> None:
        counts = Counter(node.node_type for node in seen.values())
        prices: defaultdict[str, float] = defaultdict(float)
        for node in seen.values():
            prices[node.node_type] += node.usd_per_hour or 0.0
        for gone in self._types - set(counts):
            for metric in (CLUSTER_NODES, CLUSTER_PRICE):
                self._board.drop(metric, node_type=gone)
        self._types = set(counts)
        for node_type, count in counts.items():
            self._board.set(CLUSTER_NODES, count, study=self._study, node_type=node_type)
            self._board.set(CLUSTER_PRICE, prices[node_type], study=self._study, node_type=node_type)


def ray_nodes() -> list[Node]:
    """The living nodes of the cluster that this process is connected to."""
    return [node_of(plain) for plain in ray.nodes() if plain.get("Alive")]


def node_of(plain: Mapping[str, Any]) -> Node:
    """A node from Ray's description. plain: an item of `ray.nodes()`."""
    labels, resources = plain.get("Labels") or {}, plain.get("Resources") or {}
    port = int(plain.get("MetricsExportPort") or 0)
    return Node(
        node_id=str(plain["NodeID"]),
        node_type=type_of(labels) or "unnamed",
        cpus=float(resources.get("CPU", 0.0)), gpus=float(resources.get("GPU", 0.0)),
        usd_per_hour=price_of(str(plain["NodeID"]), labels),
        metrics=_address(str(plain["NodeManagerAddress"]), port) if port > 0 else None,
    )


def _address(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
