"""Small pages beside the boards that are served: the list of studies, and what stands where there is no board yet."""

from __future__ import annotations

from collections.abc import Sequence

from markupsafe import escape

_PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark"><meta http-equiv="refresh" content="{seconds}"><title>{title}</title>
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'">
<style>
body {{ font: 16px/1.6 system-ui, sans-serif; max-width: 50rem; margin: 0 auto; padding: 24px; }}
h1, li {{ overflow-wrap: anywhere; }}
</style>
</head><body><main><h1>{title}</h1>{body}</main></body></html>
"""


def list_page(title: str, links: Sequence[tuple[str, str]]) -> str:
    """Links to boards: name and address of each."""
    items = "".join(f'<li><a href="{escape(address)}">{escape(name)}</a></li>' for name, address in links)
    body = f"<ul>{items}</ul>" if items else "<p>No study has been started yet. This page looks again by itself.</p>"
    return _PAGE.format(title=title, body=body, seconds=30)


def waiting_page(study: str, why: str) -> str:
    """In place of a board that cannot be made yet."""
    body = f"<p>{escape(why)}</p><p>This page looks again by itself.</p>"
    return _PAGE.format(title=escape(study), body=body, seconds=2)
