"""A night as a chat message: JSON for webhooks of Slack, Mattermost, Rocket.Chat and others."""

from __future__ import annotations

import json
import os
import re
from typing import Any

from vsetune.config.spec.secrets import masked, remember
from vsetune.errors import ConfigError
from vsetune.nightly.http_sending import USUAL, Patience, send
from vsetune.nightly.report import NightReport
from vsetune.nightly.report_words import banner, counts_in_words, findings, in_a_line, plain, revision_words

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
