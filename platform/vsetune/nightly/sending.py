"""A night as a chat message, and bounded requests to foreign servers."""

from __future__ import annotations

import base64
import http.client
import json
import logging
import os
import re
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar
from urllib.parse import unquote, urlsplit, urlunsplit

from vsetune.errors import ConfigError, StorageError, one_line
from vsetune.nightly.night import NightReport
from vsetune.nightly.report_words import banner, counts_in_words, findings, in_a_line, plain, revision_words
from vsetune.storage.addresses import masked, remember

_log = logging.getLogger(__name__)
_LATER = {408, 425, 429, 500, 502, 503, 504}
_MOST_READ = 2000


@dataclass(frozen=True)
class Patience:
    """timeout_s: of one network operation; a try as a whole takes at most twice as long. pauses_s: between tries."""

    timeout_s: float = 10.0
    pauses_s: Sequence[float] = (2.0, 8.0, 30.0)
    sleep: Callable[[float], None] = time.sleep


USUAL = Patience()


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """A POST that is redirected would arrive as a GET, without its content."""

    def redirect_request(self, *arguments: Any, **named: Any) -> None:
        return None


_opener = urllib.request.build_opener(_NoRedirects)


def send(
    what: str, address: str, content: bytes, *, method: str, content_type: str, patience: Patience = USUAL
) -> None:
    """Deliver content. StorageError, one line: at once for refusals, after the last try for silence, connection errors
    and the status codes in `_LATER`.

    what: first words of the line, such as `webhook of SLACK_WEBHOOK`. address: http or https. User and password in it
    become a header; no message repeats it. ConfigError for an invalid address.
    """
    request = _request(what, address, content, method, content_type)
    for tried, pause in enumerate([*patience.pauses_s, None], start=1):
        trouble, may_help = _tried_in_time(request, patience.timeout_s)
        if trouble is None:
            return
        if not may_help or pause is None:
            tries = "" if tried == 1 else f" in {tried} tries"
            raise StorageError(masked(f"{what}: not delivered{tries} ({trouble})"))
        _log.info("%s: %s, again in %g s", what, masked(trouble), pause)
        patience.sleep(pause)


def _request(what: str, address: str, content: bytes, method: str, content_type: str) -> urllib.request.Request:
    try:
        parts = urlsplit(address)
        host, port = parts.hostname, parts.port
    except ValueError as error:
        raise ConfigError(f"{what}: holds no address ({type(error).__name__}); need https://...") from error
    if parts.scheme not in ("http", "https") or not host or not address.isascii() or not address.isprintable() \
            or " " in address:
        raise ConfigError(f"{what}: holds no address; need https://... without blanks")
    headers = {"Content-Type": content_type, "User-Agent": "vsetune"}
    if parts.username is not None:
        user = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
        headers["Authorization"] = f"Basic {base64.b64encode(user.encode()).decode()}"
        remember(unquote(parts.password or ""), headers["Authorization"].removeprefix("Basic "))
    place = f"[{host}]" if ":" in host else host
    bare = urlunsplit((parts.scheme, f"{place}:{port}" if port else place, parts.path, parts.query, ""))
    return urllib.request.Request(bare, data=content, method=method, headers=headers)


def _tried_in_time(request: urllib.request.Request, timeout_s: float) -> tuple[str | None, bool]:
    """`_tried` with a limit of twice its timeout: a server that sends a byte now and then never times out."""
    try:
        return within(2 * timeout_s, lambda: _tried(request, timeout_s))
    except TimeoutError:
        return f"no whole answer within {2 * timeout_s:g} s", True


