"""Every view of five boards, byte for byte as recorded in `__snapshots__/`.

Renew with: python -m pytest tests/report/test_recorded_views.py --snapshot-update
The change that renews them says in CHANGELOG.md what readers of a board see differently.
"""

from __future__ import annotations

import io

import pytest
from board_attempts import NEW
from rich.console import Console
from syrupy.extensions.single_file import SingleFileSnapshotExtension

from vsetune.report.building import build
from vsetune.report.export import to_csv, to_latex, to_markdown
from vsetune.report.many_studies import build_many
from vsetune.report.page import to_html
from vsetune.report.terminal import render_table


def terminal(board, width: int) -> str:
    console = Console(width=width, file=io.StringIO(), force_terminal=True, color_system="standard", _environ={})
    console.print(render_table(board))
    return console.file.getvalue()


def page_body(board) -> str:
    """The page without its style sheet and script, which no column touches."""
    page = to_html(board)
    return page[page.index("<main>") : page.index("</main>")]


VIEWS = {
    "wide.txt": lambda board: terminal(board, 160), "narrow.txt": lambda board: terminal(board, 72),
    "html": page_body, "csv": to_csv, "tex": to_latex, "md": to_markdown,
}


@pytest.fixture
def boards(attempt):
    searched = [
        attempt("lmh", [1, 2]), attempt("lmh", [70, 71], configuration=1),
        attempt("lmh", [60, 62], configuration=1, seed=1, phase="confirm"),
        attempt("lseh", [1, 2]), attempt("lseh", [50, 51], configuration=1),
        attempt("top_f", [99, 99], batch_unit="images"),
    ]
    several = [
        attempt("lmh"), attempt("lmh", [20, 40, 39], seed=1, phase="confirm"),
        attempt("lseh", NEW, summary={"train_seconds": 12345.67, "device_seconds": 98765.4, "test_m_recall": 61.25}),
        attempt("lseh", [45, 50, 48], seed=1, phase="confirm", summary={}), attempt("lsh", NEW[:3]),
        attempt("lseh", [5], configuration=1, status="pruned"), attempt("lseh", [], configuration=2, status="failed"),
        attempt("top_f", [], status="failed"), attempt("lmh", network="vse_infinity", status="killed", recalls=[9, 8]),
        attempt("lmh", network="vse_infinity", number=2, recalls=[9, 8, 70], summary={"wasted_epochs": 0.25}),
        attempt("lseh", NEW, dataset="flickr", data_fingerprint="f"),
    ]
    losses = {"searched": searched, "several": several, "hostile": [attempt("lmh"), attempt('<b>&\'"_%$[bold]', NEW)]}
    return {name: build(attempts, baseline="lmh") for name, attempts in losses.items()}


@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("name", ["searched", "several", "hostile", "decided", "rising"])
def test_a_view_is_as_recorded(name, view, boards, request, snapshot):
    board = boards.get(name) or request.getfixturevalue(name)
    assert VIEWS[view](board).encode() == snapshot(extension_class=SingleFileSnapshotExtension)


@pytest.mark.parametrize("view", ["html", "csv", "tex", "md"])
def test_a_view_of_several_studies_is_as_recorded(view, several, snapshot):
    found = build_many(several)
    assert VIEWS[view](found).encode() == snapshot(extension_class=SingleFileSnapshotExtension)
