"""Table of all metrics that trials and drivers export to Prometheus. Imports neither Ray nor torch.

Exporter, dashboards, alert rules, dashboards/prometheus/metrics.csv and the tests all use this table.

Number of series: only gauges have a label that names a trial, and only while the trial is placed. Ray drops a gauge
that has not been set for two of its reports (20 s), so a series ends with its trial. Ray keeps a counter until its node
ends, so counters have no label that grows with the study. Hence

    series now = (7 + loss parts) x running trials + 10 x cells + 12 per study + kinds of failures + 2 per node type.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

OF_TRIAL = ("study", "cell", "trial", "phase")
OF_CELL = ("study", "cell")
OF_STUDY = ("study",)

MOST_LOSS_PARTS = 16
"""Of a loss with more parts, the first ones in the order of their names are exported."""


@dataclass(frozen=True)
class ExportedMetric:
    """One metric. name: in our code; in Prometheus it has Ray's prefix. source: the process that exports it.

    source `night`: written to a file when the night ends (nightly/night_metrics.py), so it has no prefix from Ray.
    """

    name: str
    kind: Literal["gauge", "counter"]
    unit: str
    help: str
    labels: tuple[str, ...]
    source: Literal["worker", "driver", "night"]

    @property
    def in_prometheus(self) -> str:
        """The name in queries."""
        return self.name if self.source == "night" else f"ray_{self.name}"


TRIAL_M_RECALL = ExportedMetric(
    "vsetune_trial_m_recall_ratio", "gauge", "0 to 1", "M-Recall of the last validation", OF_TRIAL, "worker",
)
TRIAL_EPOCHS = ExportedMetric(
    "vsetune_trial_epochs", "gauge", "epochs", "Epoch of the last validation: pairs seen / pairs", OF_TRIAL, "worker",
)
TRIAL_PAIRS_PER_SECOND = ExportedMetric(
    "vsetune_trial_pairs_per_second", "gauge", "pairs/s",
    "Pairs trained per second between the last two validations, waiting for batches included", OF_TRIAL, "worker",
)
TRIAL_DATA_WAIT = ExportedMetric(
    "vsetune_trial_data_wait_ratio", "gauge", "0 to 1",
    "Share of the time between the last two validations that was spent waiting for batches, validation not counted",
    OF_TRIAL, "worker",
)
TRIAL_LOSS = ExportedMetric(
    "vsetune_trial_loss", "gauge", "as the loss has it",
    "Mean over the steps between the last two validations: part `total`, and each part of the loss",
    (*OF_TRIAL, "part"), "worker",
)
TRIAL_DEVICE_MEMORY = ExportedMetric(
    "vsetune_trial_device_memory_bytes", "gauge", "bytes",
    "Memory of the trial's device that it holds: allocated on a GPU, resident on the CPU", OF_TRIAL, "worker",
)
TRIAL_LAST_VALIDATION = ExportedMetric(
    "vsetune_trial_last_validation_timestamp_seconds", "gauge", "Unix time, s",
    "When the driver last heard of a validation of a placed trial, or of its start", OF_TRIAL, "driver",
)
CELL_CHARGED_EPOCHS = ExportedMetric(
    "vsetune_cell_charged_epochs", "gauge", "epochs",
    "Epochs charged to the cell's budget: pruned and failed work too, work that a crash lost not", OF_CELL, "driver",
)
CELL_WASTED_EPOCHS = ExportedMetric(
    "vsetune_cell_wasted_epochs", "gauge", "epochs", "What was trained besides and lost in a crash", OF_CELL, "driver",
)
CELL_DEVICE_SECONDS = ExportedMetric(
    "vsetune_cell_device_seconds", "gauge", "s", "How long trials of the cell have occupied their devices", OF_CELL,
    "driver",
)
CELL_BEST_M_RECALL = ExportedMetric(
    "vsetune_cell_best_m_recall_ratio", "gauge", "0 to 1", "Best M-Recall of any validation so far", OF_CELL, "driver",
)
CELL_COST = ExportedMetric(
    "vsetune_cell_cost_usd_total", "counter", "USD",
    "Price of the shares of nodes that trials of the cell have held since the driver started; nothing where a node has "
    "no price", OF_CELL, "driver",
)
CELL_ATTEMPTS = ExportedMetric(
    "vsetune_cell_attempts", "gauge", "attempts", "Attempts by state, as the log has them",
    (*OF_CELL, "state"), "driver",
)
STUDY_TRIALS = ExportedMetric(
    "vsetune_study_trials", "gauge", "trials",
    "Trials by state: waiting (also after an interruption), left_open, running, finished, pruned, failed",
    (*OF_STUDY, "state"), "driver",
)
STUDY_PROMISED_TRIALS = ExportedMetric(
    "vsetune_study_promised_trials", "gauge", "trials",
    "Trials the study comes to if no budget ends a cell early", OF_STUDY, "driver",
)
STUDY_VALIDATIONS = ExportedMetric(
    "vsetune_study_validations_total", "counter", "validations", "Validations that the driver has heard of", OF_STUDY,
    "driver",
)
STUDY_FAILURES = ExportedMetric(
    "vsetune_study_failures_total", "counter", "attempts",
    "Attempts that ended early, by kind of failure and by outcome: failed (for good) or interrupted (it goes on)",
    (*OF_STUDY, "kind", "outcome"), "driver",
)
STUDY_LAST_REPORT = ExportedMetric(
    "vsetune_study_last_report_timestamp_seconds", "gauge", "Unix time, s",
    "When the driver last heard of any of its trials, or started", OF_STUDY, "driver",
)
STUDY_JOURNAL_BACKLOG = ExportedMetric(
    "vsetune_study_journal_backlog_records", "gauge", "records",
    "Events of the log that MLflow does not have yet", OF_STUDY, "driver",
)
STUDY_STOP_REQUESTED = ExportedMetric(
    "vsetune_study_stop_requested", "gauge", "0 or 1", "1 for the reason for which the study was asked to stop",
    (*OF_STUDY, "reason"), "driver",
)
STUDY_UNPRICED_TRIALS = ExportedMetric(
    "vsetune_study_unpriced_trials", "gauge", "trials",
    "Placed trials on nodes without a price, whose cost is counted nowhere", OF_STUDY, "driver",
)
CLUSTER_NODES = ExportedMetric(
    "vsetune_cluster_nodes", "gauge", "nodes", "Living nodes of the cluster, by node type", (*OF_STUDY, "node_type"),
    "driver",
)
CLUSTER_PRICE = ExportedMetric(
    "vsetune_cluster_usd_per_hour", "gauge", "USD/h", "What these nodes cost, idle or not", (*OF_STUDY, "node_type"),
    "driver",
)

METRICS: tuple[ExportedMetric, ...] = tuple(value for value in list(globals().values())
                                            if isinstance(value, ExportedMetric))
"""All metrics, in the order of this file."""