def _tried(request: urllib.request.Request, timeout_s: float) -> tuple[str | None, bool]:
    """The error, None on success, and whether a retry may succeed."""
    try:
        with _opener.open(request, timeout=timeout_s) as answer:
            answer.read(_MOST_READ)
    except urllib.error.HTTPError as error:
        with error:
            said = one_line(error.read(_MOST_READ).decode(errors="replace"), most=80) if error.fp else ""
        return f"answered {error.code}{f': {said}' if said else ''}", error.code in _LATER
    except TimeoutError:
        return f"no answer within {timeout_s:g} s", True
    except UnicodeError:  # the message of the host's encoder is too long
        return "its host can be no name", False
    except (OSError, http.client.HTTPException) as error:  # URLError is an OSError
        reason = getattr(error, "reason", None) or error
        if isinstance(reason, TimeoutError):
            return f"no answer within {timeout_s:g} s", True
        return one_line(getattr(reason, "strerror", None) or reason, most=120), True
    return None, False


MOST_FINDINGS = 10
_MARKS = re.compile(r"[*~`]|(?<![^\W_])_|_(?![^\W_])")
_LONGEST_LINE, _LONGEST_SECTION, _LONGEST_HEADER = 280, 2900, 140
"""Slack refuses a section of more than 3,000 characters, a header of more than 150."""


def post(report: NightReport, variable: str, *, page: str | None, patience: Patience = USUAL) -> None:
    """Send the message to the address in an environment variable. page: address of the page, for a link.

    ConfigError when the variable is not set or holds no address; StorageError when the message was not taken.
    """
    address = os.environ.get(variable, "").strip()
    where = f"webhook of {variable}"
    if not address:
        raise ConfigError(f"{where}: not set in the environment; export {variable}, or take `webhook` out of the file")
    remember(address, address.rpartition("/")[2])  # its last part is the secret
    content = json.dumps(message(report, page=page)).encode()
    send(where, address, content, method="POST", content_type="application/json", patience=patience)


def message(report: NightReport, *, page: str | None) -> dict[str, Any]:
    """`text` for notifications and for services without blocks, `blocks` for Slack."""
    sign, found = banner(report), findings(report)
    title = f"{sign.mark} {report.nightly}, {report.date}"
    lines = [in_a_line(finding) for finding in found[:MOST_FINDINGS]]
    if len(found) > MOST_FINDINGS:
        lines.append(f"and {len(found) - MOST_FINDINGS} more")
    link = [f"<{page}|the whole report>"] if page else []
    foot = [_escaped(f"{counts_in_words(report.rows)}; code {revision_words(report)}"), *link]
    blocks: list[dict[str, Any]] = [
        {"type": "header", "text": {"type": "plain_text", "text": masked(plain(title, _LONGEST_HEADER))}},
        _section(f"*{_escaped(report.headline)}*"),
    ]
    blocks += [_section("\n".join(map(_escaped, part))) for part in (lines, report.notes) if part]
    blocks.append({"type": "context", "elements": [{"type": "mrkdwn", "text": " · ".join(foot)}]})
    return {"text": masked(f"{_escaped(title)}: {_escaped(report.headline)}"), "blocks": blocks}


def _section(text: str) -> dict[str, Any]:
    """Whole lines, as many as Slack accepts, since a cut inside `&lt;` would show."""
    kept: list[str] = []
    for line in text.splitlines():
        if sum(map(len, kept)) + len(kept) + len(line) > _LONGEST_SECTION:
            break
        kept.append(line)
    return {"type": "section", "text": {"type": "mrkdwn", "text": masked("\n".join(kept) or "…")}}


def _escaped(text: str) -> str:
    """Text without links, mentions (`<!channel>`) or bold: Slack's three special characters and its marks are escaped.
    """
    safe = plain(text, _LONGEST_LINE)
    for sign, entity in (("&", "&amp;"), ("<", "&lt;"), (">", "&gt;")):
        safe = safe.replace(sign, entity)
    safe = _MARKS.sub("\u200b\\g<0>\u200b", safe)
    return safe.replace("@", "@\u200b")


T = TypeVar("T")


def within(limit_s: float, step: Callable[[], T]) -> T:
    """Return or raise the step's result. TimeoutError after the limit; the step's thread then runs on until the process
    ends."""
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
