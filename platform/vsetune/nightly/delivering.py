"""Delivery of a report: files, MLflow, Prometheus, chat or mail. A failed step adds a note."""

from __future__ import annotations

import json
import logging
import math
import os
import re
from collections.abc import Callable
from dataclasses import asdict, replace
from html import escape
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import requests
from apprise import Apprise, AppriseAsset, OverflowMode
from requests.adapters import HTTPAdapter
from urllib3 import Retry

from vsetune.errors import ConfigError, StorageError, VsetuneError, one_line
from vsetune.home.addresses import MASK, masked, remember, usable_url
from vsetune.nightly.history import history_id
from vsetune.nightly.night import NightReport, moment_of
from vsetune.nightly.night_metrics import PUSHGATEWAY, exposition, write_metrics
from vsetune.nightly.nightly_spec import ReportSpec
from vsetune.nightly.report_page import to_html
from vsetune.nightly.report_words import EXIT_CODES, SIGNS, facts, findings, in_a_line, plain, presentable, to_markdown

if TYPE_CHECKING:
    from vsetune.records.mlflow_nights import NightRun

_log = logging.getLogger(__name__)
logging.getLogger("apprise").propagate = False  # its lines could show addresses
logging.getLogger("apprise").addHandler(logging.NullHandler())
TIMEOUT_S, RETRIES, PAUSE_S = 10.0, 3, 10.0
"""Of one try of a server, tries after the first one, and the longest pause between two."""
_LATER = (408, 425, 429, 500, 502, 503, 504)
_LONGEST_NOTE = 400

Keep = Callable[[NightReport, str, str], object]
"""Writes report, page and Markdown to the history (`History.keep_report`)."""


def deliver(
    report: NightReport, keep: Keep, spec: ReportSpec, *, last_complete: str, tracking_uri: str | None
) -> NightReport:
    """Store and send a report, exit code 2 included; returns the report with a note for each step that failed.

    last_complete: when the newest complete night ended, empty without one. tracking_uri: None stores no run. Raises no
    VsetuneError and no OSError.
    """
    report = presentable(report)
    metrics = exposition(report, last_complete)

    def attempt(step: Callable[[], object], what: str = "") -> None:
        nonlocal report
        try:
            step()
        except (VsetuneError, OSError) as error:
            note = what + one_line(masked(str(error)), most=_LONGEST_NOTE)
            _log.warning("%s", note)
            report = replace(report, notes=tuple(dict.fromkeys([*report.notes, note])))

    def keep_run() -> None:
        nonlocal report
        from vsetune.records.mlflow_nights import MlflowNights

        runs = MlflowNights(str(tracking_uri))
        if report.mlflow_run is None:
            report = replace(report, mlflow_run=runs.keep(_night_run(report)))
        plain_report = json.dumps(asdict(report), indent=1, sort_keys=True)
        files = {"report.html": to_html(report), "report.md": to_markdown(report), "report.json": plain_report}
        runs.keep_files(str(report.mlflow_run), files)

    def keep_files() -> None:
        keep(report, to_html(report), to_markdown(report))

    attempt(lambda: write_metrics(report.nightly, metrics))
    attempt(lambda: _push(report.nightly, metrics))
    if spec.mlflow and tracking_uri is not None:
        attempt(keep_run)
    stored = report
    attempt(keep_files, "the report could not be stored: ")
    if spec.webhook and spec.notify != "never":
        is_sent = spec.notify == "always" or report.exit_code != 0
        attempt(lambda: _post(report, spec) if is_sent else _address_of(spec))
    if report != stored:
        attempt(keep_files, "the report could not be stored: ")
        if report.mlflow_run is not None:
            attempt(keep_run)
    return report


