"""Table of all gauges that trials and drivers export to Prometheus. Imports neither Ray nor torch.

Exporter, dashboards, alert rules, dashboards/prometheus/metrics.csv and the tests all use this table. A gauge of a
driver says in `read` how it follows from the study's records, so a driver that starts again shows the same numbers.

Number of series: only gauges have a label that names a trial, and only while the trial is placed. Ray drops a gauge
that has not been set for two of its reports (20 s), so a series ends with its trial. Hence

    series now = (7 + loss parts) x running trials + 12 x cells + 11 per study + kinds of failures + 2 per node type.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, get_args

from vsetune.records.events import AttemptStatus

if TYPE_CHECKING:
    from vsetune.study.cell_numbers import CellNumbers

OF_TRIAL = ("study", "cell", "trial", "phase")
OF_CELL = ("study", "cell")
OF_STUDY = ("study",)

MOST_LOSS_PARTS = 16
"""Of a loss with more parts, the first ones in the order of their names are exported."""


@dataclass(frozen=True)
class StudyNow:
    """What the driver of a study knows at one moment. Times are Unix times.

    trials: number by state. stop: the reason for which the study was asked to stop, None if it was not. heard: when
    each placed trial, as (cell, trial, phase), was last heard of. nodes: (number, USD per hour) by type.
    """

    trials: Mapping[str, int]
    promised: int
    cells: Mapping[str, CellNumbers]
    backlog: int
    stop: str | None
    last_report: float
    heard: Mapping[tuple[str, ...], float]
    nodes: Mapping[str, tuple[int, float]]


Samples = Mapping[tuple[str, ...], float]
"""Values of a gauge by the values of its labels."""


@dataclass(frozen=True)
class ExportedMetric:
    """One gauge. name: in our code; in Prometheus it has Ray's prefix. read: of a driver's gauge, its values by its
    labels after `study`; None for a gauge of another source.

    source `night`: written to a file when the night ends (nightly/night_metrics.py), so it has no prefix from Ray.
    """

    name: str
    unit: str
    help: str
    labels: tuple[str, ...]
    source: Literal["worker", "driver", "night"]
    read: Callable[[StudyNow], Samples] | None = None

    @property
    def in_prometheus(self) -> str:
        """The name in queries."""
        return self.name if self.source == "night" else f"ray_{self.name}"


def _of_trial(name: str, unit: str, text: str, *more: str) -> ExportedMetric:
    return ExportedMetric(f"vsetune_trial_{name}", unit, text, (*OF_TRIAL, *more), "worker")


def _of_cell(name: str, unit: str, text: str, number: Callable[[CellNumbers], float | None]) -> ExportedMetric:
    """number: None where it is not known."""
    def read(now: StudyNow) -> Samples:
        numbers = {(name,): number(cell) for name, cell in now.cells.items()}
        return {labels: value for labels, value in numbers.items() if value is not None}

    return ExportedMetric(f"vsetune_cell_{name}", unit, text, OF_CELL, "driver", read)


def _of_study(name: str, unit: str, text: str, number: Callable[[StudyNow], float]) -> ExportedMetric:
    return ExportedMetric(f"vsetune_study_{name}", unit, text, OF_STUDY, "driver", lambda now: {(): number(now)})


def _attempts(cells: Mapping[str, CellNumbers]) -> Samples:
    """States without an attempt count 0, so that a share of all attempts can be asked for from the start."""
    none: dict[tuple[str, ...], float] = {
        (cell, state, "none"): 0.0 for cell in cells for state in get_args(AttemptStatus)
    }
    return none | {(name, *labels): count for name, cell in cells.items() for labels, count in cell.attempts.items()}


TRIAL_M_RECALL = _of_trial("m_recall_ratio", "0 to 1", "M-Recall of the last validation")
TRIAL_EPOCHS = _of_trial("epochs", "epochs", "Epoch of the last validation: pairs seen / pairs")
TRIAL_PAIRS_PER_SECOND = _of_trial(
    "pairs_per_second", "pairs/s", "Pairs trained per second between the last two validations, waiting for batches "
    "included",
)
TRIAL_DATA_WAIT = _of_trial(
    "data_wait_ratio", "0 to 1", "Share of the time between the last two validations that was spent waiting for "
    "batches, validation not counted",
)
TRIAL_LOSS = _of_trial(
    "loss", "as the loss has it", "Mean over the steps between the last two validations: part `total`, and each part "
    "of the loss", "part",
)
TRIAL_DEVICE_MEMORY = _of_trial(
    "device_memory_bytes", "bytes", "Memory of the trial's device that it holds: allocated on a GPU, resident on the "
    "CPU",
)
TRIAL_LAST_VALIDATION = ExportedMetric(
    "vsetune_trial_last_validation_timestamp_seconds", "Unix time, s",
    "When the driver last heard of a validation of a placed trial, or of its start", OF_TRIAL, "driver",
    lambda now: now.heard,
)
CELL_CHARGED_EPOCHS = _of_cell(
    "charged_epochs", "epochs", "Epochs charged to the cell's budget: pruned and failed work too, work that a crash "
    "lost not", lambda cell: cell.charged_epochs,
)
CELL_WASTED_EPOCHS = _of_cell(
    "wasted_epochs", "epochs", "What was trained besides and lost in a crash", lambda cell: cell.wasted_epochs,
)
CELL_DEVICE_SECONDS = _of_cell(
    "device_seconds", "s", "How long trials of the cell have occupied their devices",
    lambda cell: cell.device_seconds,
)
CELL_BEST_M_RECALL = _of_cell(
    "best_m_recall_ratio", "0 to 1", "Best M-Recall of any validation so far", lambda cell: cell.best / 100,
)
CELL_VALIDATIONS = _of_cell(
    "validations", "validations", "Validations so far; those repeated after a crash count once",
    lambda cell: cell.validations,
)
CELL_COST = _of_cell(
    "cost_usd", "USD", "Price of the shares of nodes that trials of the cell have held until their last validations; "
    "nothing where a node has no price", lambda cell: cell.usd,
)
CELL_PRICE = _of_cell(
    "usd_per_hour", "USD/h", "Price of the shares of nodes that running trials of the cell hold; nothing where no node "
    "had a price",
    lambda cell: None if cell.usd is None else sum(price for price in cell.prices if price is not None),
)
CELL_ATTEMPTS = ExportedMetric(
    "vsetune_cell_attempts", "attempts", "Attempts by state, as the log has them, and by kind of failure, `none` "
    "without one", (*OF_CELL, "state", "kind"), "driver",
    lambda now: _attempts(now.cells),
)
STUDY_TRIALS = ExportedMetric(
    "vsetune_study_trials", "trials",
    "Trials by state: waiting (also after an interruption), left_open, running, finished, pruned, failed",
    (*OF_STUDY, "state"), "driver", lambda now: {(state,): count for state, count in now.trials.items()},
)
STUDY_PROMISED_TRIALS = _of_study(
    "promised_trials", "trials", "Trials the study comes to if no budget ends a cell early", lambda now: now.promised,
)
STUDY_LAST_REPORT = _of_study(
    "last_report_timestamp_seconds", "Unix time, s", "When the driver last heard of any of its trials, or started",
    lambda now: now.last_report,
)
STUDY_JOURNAL_BACKLOG = _of_study(
    "journal_backlog_records", "records", "Events of the log that MLflow does not have yet", lambda now: now.backlog,
)
STUDY_STOP_REQUESTED = ExportedMetric(
    "vsetune_study_stop_requested", "0 or 1", "1 for the reason for which the study was asked to stop",
    (*OF_STUDY, "reason"), "driver",
    lambda now: {("none" if now.stop is None else now.stop,): float(now.stop is not None)},
)
STUDY_UNPRICED_TRIALS = _of_study(
    "unpriced_trials", "trials", "Running trials on nodes without a price, whose cost is counted nowhere",
    lambda now: sum(price is None for cell in now.cells.values() for price in cell.prices),
)
CLUSTER_NODES = ExportedMetric(
    "vsetune_cluster_nodes", "nodes", "Living nodes of the cluster, by node type", (*OF_STUDY, "node_type"), "driver",
    lambda now: {(node_type,): count for node_type, (count, _) in now.nodes.items()},
)
CLUSTER_PRICE = ExportedMetric(
    "vsetune_cluster_usd_per_hour", "USD/h", "What these nodes cost, idle or not", (*OF_STUDY, "node_type"), "driver",
    lambda now: {(node_type,): usd for node_type, (_, usd) in now.nodes.items()},
)

METRICS: tuple[ExportedMetric, ...] = tuple(value for value in list(globals().values())
                                            if isinstance(value, ExportedMetric))
"""All gauges, in the order of this file."""
