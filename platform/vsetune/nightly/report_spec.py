"""Where a night's report goes besides the history. Addresses and passwords stay in the environment."""

from __future__ import annotations

from pydantic import Field

from vsetune.config.spec.base import Spec


class ReportSpec(Spec):
    """Who is told. Nothing here is secret: a webhook is named by the environment variable that holds its URL."""

    webhook: str | None = Field(
        None, pattern=r"^[A-Za-z_][A-Za-z0-9_]*$", max_length=200,
        description="NAME of the environment variable that holds the URL of a webhook (Slack-compatible JSON)",
    )
    mail_to: list[str] = Field(default_factory=list, max_length=100, description="addresses that get the report by mail")
