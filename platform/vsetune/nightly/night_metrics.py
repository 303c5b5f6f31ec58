"""Metrics of a night for Prometheus. Its process ends before it could be scraped, so the metrics are in a file.

node_exporter's textfile collector reads `metrics.prom` in the sweep's folder; with VSETUNE_PUSHGATEWAY set the same
text is pushed there. Names lack Ray's prefix because the metrics do not pass through Ray.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import quote

import requests
from requests.adapters import HTTPAdapter
from urllib3 import Retry

from vsetune.errors import StorageError, one_line
from vsetune.nightly.night import Night, NightReport
from vsetune.nightly.report_words import SIGNS
from vsetune.storage.addresses import masked, usable_url
from vsetune.storage.home_files import keep_in_home
from vsetune.storage.paths import home
from vsetune.storage.whole_files import write_text
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


def metrics_text(report: NightReport, night: Night | None) -> str:
    """The metrics of a report as text; the time of the last complete night comes from the previous file."""
    return exposition(report, night, last_complete=_kept_stamp(metrics_file(report.nightly)))


def write_metrics(name: str, text: str) -> None:
    """Write `metrics.prom` atomically. StorageError."""
    write_text(metrics_file(name), text)
    keep_in_home(metrics_file(name))


@dataclass(frozen=True)
class Patience:
    """With a foreign server. timeout_s: of a network operation. retries: after the first try. pause_s: before each."""

    timeout_s: float = 10.0
    retries: int = 3
    pause_s: float = 10.0

    @property
    def limit_s(self) -> float:
        """Of a whole delivery, where a server never exceeds the timeout of one operation."""
        return 2 * self.timeout_s * (self.retries + 1) + self.pause_s * self.retries


USUAL = Patience()
_LATER = (408, 425, 429, 500, 502, 503, 504)


def push_metrics(name: str, text: str, *, patience: Patience = USUAL) -> None:
    """Replace the sweep's metrics at the Pushgateway, if one is set. StorageError or ConfigError, one line."""
    gateway, where = os.environ.get(PUSHGATEWAY, "").strip().rstrip("/"), f"Pushgateway of {PUSHGATEWAY}"
    if not gateway:
        return
    address = usable_url(f"{gateway}/metrics/job/vsetune_nightly/nightly/{quote(name, safe='')}", where=where)
    again = Retry(patience.retries, status_forcelist=_LATER, allowed_methods=None, backoff_factor=patience.pause_s / 4)
    headers = {"Content-Type": "text/plain; version=0.0.4"}
    try:
        with requests.Session() as session:
            session.mount(gateway.partition("://")[0] + "://", HTTPAdapter(max_retries=again))
            answer = session.put(
                address, text.encode(), headers=headers, timeout=patience.timeout_s, allow_redirects=False
            )
    except requests.RequestException as error:
        raise StorageError(
            "VSE-G052", "{where}: not delivered ({reason})", where=where, reason=masked(one_line(error))
        ) from error
    if not 200 <= answer.status_code < 300:
        reason = masked(one_line(f"answered {answer.status_code}: {answer.text}", most=80))
        raise StorageError("VSE-G052", "{where}: not delivered ({reason})", where=where, reason=reason)


def exposition(report: NightReport, night: Night | None, *, last_complete: float | None = None) -> str:
    """The metrics in Prometheus' text format. last_complete: of earlier nights, Unix seconds."""
    ended, started = moment_of(report.ended), moment_of(report.started)
    if night is not None and night.state == "complete" and ended is not None:
        last_complete = ended
    values = {
        EXIT_CODE: report.exit_code, LAST_REPORT: ended, LAST_COMPLETE: last_complete,
        DURATION: None if ended is None or started is None else ended - started,
    }
    sweep = {"nightly": report.nightly}
    samples: dict[ExportedMetric, list[Sample]] = {
        metric: [] if value is None else [(sweep, value)] for metric, value in values.items()
    }
    samples[ROWS] = [
        ({**sweep, "verdict": verdict}, sum(row.verdict == verdict for row in report.rows)) for verdict in SIGNS
    ]
    streams = [({**sweep, "cell": row.cell, "measure": row.measure_name}, row) for row in report.rows]
    samples[REGRESSED] = [(labels, float(row.verdict in ("regression", "changed"))) for labels, row in streams]
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


def moment_of(text: str) -> float | None:
    """Unix seconds of an ISO time; a time without a zone is in UTC. None for other text."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return None
    return (moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)).timestamp()


def _kept_stamp(file: Path) -> float | None:
    """Unix seconds of the last complete night, from an earlier metrics file; None if unknown."""
    try:
        text = file.read_text(encoding="utf-8", errors="replace")
    except OSError:  # usually the file does not exist yet; a faulty disk is reported when the file is written
        return None
    found = re.search(rf"^{LAST_COMPLETE.name}\{{.*\}} ([0-9.e+]+)$", text, re.MULTILINE)
    return float(found[1]) if found else None
