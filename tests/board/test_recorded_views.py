"""One board in every view, byte for byte as recorded in `__snapshots__/`, and several studies side by side.

Renew with: python -m pytest tests/board/test_recorded_views.py --snapshot-update
The change that renews them says in CHANGELOG.md what readers of a board see differently.
"""

from __future__ import annotations

import io
import json
from typing import Any

import pytest
from rich.console import Console
from syrupy.extensions.single_file import SingleFileSnapshotExtension

from vsetune.board.export import to_csv, to_json, to_latex, to_markdown
from vsetune.board.many_studies import build_many
from vsetune.board.page import to_html
from vsetune.board.terminal import render_notes, render_table


def terminal(view, width: int) -> str:
    console = Console(width=width, file=io.StringIO(), force_terminal=True, color_system="standard", _environ={})
    console.print(view)
    return console.file.getvalue()


def page_body(board) -> str:
    """The page without its style sheet and script, which no column touches."""
    page = to_html(board)
    return page[page.index("<main>") : page.index("</main>")]


def paths(plain: Any, at: str = "") -> set[str]:
    """The ways to all values of JSON, without places in lists."""
    if isinstance(plain, dict) and plain:
        return {way for key, value in plain.items() for way in paths(value, f"{at}.{key}" if at else key)}
    if isinstance(plain, list) and plain:
        return {way for value in plain for way in paths(value, f"{at}[]")}
    return {at}


def json_keys(board) -> str:
    """Values are those of CSV, see test_forms_agree."""
    return "\n".join(sorted(paths(json.loads(to_json(board))))) + "\n"


VIEWS = {
    "wide.txt": lambda board: terminal(render_table(board), 160), "csv": to_csv, "tex": to_latex, "md": to_markdown,
    "narrow.txt": lambda board: terminal(render_table(board), 72), "html": page_body, "json": json_keys,
    "notes.txt": lambda board: terminal(render_notes(board), 120),
}


@pytest.mark.parametrize("view", VIEWS)
def test_a_view_is_as_recorded(view, golden, snapshot):
    assert VIEWS[view](golden).encode() == snapshot(extension_class=SingleFileSnapshotExtension)


@pytest.mark.parametrize("view", ["html", "csv", "tex", "md", "json"])
def test_a_view_of_several_studies_is_as_recorded(view, several, snapshot):
    found = build_many(several)
    assert VIEWS[view](found).encode() == snapshot(extension_class=SingleFileSnapshotExtension)
