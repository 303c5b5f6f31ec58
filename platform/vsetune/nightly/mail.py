"""A night as a mail: plain text and HTML, with the page attached. Server and password come from the environment."""

from __future__ import annotations

import os
import re
import smtplib
import ssl
from collections.abc import Sequence
from dataclasses import dataclass, field
from email.message import EmailMessage
from email.policy import SMTP
from email.utils import formatdate, make_msgid

from vsetune.errors import ConfigError, StorageError
from vsetune.nightly.night import NightReport
from vsetune.nightly.nightly_spec import mail_address
from vsetune.nightly.report_page import to_mail_html
from vsetune.nightly.report_words import banner, counts_in_words, findings, in_a_line, plain, revision_words
from vsetune.nightly.sending import within
from vsetune.storage.addresses import masked, remember
from vsetune.storage.foreign_text import one_line

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
