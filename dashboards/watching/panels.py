"""Every panel of every dashboard, as plain data, for Grafana's files, the page and the live check.

Each gauge is reduced by `max by` before it is summed: after a driver or worker is replaced, Prometheus has the gauges
of both processes for up to 20 s.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from vsetune.nightly import night_metrics as nights
from vsetune.study import exported_metrics as ours
from vsetune.study.exported_metrics import ExportedMetric

Unit = Literal["share", "number", "seconds", "hours", "bytes", "bytes/s", "USD", "USD/h", "pairs/s", "epochs"]
Needs = Literal["", "gpu", "night", "price", "validation"]
WHY_EMPTY: Mapping[Needs, str] = {
    "": "nothing yet",
    "gpu": "no node has a GPU",
    "night": "no night collected yet",
    "price": "no node type has a price",
    "validation": "no trial trains on after a validation",
}
"""Text of an empty panel. A trial that ends with its first validation is gone before Prometheus reads it."""


@dataclass(frozen=True)
class Panel:
    """One query. legend: with labels in braces, in Grafana's format. needs: without it the panel is empty."""

    title: str
    expr: str
    unit: Unit
    legend: str
    help: str
    kind: Literal["line", "stat"] = "line"
    needs: Needs = ""


@dataclass(frozen=True)
class Board:
    """A dashboard. variables: labels to filter by, each among the values that the one before leaves. since: start of
    the initial time range, in Grafana's format."""

    name: str
    title: str
    help: str
    variables: tuple[str, ...]
    panels: tuple[Panel, ...]
    since: str = "now-3h"


def series(metric: ExportedMetric, *labels: str, of: str = "") -> str:
    """A metric of the chosen studies. labels: those of the dashboard's variables besides `study`. of: further ones."""
    chosen = [f'{name}=~"${name}"' for name in ("study", *labels) if name in metric.labels]
    return f"{metric.in_prometheus}{{{', '.join([*chosen, *filter(None, [of])])}}}"


def now(metric: ExportedMetric, *by: str, of: str = "") -> str:
    """What a gauge is now, by some of its labels."""
    return f"max by ({', '.join(by)}) ({series(metric, of=of)})"


def of_trials(metric: ExportedMetric, *by: str) -> str:
    """A gauge of the chosen trials."""
    return f"max by ({', '.join(by)}) ({series(metric, 'cell', 'trial')})"


def of_nights(metric: ExportedMetric, *by: str) -> str:
    """What the last report of the chosen sweeps says, by some of the metric's labels."""
    chosen = ", ".join(f'{name}=~"${name}"' for name in ("nightly", "cell", "measure") if name in metric.labels)
    return f"max by ({', '.join(by)}) ({metric.in_prometheus}{{{chosen}}})"


def _part(name: str, metric: ExportedMetric) -> str:
    """A metric of a stream, with a label for the curve it makes."""
    return f'label_replace({of_nights(metric, *_STREAM)}, "part", "{name}", "", "")'


CLUSTER = Board(
    "cluster", "vsetune cluster", "Nodes, what they do and what they cost. The node panels read Ray's own metrics.", (),
    (
        Panel("Nodes", "count(max by (instance) (ray_node_cpu_count))", "number", "nodes",
              "Nodes that Prometheus reads metrics from.", "stat"),
        Panel("Price now", f"sum(max by (node_type) ({ours.CLUSTER_PRICE.in_prometheus}))", "USD/h", "all nodes",
              "What the living nodes cost per hour, idle or not. Nodes without a price count nothing.", "stat",
              needs="price"),
        Panel("Trials running", f'sum(max by (study) ({ours.STUDY_TRIALS.in_prometheus}{{state="running"}}))', "number",
              "trials", "Of all studies on the cluster.", "stat"),
        Panel("Metrics endpoints that do not answer", 'count(up{job="ray"} == 0) or vector(0)', "number", "endpoints",
              "A node that is gone is not asked any longer; one that is asked and silent hangs or is cut off.", "stat"),
        Panel("Nodes by type", f"max by (node_type) ({ours.CLUSTER_NODES.in_prometheus})", "number", "{{node_type}}",
              "As the drivers see them."),
        Panel("Trials running by study", f'max by (study) ({ours.STUDY_TRIALS.in_prometheus}{{state="running"}})',
              "number", "{{study}}", "How many trials each study has placed."),
        Panel("CPUs by state", 'sum by (State) (ray_resources{Name="CPU"})', "number", "{{State}}",
              "What Ray has promised to trials and what it could still promise."),
        Panel("CPU use", "max by (instance) (ray_node_cpu_utilization) / 100", "share", "{{instance}}",
              "Busy share of each node's CPUs."),
        Panel("Memory use", "max by (instance) (ray_node_mem_used) / max by (instance) (ray_node_mem_total)", "share",
              "{{instance}}", "Near 1 the kernel kills processes, and trials are interrupted."),
        Panel("Disk use", "max by (instance) (ray_node_disk_utilization_percentage) / 100", "share", "{{instance}}",
              "Near 1 checkpoints cannot be written, and trials are interrupted."),
        Panel("Network in", "max by (instance) (ray_node_network_receive_speed)", "bytes/s", "{{instance}}",
              "Shards on their way to the node, and reports."),
        Panel("Network out", "max by (instance) (ray_node_network_send_speed)", "bytes/s", "{{instance}}",
              "Checkpoints on their way to storage, and reports."),
        Panel("GPU use", "avg by (instance) (ray_node_gpus_utilization) / 100", "share", "{{instance}}",
              "Mean over the GPUs of a node. Low with a high share of waiting for data: reading is the bottleneck.",
              needs="gpu"),
        Panel("GPU memory", "sum by (instance) (ray_node_gram_used) * 1048576", "bytes", "{{instance}}",
              "Used on all GPUs of a node, by whatever process.", needs="gpu"),
    ),
)

