"""Gauges that a study's driver exports: its records now, when trials were last heard of, and the cluster's nodes."""

from __future__ import annotations

import contextlib
import json
import logging
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

import ray

from vsetune.errors import StorageError
from vsetune.home.paths import home
from vsetune.home.whole_files import make_folder, write_text
from vsetune.study.cell_numbers import CellNumbers
from vsetune.study.exported_metrics import METRICS, StudyNow
from vsetune.study.ledger import StudyLedger
from vsetune.study.metrics_export import MetricsBoard
from vsetune.study.node_types import type_of
from vsetune.study.stopping import StopRequest
from vsetune.study.trial_measures import price_of
from vsetune.study.trials import TrialState

REFRESH_EVERY_S = 5.0
_LONGEST_REASON = 60
_log = logging.getLogger(__name__)


class StudyMetrics:
    """A listener of the driver's loop that puts the state of the study on the board.

    backlog: number of events that MLflow does not have yet. nodes: the nodes seen last. wall_clock: Unix time. The
    state is read from the ledger, in the thread that owns it, at most every REFRESH_EVERY_S.
    """

    def __init__(
        self, ledger: StudyLedger, board: MetricsBoard, *, backlog: Callable[[], int], stop: StopRequest,
        nodes: Callable[[], Sequence[Node]], wall_clock: Callable[[], float] = time.time,
    ) -> None:
        self._ledger, self._board, self._backlog, self._stop, self._nodes = ledger, board, backlog, stop, nodes
        self._clock = wall_clock
        self._heard: dict[str, float] = {}
        self._last_report = wall_clock()
        self._next_refresh = float("-inf")
        self._is_exporting = True

    def placed(self, trial: str) -> None:
        """Notes that a worker has received the trial."""
        self._heard[trial] = self._clock()

    def reported(self, trial: str, report: Mapping[str, Any]) -> None:
        """Notes a report of AttemptTrainable that has been recorded in the ledger."""
        self._last_report = self._clock()
        if report.get("event") == "point" and report.get("point") is not None:
            self._heard[trial] = self._last_report
        if report.get("done"):
            self._heard.pop(trial, None)

    def died(self, trial: str) -> None:
        """Notes that the worker of a trial has died."""
        self._last_report = self._clock()
        self._heard.pop(trial, None)

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
        now = self._now()
        for metric in METRICS:
            if metric.read is not None:
                self._board.put(metric, {(self._study, *values): value for values, value in metric.read(now).items()})

    def _now(self) -> StudyNow:
        planned = self._ledger.trials
        states = Counter(trial.state for trial in planned.values())
        reason = (self._stop.reason or "none").partition(" (")[0][:_LONGEST_REASON]
        types: dict[str, list[float]] = {}
        for node in self._nodes():
            types.setdefault(node.node_type, []).append(node.usd_per_hour or 0.0)
        return StudyNow(
            trials={state: states[state] for state in get_args(TrialState)}, promised=self._ledger.promised(),
            cells={name: CellNumbers.of(cell.trials) for name, cell in self._ledger.cells.items()},
            backlog=self._backlog(),
            stop=reason if self._stop.is_requested else None, last_report=self._last_report,
            heard={
                (planned[trial].cell, trial, planned[trial].phase): heard
                for trial, heard in self._heard.items()
            },
            nodes={node_type: (len(prices), sum(prices)) for node_type, prices in types.items()},
        )

    @property
    def _study(self) -> str:
        return self._ledger.study.study


@contextmanager
def exported(ledger: StudyLedger, *, backlog: Callable[[], int], stop: StopRequest) -> Iterator[StudyMetrics]:
    """Exports the gauges of a study inside the context. Ray must be connected."""
    board = MetricsBoard()
    watch = ClusterWatch(ledger.study.study)
    metrics = StudyMetrics(ledger, board, backlog=backlog, stop=stop, nodes=lambda: watch.seen)
    board.each_time(lambda: None if stop.is_requested else watch.look())  # Ray itself may have died
    board.start()
    try:
        yield metrics
    finally:
        metrics.tick(now=True)
        board.close()
        watch.close()


LOOK_EVERY_S = 15.0


@dataclass(frozen=True)
class Node:
    """A living node. usd_per_hour: None without a price. metrics: HOST:PORT, None if it serves no metrics."""

    node_type: str
    usd_per_hour: float | None
    metrics: str | None


def targets_file(study: str) -> Path:
    """The targets file for Prometheus (`file_sd_configs`) that the driver of a study maintains while it runs."""
    return home() / "prometheus" / "targets" / f"{study}.json"


class ClusterWatch:
    """Looks at the nodes every LOOK_EVERY_S, in the board's thread. seen: the nodes seen last, for any thread."""

    def __init__(
        self, study: str, *, nodes: Callable[[], Iterable[Node]] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """nodes: None asks Ray, which must be connected."""
        self._nodes, self._clock = nodes or ray_nodes, clock
        self._file = targets_file(study)
        self._next_look = float("-inf")
        self._targets: list[str] = []
        self.seen: list[Node] = []

    def look(self) -> None:
        """Looks at the nodes if LOOK_EVERY_S have passed."""
        now = self._clock()
        if now < self._next_look:
            return
        self._next_look = now + LOOK_EVERY_S
        self.seen = list(self._nodes())
        targets = sorted({node.metrics for node in self.seen if node.metrics is not None})
        if targets != self._targets:
            self._targets = targets
            self._write(targets)

    def close(self) -> None:
        """Removes the targets file, so that Prometheus no longer looks for this study's nodes."""
        with contextlib.suppress(OSError):
            self._file.unlink()

    def _write(self, targets: list[str]) -> None:
        """Writes the targets with the form and labels of Ray's own file, so that a node in both is scraped once."""
        with contextlib.suppress(StorageError):  # a full disk: the study goes on, Prometheus keeps what it knows
            make_folder(self._file.parent)
            write_text(self._file, json.dumps([{"labels": {"job": "ray"}, "targets": targets}]))


def ray_nodes() -> list[Node]:
    """The living nodes of the cluster that this process is connected to."""
    return [node_of(plain) for plain in ray.nodes() if plain.get("Alive")]


def node_of(plain: Mapping[str, Any]) -> Node:
    """A node from Ray's description. plain: an item of `ray.nodes()`."""
    labels = plain.get("Labels") or {}
    port = int(plain.get("MetricsExportPort") or 0)
    return Node(
        node_type=type_of(labels) or "unnamed",
        usd_per_hour=price_of(str(plain["NodeID"]), labels),
        metrics=_address(str(plain["NodeManagerAddress"]), port) if port > 0 else None,
    )


def _address(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
