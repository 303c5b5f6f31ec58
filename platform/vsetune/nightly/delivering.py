"""Delivery of a report: files, MLflow, Prometheus, chat, mail. A failed step adds a note."""

from __future__ import annotations

import json
import logging
import math
import os
import re
import smtplib
import ssl
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from email.message import EmailMessage
from email.policy import SMTP
from email.utils import formatdate, make_msgid
from typing import TYPE_CHECKING

from vsetune.errors import ConfigError, StorageError, VsetuneError, one_line
from vsetune.nightly.night import Night, NightReport
from vsetune.nightly.night_metrics import metrics_text, moment_of, push_metrics, stream_name, write_metrics
from vsetune.nightly.nightly_spec import ReportSpec, mail_address
from vsetune.nightly.report_page import to_html, to_mail_html
from vsetune.nightly.report_words import (
    SIGNS,
    banner,
    counts_in_words,
    findings,
    in_a_line,
    plain,
    presentable,
    revision_words,
)
from vsetune.nightly.sending import USUAL, Patience, post, within
from vsetune.nightly.sentences import to_markdown
from vsetune.storage.addresses import masked, remember

if TYPE_CHECKING:
    from vsetune.records.mlflow_nights import MlflowNights, NightRun


_log = logging.getLogger(__name__)
NOT_KEPT = "the report could not be stored: "
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


PREFIX = "VSETUNE_SMTP_"
TIMEOUT_S, LIMIT_S = 20.0, 90.0
"""Timeout of one network operation; limit for a whole mail."""
_LOCAL = {"localhost", "127.0.0.1", "::1"}
_SUBMISSION, _OVER_TLS = 587, 465
_UNUSUAL = re.compile(r"[^A-Za-z0-9._-]")
_LONGEST_SUBJECT, _LONGEST_LINE = 150, 300


@dataclass(frozen=True)
class MailServer:
    """The server that takes the mail. must_encrypt: no mail at all without TLS."""

    host: str
    port: int
    sender: str
    user: str | None = None
    password: str | None = field(default=None, repr=False)
    must_encrypt: bool = False


def server_from_environment(*, must_encrypt: bool) -> MailServer:
    """The server that the environment names. ConfigError, one line, for missing variables and invalid ports or
    addresses."""
    given = {name: os.environ.get(PREFIX + name, "").strip() for name in ("HOST", "PORT", "USER", "PASSWORD", "FROM")}
    missing = [PREFIX + name for name in ("HOST", "FROM") if not given[name]]
    if given["USER"] and not given["PASSWORD"]:
        missing.append(PREFIX + "PASSWORD")
    if missing:
        raise ConfigError(f"mail: {', '.join(missing)} not set in the environment; export what your mail server needs")
    port = given["PORT"] or str(_SUBMISSION)
    if not (port.isascii() and port.isdigit() and 0 < int(port) < 65536):
        raise ConfigError(f"mail: {PREFIX}PORT: got {port[:20]!r}, need a port such as {_SUBMISSION}")
    try:
        sender = mail_address(given["FROM"])
    except ValueError as error:
        raise ConfigError(f"mail: {PREFIX}FROM: {error}") from error
    remember(given["PASSWORD"])
    return MailServer(given["HOST"], int(port), sender, given["USER"] or None, given["PASSWORD"] or None, must_encrypt)


def send_mail(
    report: NightReport, to: Sequence[str], page_html: str, server: MailServer, *, page: str | None,
    limit_s: float = LIMIT_S,
) -> None:
    """Send one mail to all recipients. StorageError, one line, when the server does not take it within the limit, or
    refuses some recipients."""
    where = f"mail to {', '.join(to)}"
    made = mail(report, to, page_html, sender=server.sender, page=page)
    try:
        refused = within(limit_s, lambda: _handed_in(made, server))
    except smtplib.SMTPRecipientsRefused as error:
        raise StorageError(f"{where}: {server.host} took none of them ({_answers(error.recipients)})") from error
    except (OSError, smtplib.SMTPException, UnicodeError) as error:  # UnicodeError: an invalid host name
        said = masked(one_line(error))
        raise StorageError(f"{where}: not handed in at {server.host}:{server.port} ({said})") from error
    if refused:
        raise StorageError(f"{where}: {server.host} did not take some of them ({_answers(refused)})")


def mail(report: NightReport, to: Sequence[str], page_html: str, *, sender: str, page: str | None) -> EmailMessage:
    """The message. Of the report's text, only the one-line subject goes into the headers."""
    made = EmailMessage(policy=SMTP)
    sign = banner(report)
    subject = f"{sign.mark} {report.nightly} {report.date}: {report.headline}"
    made["Subject"] = masked(one_line(subject, most=_LONGEST_SUBJECT))
    made["From"], made["To"] = sender, ", ".join(to)
    made["Date"], made["Message-ID"] = formatdate(), make_msgid(domain=sender.rpartition("@")[2])
    made["Auto-Submitted"] = "auto-generated"
    made.set_content(masked(_plain(report, page)), cte="quoted-printable")
    made.add_alternative(masked(to_mail_html(report)), subtype="html", cte="quoted-printable")
    name = _UNUSUAL.sub("_", f"{report.nightly}-{report.date}.html")
    made.add_attachment(page_html, subtype="html", filename=name, cte="base64")
    return made


def _plain(report: NightReport, page: str | None) -> str:
    lines = [report.headline, banner(report).word, ""]
    lines += [in_a_line(finding) for finding in findings(report)[:50]]
    lines += ["", *report.notes, "", f"{counts_in_words(report.rows)}. Code {revision_words(report)}."]
    lines += [page if page else "The whole page is attached."]
    return "\n".join(plain(line, _LONGEST_LINE) for line in lines) + "\n"


def _handed_in(made: EmailMessage, server: MailServer) -> dict[str, tuple[int, bytes]]:
    """Refused recipients with the server's answers."""
    with _connected(server) as client:
        return client.send_message(made)


def _connected(server: MailServer) -> smtplib.SMTP:
    """A connection, encrypted where the server can. StorageError where the password or, with `must_encrypt`, the mail
    would cross a network unencrypted."""
    if server.port == _OVER_TLS:
        client: smtplib.SMTP = smtplib.SMTP_SSL(
            server.host, server.port, timeout=TIMEOUT_S, context=ssl.create_default_context()
        )
    else:
        client = smtplib.SMTP(server.host, server.port, timeout=TIMEOUT_S)
    try:
        client.ehlo_or_helo_if_needed()
        is_encrypted = server.port == _OVER_TLS
        if not is_encrypted and client.has_extn("starttls"):
            client.starttls(context=ssl.create_default_context())
            is_encrypted = True
        if not is_encrypted and (server.must_encrypt or (server.user and server.host not in _LOCAL)):
            why = "mail_encryption is required" if server.must_encrypt else "a password must not travel in the clear"
            raise StorageError(f"mail: {server.host}:{server.port} offers no STARTTLS, and {why}; use another port")
        if server.user and server.password:
            client.login(server.user, server.password)
    except BaseException:
        client.close()
        raise
    return client


def _answers(refused: dict[str, tuple[int, bytes]]) -> str:
    return one_line("; ".join(f"{to}: {code} {said.decode(errors='replace')}" for to, (code, said) in refused.items()))
