"""The page in Chromium: charts follow a dark screen, everyone can read it, and nothing is wider than the screen."""

from __future__ import annotations

from importlib import metadata
from pathlib import Path

import headless_browser
import pytest

from vsetune.study.explaining import explain, to_html

pytestmark = [
    pytest.mark.skipif(headless_browser.PROGRAM is None, reason="no Chromium on this machine"), pytest.mark.slow,
]


@pytest.fixture
def page(searched, study, tmp_path):
    file = tmp_path / "search.html"
    file.write_text(to_html(explain(study, searched.attempts())), encoding="utf-8")
    return file.as_uri()


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", [1280, 320])
def test_charts_have_the_colours_of_the_page_and_axe_finds_nothing(browser, page, dark, width):
    tab = browser.tab(width=width, height=800, dark=dark)
    tab.open(page, until="true")
    assert tab.run("document.documentElement.scrollWidth") == width
    colours = "(of) => [...new Set([...document.querySelectorAll(of)].map((each) => getComputedStyle(each).fill))]"
    soft, first = ("rgb(163, 173, 186)", "rgb(77, 163, 221)") if dark else ("rgb(86, 96, 109)", "rgb(0, 114, 178)")
    assert tab.run(f"({colours})('.role-axis-label text')") == [soft]
    assert tab.run(f"({colours})('figure path:has(title)')").count(first) == 1
    assert tab.run("document.querySelectorAll('figure svg[role=img][aria-label]').length") == 2
    files = metadata.files("axe-playwright-python") or []
    script = Path(next(file for file in files if file.name == "axe.min.js").locate()).read_text(encoding="utf-8")
    tab.run(script + "; true")
    found = tab.run("axe.run(document).then(({violations}) => violations.map(({id, nodes}) => "
                    "[id, nodes.length, nodes[0].html.slice(0, 200), nodes[0].failureSummary]))")
    assert (found, tab.problems, tab.requested) == ([], [], [page])
    edges = "[...row.cells].map((cell) => Math.round(cell.getBoundingClientRect().bottom))"
    assert tab.run(f"[...document.querySelectorAll('tbody tr')].every((row) => new Set({edges}).size === 1)")
