"""What charts of the page show in Chromium: axes that fit what is counted, and nothing left out unsaid."""

from __future__ import annotations

import base64
import subprocess

import headless_browser
import pytest

from vsetune.board.building import build
from vsetune.board.page import to_html
from vsetune.board.shown_runs import ShownRuns

pytestmark = [
    pytest.mark.slow, pytest.mark.skipif(headless_browser.PROGRAM is None, reason="no Chromium on this machine"),
]
TICKS = """(section) => [...document.querySelectorAll(`[data-charts=${section}] figure`)].map((figure) =>
    [...figure.querySelectorAll(".role-axis")].map((axis) =>
        [...axis.querySelectorAll(".role-axis-label text")].map((label) => label.textContent))
    .filter((labels) => labels.length > 0))"""
ASIDES = """(section) => [...document.querySelectorAll(`[data-charts=${section}] .aside`)]
    .map((each) => each.textContent)"""
DRAWN = """document.querySelectorAll('figure').length > 0 &&
    [...document.querySelectorAll('figure')].every((figure) => figure.querySelector('svg'))"""


@pytest.fixture
def tab(browser, attempt, tmp_path):
    """Of lmh, lseh close to it and luwm far below: four configurations each, the last one confirmed by two seeds."""
    attempts = [
        attempt(
            loss, [top - 20, top - 10, top - configuration, top + seed / 10 - 1], seed=seed, gap=1.0,
            configuration=configuration, phase="confirm" if seed else "search",
        )
        for loss, top in (("lmh", 60.0), ("lseh", 62.0), ("luwm", 30.0))
        for configuration, seed in ((3, 0), (2, 0), (1, 0), (0, 0), (0, 1), (0, 2))
    ]
    attempts.append(attempt("paper", [40.0, 50.0, 59.0, 58.0], seed=1, gap=1.0))
    measured = {(each.start.study, each.start.trial): {"unique_negatives_images": each.curve} for each in attempts}
    file = tmp_path / "board.html"
    runs = ShownRuns(attempts, {}, measured, {"demo": None})
    file.write_text(to_html(build(attempts, baseline="lmh"), runs=runs), encoding="utf-8")
    tab = browser.tab(height=14000)
    tab.open(file.as_uri())
    tab.wait(DRAWN)
    yield tab
    assert tab.problems == []


def numbers(labels):
    return [float(label.replace(",", "")) for label in labels]


def test_what_is_near_the_best_is_not_squeezed_by_a_loss_far_below_which_is_named(tab):
    for section in ("curves", "heights", "tuning"):
        _, heights = tab.run(f"({TICKS})({section!r})")[0]
        assert min(numbers(heights)) <= 40, section
        assert not any("below" in aside for aside in tab.run(f"({ASIDES})({section!r})"))
    tab.run("document.querySelector('[data-charts=heights] [data-near]').click()")
    tab.wait("document.querySelectorAll('[data-near]:checked').length === 3")
    for section in ("curves", "heights", "tuning"):
        tab.wait(f"({TICKS})({section!r}).every(([, heights]) => Number(heights[0]) >= 54)")
        assert all("below the picture: luwm" in aside for aside in tab.run(f"({ASIDES})({section!r})")), section
    assert "curves=near-the-best" in tab.run("location.hash")


def test_axes_and_words_beside_the_charts_fit_what_is_shown(tab):
    trials, epochs = tab.run(f"({TICKS})('tuning')")
    assert trials[0] == ["1", "2", "3", "4"]
    assert len(epochs[0]) > 2
    ((_, counts),) = tab.run(f"({TICKS})('negatives')")
    assert counts[0] == "0"
    notes = tab.run("document.querySelector('[data-charts=tuning] .chart-notes').textContent")
    assert "Not in it, no search of several configurations for M-Recall: vsepp paper." in notes
    assert tab.run(f"({ASIDES})('heights')") == [""], "no claim is supported, so nobody is called highest and fastest"
    tab.run("page.over = 'best'; page.changed()")
    assert tab.run(f"({ASIDES})('heights')") == [""]
    heads = "[...document.querySelectorAll('.leaderboard th')]"
    hidden = tab.run(f"{heads}.filter((head) => head.offsetWidth === 0).map((head) => head.textContent)")
    assert hidden == ["data", "network"], "the headline names the only one of each"


def test_points_of_equal_losses_are_both_seen(browser, attempt, tmp_path):
    """twin has the very curve of lmh: their points stand side by side at one height."""
    runs = [attempt(loss, [40, 60, 50], seed=1, gap=1.0) for loss in ("lmh", "twin")]
    file = tmp_path / "twins.html"
    file.write_text(to_html(build(runs, baseline="lmh")), encoding="utf-8")
    tab = browser.tab(height=6000)
    tab.open(file.as_uri())
    tab.wait(DRAWN)
    moved = tab.run(
        "[...document.querySelectorAll('[data-charts=heights] .mark-symbol.role-mark path')]"
        ".map((each) => each.getAttribute('transform').match(/[-0-9.]+/g).map(Number))"
    )
    (one, two) = moved
    assert abs(one[0] - two[0]) > 5
    assert abs(one[1] - two[1]) < 1


@pytest.mark.parametrize("drawn", [DRAWN, "true"], ids=["once drawn", "at once"])
def test_paper_has_the_charts_that_nobody_scrolled_to(browser, attempt, tmp_path, drawn):
    runs = [attempt(loss, [40, 60, 50 + seed], seed=seed, gap=1.0, network=network) for loss in ("lmh", "mine")
            for network in ("vsepp", "scan", "pvse") for seed in range(3)]
    file = tmp_path / "board.html"
    file.write_text(to_html(build(runs, baseline="lmh")), encoding="utf-8")
    sizes = []
    for height in (500, 14000):
        tab = browser.tab(height=height)
        tab.open(file.as_uri(), until=drawn)
        paper = tab.do("Page.printToPDF", printBackground=True)["data"]
        sizes.append(len(base64.b64decode(paper)))
        assert tab.problems == []
    assert sizes[0] == pytest.approx(sizes[1], rel=0.02)


def test_a_browser_that_looks_once_sees_the_charts(attempt, tmp_path):
    file = tmp_path / "board.html"
    runs = [attempt(loss, [40, 60, 50], gap=1.0) for loss in ("lmh", "mine")]
    file.write_text(to_html(build(runs, baseline="lmh")), encoding="utf-8")
    command = [headless_browser.PROGRAM, "--headless", "--no-sandbox", "--disable-gpu", "--window-size=1280,4000"]
    command += ["--dump-dom", file.as_uri()]
    loaded = subprocess.run(command, check=True, capture_output=True, timeout=120).stdout
    figures = loaded.partition(b"<script")[0].count(b"<figure")
    assert figures > 1
    assert loaded.count(b'class="marks"') == figures
