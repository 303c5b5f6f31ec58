"""Delivery of a report: files, MLflow, Prometheus, chat or mail. A failed step adds a note."""

from __future__ import annotations

import json
import logging
import math
import os
import re
import threading
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from html import escape
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import parse_qsl, quote, unquote, urlsplit

from apprise import Apprise, AppriseAsset, NotifyBase, OverflowMode

from vsetune.errors import ConfigError, StorageError, VsetuneError, one_line
from vsetune.nightly.history import history_id
from vsetune.nightly.night import Night, NightReport
from vsetune.nightly.night_metrics import USUAL, Patience, metrics_text, moment_of, push_metrics, write_metrics
from vsetune.nightly.nightly_spec import ReportSpec
from vsetune.nightly.report_page import to_html
from vsetune.nightly.report_words import (
    SIGNS,
    banner,
    counts_in_words,
    findings,
    in_a_line,
    plain,
    presentable,
    revision_words,
    to_markdown,
)
from vsetune.storage.addresses import MASK, masked, remember

if TYPE_CHECKING:
    from vsetune.records.mlflow_nights import MlflowNights, NightRun


_log = logging.getLogger(__name__)
logging.getLogger("apprise").propagate = False  # its lines could show addresses
logging.getLogger("apprise").addHandler(logging.NullHandler())
NOT_KEPT = "the report could not be stored: "
_LONGEST_NOTE = 400
T = TypeVar("T")

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
            text = one_line(masked(str(error)), most=_LONGEST_NOTE)
            self.note(text if isinstance(error, VsetuneError) else f"{what}: {text}")

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
        f"{row.cell}.{row.measure_name}": row.tonight for row in report.rows
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
    return NightRun(
        history_id(report.nightly), report.nightly, report.date, started or 0.0, ended or started or 0.0, metrics, tags,
        to_markdown(report),
    )


_MARKS = re.compile(r"[*~`<>\[\]]|(?<![^\W_])_|_(?![^\W_])")
_SLACK_JSON = {"message": "text", "title": "", "version": "", "attachments": "", "type": ""}
"""Fields of Apprise's JSON: under other names, or left out."""
_LONGEST_LINE, _MOST_FINDINGS, _SHORTEST_SECRET = 280, 10, 6


def post(report: NightReport, variable: str, *, page: str | None, patience: Patience) -> None:
    """Send the report to the chat whose address is in an environment variable. page: address of the page, for a link.

    https:// takes Slack's JSON, as Mattermost, Rocket.Chat and Discord's /slack do; any other address is Apprise's.
    ConfigError when the variable is not set or holds no address; StorageError when the message was not taken.
    """
    address, where = os.environ.get(variable, "").strip(), f"webhook of {variable}"
    if not address:
        raise ConfigError(
            "VSE-G050", "{where}: the environment lacks {variables}; export it, or take `{setting}` out of the file",
            where=where, variables=variable, setting="webhook",
        )
    if address.partition("://")[2]:
        remember(address, address.rpartition("/")[2])  # its last part is the secret
    is_slack = address.startswith(("https://", "http://"))
    title, text = chat_text(report, page=page, is_slack=is_slack)

    def service() -> NotifyBase | None:
        found = _slack(address) if is_slack else _service_of(address)
        if found is not None:
            found.overflow_mode = OverflowMode.SPLIT
        return found

    _send(where, service, patience, secret=address, title=title, body=text, body_format="text")


def _slack(address: str) -> NotifyBase | None:
    """The service that takes Slack's JSON at an address; None where it is none."""
    parts = urlsplit(address)
    host = parts.hostname
    if not host:
        return None
    remember(unquote(parts.password or ""))
    return _service_of({
        "schema": "jsons" if parts.scheme == "https" else "json", "host": f"[{host}]" if ":" in host else host,
        "port": parts.port, "user": parts.username, "password": parts.password, "fullpath": quote(parts.path),
        "params": dict(parse_qsl(parts.query, keep_blank_values=True)), "payload": _SLACK_JSON,
    })


def chat_text(report: NightReport, *, page: str | None, is_slack: bool) -> tuple[str, str]:
    """(title, text); in Slack's text the title is its first line. Commits and names cannot make links or mentions."""
    def harmless(text: str) -> str:
        safe = plain(text, _LONGEST_LINE)
        safe = escape(safe, quote=False) if is_slack else safe
        return _MARKS.sub("\u200b\\g<0>\u200b", safe).replace("@", "@\u200b")

    sign, found = banner(report), findings(report)
    title = harmless(f"{sign.mark} {report.nightly}, {report.date}")
    lines = [f"*{harmless(report.headline)}*", *(harmless(in_a_line(finding)) for finding in found[:_MOST_FINDINGS])]
    if len(found) > _MOST_FINDINGS:
        lines.append(f"and {len(found) - _MOST_FINDINGS} more")
    lines += map(harmless, [*report.notes, f"{counts_in_words(report.rows)}; code {revision_words(report)}"])
    lines += [f"<{page}|the whole report>" if is_slack else page] if page else []
    return title, masked("\n".join([*([title] if is_slack else []), *lines]))


def _service_of(address: str | dict[str, Any]) -> NotifyBase | None:
    return Apprise.instantiate(address, asset=AppriseAsset(app_id="vsetune"))


def _send(
    where: str, service: Callable[[], NotifyBase | None], patience: Patience, *, secret: str = "", **message: Any
) -> None:
    """Deliver a message by Apprise. ConfigError where it knows no such service. StorageError, one line, without any
    part of `secret`, when the message was not taken."""
    def step() -> str:
        to = service()
        if to is None:
            raise ConfigError(
                "VSE-G051", "{where}: holds no address that can be used; need https://... without blanks, or an "
                "Apprise address such as discord://...", where=where,
            )
        to.socket_connect_timeout = to.socket_read_timeout = patience.timeout_s
        to.retry, to.wait, to.redirects = patience.retries, patience.pause_s, False
        taken = Apprise(to).notify(**message, log_level=logging.WARNING)
        lines = dict.fromkeys(entry.message for result in taken for entry in result.logs())
        return "" if taken else "; ".join(lines) or "no reason given"

    try:
        trouble = within(patience.limit_s, step)
    except VsetuneError:
        raise
    except Exception as error:  # of a service's code, or an invalid host; no delivery ends a night
        trouble = str(error) or type(error).__name__
    if trouble:
        for part in sorted(re.split(r"[/:@?&=#]+", secret), key=len, reverse=True):
            trouble = trouble.replace(part, MASK) if len(part) >= _SHORTEST_SECRET else trouble
        raise StorageError(
            "VSE-G052", "{where}: not delivered ({reason})", where=where, reason=masked(one_line(trouble))
        )


def within(limit_s: float, step: Callable[[], T]) -> T:
    """Return or raise the step's result. TimeoutError after the limit; the step's thread then runs on until the process
    ends. A server that sends a byte now and then exceeds no timeout of a socket."""
    results: list[T] = []
    errors: list[BaseException] = []

    def run() -> None:
        try:
            results.append(step())
        except BaseException as error:  # raised again in the waiting thread
            errors.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(limit_s)
    if errors:
        raise errors[0]
    if not results:
        raise TimeoutError(f"no end within {limit_s:g} s")
    return results[0]
