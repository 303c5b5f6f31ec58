"""Metrics of a night for Prometheus. Its process ends before it could be scraped, so the metrics are in a file.

node_exporter's textfile collector reads `metrics.prom` in the sweep's folder; with VSETUNE_PUSHGATEWAY set the same
text is pushed there. Names lack Ray's prefix because the metrics do not pass through Ray.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from pathlib import Path

from vsetune.home.home_files import keep_in_home
from vsetune.home.paths import home
from vsetune.home.whole_files import write_text
from vsetune.nightly.night import ALARMS, NightReport, moment_of, seconds_of
from vsetune.nightly.report_words import SIGNS
from vsetune.study.exported_metrics import ExportedMetric

FILE = "metrics.prom"
PUSHGATEWAY = "VSETUNE_PUSHGATEWAY"
OF_SWEEP, OF_STREAM = ("nightly",), ("nightly", "cell", "measure")

EXIT_CODE = ExportedMetric(
    "vsetune_nightly_exit_code", "0, 1 or 2",
    "Of the last report: 0 no change, 1 regression, 2 could not run or not all of it", OF_SWEEP, "night",
)
LAST_REPORT = ExportedMetric(
    "vsetune_nightly_last_report_timestamp_seconds", "Unix time, s", "When the last reported night ended",
    OF_SWEEP, "night",
)
LAST_COMPLETE = ExportedMetric(
    "vsetune_nightly_last_complete_timestamp_seconds", "Unix time, s",
    "When the last night ended in which every cell was measured; absent while there is none", OF_SWEEP, "night",
)
DURATION = ExportedMetric(
    "vsetune_nightly_duration_seconds", "s", "How long the last reported night took", OF_SWEEP, "night",
)
ROWS = ExportedMetric(
    "vsetune_nightly_rows", "rows", "Rows of the last report (a cell and a measure) by verdict",
    (*OF_SWEEP, "verdict"), "night",
)
REGRESSED = ExportedMetric(
    "vsetune_nightly_regressed", "0 or 1", "1 where the last report tells a regression, or other first losses",
    OF_STREAM, "night",
)
VALUE = ExportedMetric(
    "vsetune_nightly_value", "as the measure has it", "The night's value; absent where not measured",
    OF_STREAM, "night",
)
LOW = ExportedMetric(
    "vsetune_nightly_low", "as the measure has it", "Lower end of quiet nights; absent in the baseline",
    OF_STREAM, "night",
)
HIGH = ExportedMetric(
    "vsetune_nightly_high", "as the measure has it", "Upper end of quiet nights; absent in the baseline",
    OF_STREAM, "night",
)

NIGHT_METRICS = (EXIT_CODE, LAST_REPORT, LAST_COMPLETE, DURATION, ROWS, REGRESSED, VALUE, LOW, HIGH)
"""4 series per sweep, one per verdict, and at most 4 per cell and measure."""

Sample = tuple[Mapping[str, str], float]


def metrics_file(name: str) -> Path:
    """Path of the metrics of a sweep, beside its history."""
    return home() / "nightly" / name / FILE


def write_metrics(name: str, text: str) -> None:
    """Write `metrics.prom` atomically. StorageError."""
    write_text(metrics_file(name), text)
    keep_in_home(metrics_file(name))


def exposition(report: NightReport, last_complete: str) -> str:
    """The metrics in Prometheus' text format. last_complete: when the newest complete night ended; empty without one.
    """
    values = {
        EXIT_CODE: report.exit_code, LAST_REPORT: moment_of(report.ended), LAST_COMPLETE: moment_of(last_complete),
        DURATION: seconds_of(report.started, report.ended),
    }
    sweep = {"nightly": report.nightly}
    samples: dict[ExportedMetric, list[Sample]] = {
        metric: [] if value is None else [(sweep, value)] for metric, value in values.items()
    }
    samples[ROWS] = [
        ({**sweep, "verdict": verdict}, sum(row.verdict == verdict for row in report.rows)) for verdict in SIGNS
    ]
    streams = [({**sweep, "cell": row.cell, "measure": row.measure_name}, row) for row in report.rows]
    samples[REGRESSED] = [(labels, float(row.verdict in ALARMS)) for labels, row in streams]
    for metric, part in ((VALUE, "tonight"), (LOW, "low"), (HIGH, "high")):
        known = [(labels, getattr(row, part)) for labels, row in streams if row.measure is not None]
        samples[metric] = [(labels, value) for labels, value in known if value is not None and math.isfinite(value)]
    return "".join(line for metric in NIGHT_METRICS for line in _lines(metric, samples[metric]))


def _lines(metric: ExportedMetric, samples: Iterable[Sample]) -> Iterable[str]:
    written = [f"{metric.name}{{{_labels(labels)}}} {value!r}\n" for labels, value in samples]
    if written:
        yield f"# HELP {metric.name} {metric.help}\n# TYPE {metric.name} gauge\n"
        yield from written


def _labels(labels: Mapping[str, str]) -> str:
    return ",".join(f'{name}="{_escaped(value)}"' for name, value in labels.items())


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
