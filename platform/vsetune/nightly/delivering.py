"""Delivery of a report: files, MLflow, Prometheus, chat, mail. A failed step adds a note and does not stop the rest."""

from __future__ import annotations

import json
import logging
import math
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING

from vsetune.errors import VsetuneError
from vsetune.nightly.mail import send_mail, server_from_environment
from vsetune.nightly.night import Night, NightReport
from vsetune.nightly.night_metrics import metrics_text, moment_of, push_metrics, stream_name, write_metrics
from vsetune.nightly.nightly_spec import ReportSpec
from vsetune.nightly.report_page import to_html
from vsetune.nightly.report_words import SIGNS, presentable
from vsetune.nightly.sending import USUAL, Patience, post
from vsetune.nightly.sentences import to_markdown
from vsetune.storage.addresses import masked
from vsetune.storage.foreign_text import one_line

if TYPE_CHECKING:
    from vsetune.records.mlflow_nights import MlflowNights, NightRun

_log = logging.getLogger(__name__)
NOT_KEPT = "the report could not be kept: "
_LONGEST_NOTE = 400

Keep = Callable[[NightReport, str, str], object]
"""Writes report, page and Markdown to the history (`History.keep_report`)."""


def deliver(
    report: NightReport, keep: Keep, spec: ReportSpec, *, night: Night | None, tracking_uri: str | None,
    patience: Patience = USUAL,
) -> NightReport:
    """Store and send a report, exit code 2 included; returns the report with a note for each step that failed.

    night: as measured, None where it could not run. tracking_uri: None stores no run. Raises no VsetuneError and no
    OSError. Where not even the files could be written, `was_kept` of the returned report is False, and the caller shows
    the report.
    """
    delivery = _Delivery(presentable(report), keep, patience)
    delivery.keep_files()
    if spec.mlflow and tracking_uri is not None:
        delivery.attempt("MLflow", lambda: delivery.keep_run(tracking_uri))
    delivery.attempt("metrics", lambda: delivery.export(night))
    if spec.notify == "always" or (spec.notify == "regressions" and report.exit_code != 0):
        delivery.notify(spec)
    delivery.keep_what_changed()
    return delivery.report


def was_kept(report: NightReport) -> bool:
    """Whether the files of a report that `deliver` returned were written."""
    return not any(note.startswith(NOT_KEPT) for note in report.notes)


@dataclass
class _Delivery:
    """A delivery in progress. report: its current state. written, uploaded: its state when last stored in files and in
    MLflow."""

    report: NightReport
    keep: Keep
    patience: Patience
    written: NightReport | None = None
    uploaded: NightReport | None = None
    runs: MlflowNights | None = None

    def attempt(self, what: str, step: Callable[[], object]) -> None:
        """Run a step; a failure becomes a note."""
        try:
            step()
        except (VsetuneError, OSError) as error:
            said = one_line(masked(str(error)), most=_LONGEST_NOTE)
            self.note(said if isinstance(error, VsetuneError) else f"{what}: {said}")

    def note(self, line: str) -> None:
        _log.warning("%s", line)
        if line not in self.report.notes:
            self.report = replace(self.report, notes=(*self.report.notes, line))

    def keep_files(self) -> None:
        now = self.report
        try:
            self.keep(now, to_html(now), to_markdown(now))
            self.written = now
        except (VsetuneError, OSError) as error:
            if was_kept(self.report):
                self.note(NOT_KEPT + one_line(masked(str(error)), most=_LONGEST_NOTE))

    def keep_run(self, tracking_uri: str) -> None:
        """Create the run first, so that the uploaded files contain its id."""
        from vsetune.records.mlflow_nights import MlflowNights

        self.runs = MlflowNights(tracking_uri)
        run_id = self.runs.keep(_night_run(self.report))
        self.report = replace(self.report, mlflow_run=run_id)
        self.upload()

    def upload(self) -> None:
        if self.runs is not None and self.report.mlflow_run is not None:
            self.uploaded = now = self.report
            plain = json.dumps(asdict(now), indent=1, sort_keys=True)
            files = {"report.html": to_html(now), "report.md": to_markdown(now), "report.json": plain}
            self.runs.keep_files(self.report.mlflow_run, files)

    def export(self, night: Night | None) -> None:
        name, text = self.report.nightly, metrics_text(self.report, night)
        self.attempt("metrics", lambda: write_metrics(name, text))
        push_metrics(name, text, patience=self.patience)

    def notify(self, spec: ReportSpec) -> None:
        page = _page_of(self.report, spec)
        variable = spec.webhook
        if variable is not None:
            self.attempt(f"webhook of {variable}", lambda: post(
                self.report, variable, page=page, patience=self.patience))
        if spec.mail_to:
            self.attempt("mail", lambda: send_mail(
                self.report, spec.mail_to, to_html(self.report),
                server_from_environment(must_encrypt=spec.mail_encryption == "required"), page=page))

    def keep_what_changed(self) -> None:
        """Store files and run again if notes were added since."""
        if self.uploaded is not None and self.uploaded != self.report:
            self.attempt("MLflow", self.upload)
        if self.written != self.report:
            self.keep_files()


def _page_of(report: NightReport, spec: ReportSpec) -> str | None:
    if spec.page_url is None:
        return None
    return spec.page_url.replace("{date}", report.date).replace("{name}", report.nightly)


def _night_run(report: NightReport) -> NightRun:
    """The MLflow run of a night: numbers by `CELL.MEASURE`, the number of rows by verdict, tags."""
    from vsetune.records.mlflow_nights import NightRun

    metrics = {
        f"{row.cell}.{stream_name(row)}": row.tonight for row in report.rows
        if row.measure is not None and row.tonight is not None and math.isfinite(row.tonight)
    }
    metrics |= {f"rows.{verdict}": float(sum(row.verdict == verdict for row in report.rows)) for verdict in SIGNS}
    metrics["exit_code"] = float(report.exit_code)
    tags = {
        "date": report.date, "nightly": report.nightly, "revision": report.revision, "study": report.study,
        "exit_code": str(report.exit_code), "headline": report.headline,
        "verdict": {0: "quiet", 1: "regression", 2: "could not run"}[report.exit_code],
    }
    started, ended = moment_of(report.started), moment_of(report.ended)
    return NightRun(report.nightly, report.date, started or 0.0, ended or started or 0.0, metrics, tags,
                    to_markdown(report))