def _night_run(report: NightReport) -> NightRun:
    """The MLflow run of a night: numbers by `CELL.MEASURE`, the number of rows by verdict, tags."""
    from vsetune.records.mlflow_nights import NightRun

    metrics = {
        f"{row.cell}.{row.measure_name}": row.tonight for row in report.rows
        if row.tonight is not None and math.isfinite(row.tonight)
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


def _push(name: str, text: str) -> None:
    """Replace the sweep's metrics at the Pushgateway, if one is set. StorageError or ConfigError, one line."""
    gateway, where = os.environ.get(PUSHGATEWAY, "").strip().rstrip("/"), f"Pushgateway of {PUSHGATEWAY}"
    if gateway:
        address = f"{gateway}/metrics/job/vsetune_nightly/nightly/{quote(name, safe='')}"
        content_type = {"Content-Type": "text/plain; version=0.0.4"}
        _send("PUT", usable_url(address, where=where), where, data=text.encode(), headers=content_type)


_MARKS = re.compile(r"[*~`<>\[\]]|(?<![^\W_])_|_(?![^\W_])")
_LONGEST_LINE, _MOST_FINDINGS, _SHORTEST_SECRET = 280, 10, 6


def _post(report: NightReport, spec: ReportSpec) -> None:
    """Send the report to the chat or mail whose address is in the environment.

    https:// takes Slack's JSON, as Mattermost, Rocket.Chat and Discord's /slack do; any other address is Apprise's.
    ConfigError when the variable is not set or holds no address; StorageError when the message was not taken.
    """
    address, where = _address_of(spec), f"webhook of {spec.webhook}"
    if "://" in address:
        remember(address, address.rpartition("/")[2])  # its last part is the secret
    is_slack = re.match(r"https?://[^/]", address) is not None
    page = spec.page_url and spec.page_url.replace("{date}", report.date).replace("{name}", report.nightly)
    title, text = chat_text(report, page=page, is_slack=is_slack)
    if is_slack:
        headers = {"User-Agent": "vsetune"}
        _send("POST", usable_url(address, where=where), where, secret=address, json={"text": text}, headers=headers)
        return
    service = Apprise.instantiate(address, asset=AppriseAsset(app_id="vsetune"))
    if service is None:
        raise ConfigError(
            "VSE-G051", "{where}: holds no address that can be used; need https://... without blanks, or an Apprise "
            "address such as discord://...", where=where,
        )
    service.overflow_mode, service.redirects = OverflowMode.SPLIT, False
    service.socket_connect_timeout = service.socket_read_timeout = TIMEOUT_S
    service.retry, service.wait = RETRIES, PAUSE_S
    try:
        taken = Apprise(service).notify(title=title, body=text, body_format="text", log_level=logging.WARNING)
    except Exception as error:  # of a service's code; no delivery ends a night
        raise _not_delivered(where, str(error) or type(error).__name__, address) from error
    if not taken:
        lines = dict.fromkeys(entry.message for result in taken for entry in result.logs())
        raise _not_delivered(where, "; ".join(lines) or "no reason given", address)


def _address_of(spec: ReportSpec) -> str:
    """What the variable of the web hook holds. ConfigError where it is not set."""
    address = os.environ.get(str(spec.webhook), "").strip()
    if not address:
        raise ConfigError(
            "VSE-G050", "{where}: the environment lacks {variables}; export it, or take `{setting}` out of the file",
            where=f"webhook of {spec.webhook}", variables=spec.webhook, setting="webhook",
        )
    return address


def chat_text(report: NightReport, *, page: str | None, is_slack: bool) -> tuple[str, str]:
    """(title, text); in Slack's text the title is its first line. Commits and names cannot make links or mentions."""
    def harmless(text: str) -> str:
        safe = plain(text, _LONGEST_LINE)
        safe = escape(safe, quote=False) if is_slack else safe
        return _MARKS.sub("\u200b\\g<0>\u200b", safe).replace("@", "@\u200b")

    found = findings(report.rows)
    title = harmless(f"{EXIT_CODES[report.exit_code].mark} {report.nightly}, {report.date}")
    lines = [f"*{harmless(report.headline)}*", *(harmless(in_a_line(row)) for row in found[:_MOST_FINDINGS])]
    lines += [f"and {len(found) - _MOST_FINDINGS} more"] if len(found) > _MOST_FINDINGS else []
    lines += map(harmless, [*report.notes, f"code {facts(report)['code']}"])
    lines += [f"<{page}|the whole report>" if is_slack else page] if page else []
    return title, masked("\n".join([*([title] if is_slack else []), *lines]))


def _send(method: str, address: str, where: str, *, secret: str = "", **message: Any) -> None:
    """One HTTP request, tried again while the server is away. StorageError, one line, without any part of `secret`."""
    again = Retry(
        RETRIES, status_forcelist=_LATER, allowed_methods=None, backoff_factor=PAUSE_S / 4, raise_on_status=False,
        respect_retry_after_header=False,
    )
    try:
        with requests.Session() as session:
            session.mount(f"{address.partition('://')[0]}://", HTTPAdapter(max_retries=again))
            answer = session.request(method, address, timeout=TIMEOUT_S, allow_redirects=False, **message)
    except (requests.RequestException, ValueError) as error:
        raise _not_delivered(where, str(error), secret) from error
    if not 200 <= answer.status_code < 300:
        raise _not_delivered(where, one_line(f"answered {answer.status_code}: {answer.text}", most=80), secret)


def _not_delivered(where: str, reason: str, secret: str) -> StorageError:
    for part in sorted(re.split(r"[/:@?&=#]+", secret), key=len, reverse=True):
        reason = reason.replace(part, MASK) if len(part) >= _SHORTEST_SECRET else reason
    return StorageError(
        "VSE-G052", "{where}: not delivered ({reason})", where=where, reason=masked(one_line(reason))
    )