_ENDED, _EARLY = 'state=~"finished|pruned|failed"', 'state=~"failed|killed"'
_ATTEMPTS = ours.CELL_ATTEMPTS.labels
STUDY = Board(
    "study", "vsetune study", "How far a study is, what it has cost, and what goes wrong.", ("study",),
    (
        Panel("Done", f"sum by (study) ({now(ours.STUDY_TRIALS, 'study', 'state', of=_ENDED)}) / "
              f"{now(ours.STUDY_PROMISED_TRIALS, 'study')}", "share", "{{study}}",
              "Trials that ended, of those the study comes to if no budget ends a cell early.", "stat"),
        Panel("Since the last report", f"time() - {now(ours.STUDY_LAST_REPORT, 'study')}", "seconds", "{{study}}",
              "Of any trial. Longer than a validation takes: the study is stuck.", "stat"),
        Panel("Waiting for the tracking store", now(ours.STUDY_JOURNAL_BACKLOG, "study"), "number", "{{study}}",
              "Records in the journal that the tracking store has not got yet.", "stat"),
        Panel("Asked to stop", now(ours.STUDY_STOP_REQUESTED, "study", "reason"), "number", "{{study}}: {{reason}}",
              "1 beside the reason while the study ends, 0 beside `none`.", "stat"),
        Panel("Trials by state", f"sum by (state) ({now(ours.STUDY_TRIALS, 'study', 'state')})", "number", "{{state}}",
              "`left_open`: interrupted too often, for `--resume`."),
        Panel("Attempts by state", f"sum by (state) ({now(ours.CELL_ATTEMPTS, *_ATTEMPTS)})", "number",
              "{{state}}", "A trial that was interrupted has several; `killed` are those that were."),
        Panel("Best M-Recall", now(ours.CELL_BEST_M_RECALL, "study", "cell"), "share", "{{cell}}",
              "The best validation of each cell so far, of any configuration and seed."),
        Panel("Epochs charged", now(ours.CELL_CHARGED_EPOCHS, "study", "cell"), "epochs", "{{cell}}",
              "What counts against a cell's budget, pruned and failed work included."),
        Panel("Epochs wasted", now(ours.CELL_WASTED_EPOCHS, "study", "cell"), "epochs", "{{cell}}",
              "Trained besides and lost: after the last checkpoint of an attempt that died."),
        Panel("Device-hours", f"{now(ours.CELL_DEVICE_SECONDS, 'study', 'cell')} / 3600", "hours", "{{cell}}",
              "How long the trials of each cell have held their devices."),
        Panel("Cost", now(ours.CELL_COST, "study", "cell"), "USD", "{{cell}}",
              "Price of the shares of nodes that trials held until their last validations. Idle nodes are in the "
              "cluster's price, not here.", needs="price"),
        Panel("Cost per hour", f"sum by (study) ({now(ours.CELL_PRICE, 'study', 'cell')})", "USD/h", "{{study}}",
              "Price of the shares of nodes that running trials hold.", needs="price"),
        Panel("Trials on nodes without a price", now(ours.STUDY_UNPRICED_TRIALS, "study"), "number", "{{study}}",
              "Their cost is counted nowhere: give the node type a price."),
        Panel("Pairs per second", f"sum by (study) (max by (study, trial) ({series(ours.TRIAL_PAIRS_PER_SECOND)}))",
              "pairs/s", "{{study}}", "All running trials together.", needs="validation"),
        Panel("Validations per minute", f"sum by (study) (max by (study, cell) (deriv("
              f"{series(ours.CELL_VALIDATIONS)}[$__rate_interval]))) * 60", "number", "{{study}}",
              "All running trials together."),
        Panel("Attempts that ended early", f"sum by (kind, state) ({now(ours.CELL_ATTEMPTS, *_ATTEMPTS, of=_EARLY)})",
              "number", "{{kind}} {{state}}", "By kind of failure; `killed` trials go on. What the kinds mean: "
              "docs/when_things_go_wrong.md."),
    ),
)

