"""The page in Chromium: curves are lines, and nothing stands out sideways."""

from __future__ import annotations

import headless_browser
import pytest

from vsetune.study.explaining import explain, to_html

pytestmark = pytest.mark.skipif(headless_browser.PROGRAM is None, reason="no Chromium on this machine")


@pytest.fixture
def page(searched, study, tmp_path):
    file = tmp_path / "search.html"
    file.write_text(to_html(explain(study, searched.attempts())), encoding="utf-8")
    return file.as_uri()


@pytest.mark.slow
@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_lines_have_a_colour_and_enclose_none(browser, page, dark):
    tab = browser.tab(dark=dark)
    tab.open(page, until="true")
    lines = "[...document.querySelectorAll('path.best, path.line, path.grid, path.axis, path.mark, path.target')]"
    assert tab.run(f"{lines}.length") > 20
    assert tab.run(f"{lines}.filter((line) => getComputedStyle(line).fill !== 'none').length") == 0
    assert tab.run(f"{lines}.filter((line) => getComputedStyle(line).stroke === 'none').length") == 0
    soft = "rgb(163, 173, 186)" if dark else "rgb(86, 96, 109)"
    assert tab.run("[...new Set([...document.querySelectorAll('text.tick')].map((text) => "
                   "getComputedStyle(text).fill))]") == [soft]


@pytest.mark.slow
@pytest.mark.parametrize("width", [1280, 320])
def test_nothing_stands_out_sideways(browser, page, width):
    tab = browser.tab(width=width, height=800)
    tab.open(page, until="true")
    assert tab.run("document.documentElement.scrollWidth") == width


@pytest.mark.slow
def test_cells_of_a_row_have_the_same_lower_edge(browser, page):
    tab = browser.tab()
    tab.open(page, until="true")
    edges = "[...row.cells].map((cell) => Math.round(cell.getBoundingClientRect().bottom))"
    assert tab.run(f"[...document.querySelectorAll('tbody tr')].every((row) => new Set({edges}).size === 1)")
