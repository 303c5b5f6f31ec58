"""Settings of the nightly file for delivering reports."""

from __future__ import annotations

import re
from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from vsetune.config.spec.base import Spec

_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_ADDRESS = re.compile(r"[A-Za-z0-9.!#$%&'*+/=?^_`{|}~-]{1,64}@[A-Za-z0-9.-]{1,255}")
_LONGEST_ADDRESS = 320


def mail_address(text: str) -> str:
    """The text if it is one plain address; ValueError otherwise. It goes into a mail header, so it has no line end."""
    if len(text) > _LONGEST_ADDRESS or not _ADDRESS.fullmatch(text) or ".." in text:
        raise ValueError(f"got {text[:60]!r}, need one mail address such as team@example.org")
    return text


def _variable(text: str) -> str:
    if not _VARIABLE.fullmatch(text):
        shown = "an address" if "://" in text else repr(text[:30])
        raise ValueError(
            f"got {shown}, need the name of an environment variable that holds the address, such as SLACK_WEBHOOK: "
            "the address is a secret"
        )
    return text


def _page(text: str) -> str:
    if not text.startswith(("https://", "http://")) or not text.isprintable() or set(text) & set(" <>\"|"):
        raise ValueError("need an address that begins with https:// or http://, without blanks, quotes, < > or |")
    return text


class ReportSpec(Spec):
    """Where a report goes besides its files. Secrets and servers come from the environment alone.

    The mail server: VSETUNE_SMTP_HOST, _PORT (587), _USER, _PASSWORD, _FROM. A Prometheus Pushgateway:
    VSETUNE_PUSHGATEWAY.
    """

    webhook: Annotated[str, AfterValidator(_variable)] | None = Field(
        None, description="environment variable with the address that takes Slack's JSON"
    )
    mail_to: list[Annotated[str, AfterValidator(mail_address)]] = Field(
        default_factory=list, max_length=50, description="who gets the report by mail"
    )
    notify: Literal["regressions", "always", "never"] = Field(
        "regressions", description="when webhook and mail are used: exit code 1 or 2, every night, or not at all"
    )
    mail_encryption: Literal["when_offered", "required"] = Field(
        "when_offered", description="STARTTLS; a password is never sent without it but to this machine"
    )
    mlflow: bool = Field(True, description="keep a run per night in the experiment nightly/NAME")
    page_url: Annotated[str, AfterValidator(_page)] | None = Field(
        None, description="where people find the page, for links; {date} and {name} are filled in"
    )
