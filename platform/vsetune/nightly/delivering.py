"""Where a finished report goes."""

from __future__ import annotations

from rich.console import Console

from vsetune.nightly.history import History
from vsetune.nightly.report import NightReport
from vsetune.nightly.report_spec import ReportSpec


def deliver(report: NightReport, history: History, spec: ReportSpec, console: Console) -> None:
    """Keep the report with the history."""
    lines = [report.headline, *report.notes, *(f"{row.cell}: {row.text}" for row in report.rows)]
    history.keep_report(report, "", "\n\n".join(lines) + "\n")