TRIAL = Board(
    "trial", "vsetune trial", "What running trials do. A series ends with its trial.", ("study", "cell", "trial"),
    (
        Panel("M-Recall", of_trials(ours.TRIAL_M_RECALL, "trial"), "share", "{{trial}}",
              "Of the last validation.", needs="validation"),
        Panel("Epoch", of_trials(ours.TRIAL_EPOCHS, "trial"), "epochs", "{{trial}}",
              "Pairs seen / pairs, at the last validation.", needs="validation"),
        Panel("Loss", of_trials(ours.TRIAL_LOSS, "trial", "part"), "number", "{{trial}} {{part}}",
              "Mean over the steps between the last two validations; `total` and the parts of the loss.",
              needs="validation"),
        Panel("Pairs per second", of_trials(ours.TRIAL_PAIRS_PER_SECOND, "trial"), "pairs/s", "{{trial}}",
              "Between the last two validations, waiting for batches included.", needs="validation"),
        Panel("Waiting for data", of_trials(ours.TRIAL_DATA_WAIT, "trial"), "share", "{{trial}}",
              "Share of the training time that was spent waiting for batches. Above 0.1 reading is the bottleneck.",
              needs="validation"),
        Panel("Device memory", of_trials(ours.TRIAL_DEVICE_MEMORY, "trial"), "bytes", "{{trial}}",
              "Allocated on its GPU; on the CPU, what its process holds."),
        Panel("Since the last validation", f"time() - {of_trials(ours.TRIAL_LAST_VALIDATION, 'trial')}", "seconds",
              "{{trial}}", "Or since it was placed; a value needs 10 to 20 s to get here. Of trials that hang too."),
    ),
)

_STREAM = nights.OF_STREAM
_MIDDLE, _WIDTH = (f"({of_nights(nights.HIGH, *_STREAM)} {sign} {of_nights(nights.LOW, *_STREAM)})" for sign in "+-")
NIGHTLY = Board(
    "nightly", "vsetune nightly", "What nightly sweeps found. A night ends with its report, whose numbers stay until "
    "the next.", ("nightly", "cell", "measure"),
    (
        Panel("Exit code", of_nights(nights.EXIT_CODE, "nightly"), "number", "{{nightly}}",
              "Of the last report: 0 no change, 1 regression, 2 could not run, or not all of it.", "stat",
              needs="night"),
        Panel("Worse than their own nights", f"sum by (nightly) ({of_nights(nights.REGRESSED, *_STREAM)})", "number",
              "{{nightly}}", "Cells and measures with a regression, or with other first losses.", "stat",
              needs="night"),
        Panel("Since the last complete night", f"time() - {of_nights(nights.LAST_COMPLETE, 'nightly')}", "seconds",
              "{{nightly}}", "Complete: every cell was measured.", "stat", needs="night"),
        Panel("Since the last report", f"time() - {of_nights(nights.LAST_REPORT, 'nightly')}", "seconds", "{{nightly}}",
              "Of any night, also of one that could not run.", "stat", needs="night"),
        Panel("Rows by verdict", of_nights(nights.ROWS, "nightly", "verdict"), "number", "{{nightly}} {{verdict}}",
              "A row is a cell and a measure.", needs="night"),
        Panel("How long a night takes", of_nights(nights.DURATION, "nightly"), "seconds", "{{nightly}}",
              "From its start to its report.", needs="night"),
        Panel("Worse, by cell", f"sum by (nightly, cell) ({of_nights(nights.REGRESSED, *_STREAM)})", "number",
              "{{nightly}} {{cell}}", "How many measures of the cell are worse than their own nights.", needs="night"),
        Panel("Place in the band", f"(2 * {of_nights(nights.VALUE, *_STREAM)} - {_MIDDLE}) / ({_WIDTH} > 0)", "number",
              "{{cell}} {{measure}}", "0 is its middle, -1 and 1 are its ends: quiet nights stay between them.",
              needs="night"),
        Panel("Value and band", " or ".join([_part("tonight", nights.VALUE), _part("low", nights.LOW),
                                             _part("high", nights.HIGH)]), "number", "{{cell}} {{measure}} {{part}}",
              "In the unit of the measure: choose one above.", needs="night"),
    ),
    since="now-30d",
)

BOARDS = (CLUSTER, STUDY, TRIAL, NIGHTLY)


def every_panel() -> Iterator[tuple[Board, Panel]]:
    """All of them, in order."""
    return ((board, panel) for board in BOARDS for panel in board.panels)


def filled(expr: str, *, rate_interval: str = "1m", **chosen: str) -> str:
    """A query as Prometheus takes it: Grafana's variables replaced. chosen: regular expressions, else everything."""
    for name in ("study", "cell", "trial", "nightly", "measure"):
        expr = expr.replace(f'"${name}"', f'"{chosen.get(name, ".*")}"')
    return expr.replace("$__rate_interval", rate_interval)
