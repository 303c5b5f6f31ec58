"""Losses of equal colour are told apart in every chart of the page, in its legends and in the still picture."""

from __future__ import annotations

import re
from collections.abc import Sequence

import headless_browser
import pytest

from vsetune.board.building import build
from vsetune.board.page import to_html
from vsetune.board.shown_runs import ShownRuns
from vsetune.board.vega import PALETTE

LOSSES = [f"loss_{number:02}" for number in range(2 * PALETTE + 2)]
RISING_AND_FALLING = (40, 50, 60, 59, 58, 57)
LOOKS = """(section, mark) => [...document.querySelectorAll(`[data-charts=${section}] figure`)].map((figure) =>
    [...figure.querySelectorAll(mark)].map((path) => ["fill", "stroke", "stroke-dasharray", "d"].map((name) =>
    path.getAttribute(name) ?? "")))"""
POINTS, LINES, BARS = ".mark-symbol.role-mark path", ".mark-line path", ".mark-rect.role-mark path"
LEGEND = ".role-legend .mark-symbol path"


@pytest.fixture
def attempts(attempt):
    """Sixteen losses with two networks: a search of two configurations, confirmed by two seeds."""
    return [
        attempt(
            loss, [recall - configuration - place / 4 + seed / 8 for recall in RISING_AND_FALLING], seed=seed,
            configuration=configuration, phase="confirm" if seed else "search", network=network,
        )
        for network in ("vsepp", "vsrn") for place, loss in enumerate(LOSSES)
        for configuration, seed in ((0, 0), (1, 0), (2, 0), (3, 0), (0, 1), (0, 2))
    ]


@pytest.fixture
def board(attempts):
    return build(attempts, baseline=LOSSES[0])


def counted(looks: Sequence[Sequence[str]], *, has_shape: bool) -> tuple[int, int]:
    """How many colours there are, and how many looks: colours with dashes, and with the shape where it tells."""
    colours = [stroke if fill in ("", "none", "transparent") else fill for fill, stroke, *_ in looks]
    told = [(colour, dash, re.sub(r"[^A-Za-z]", "", path) if has_shape else "")
            for colour, (_, _, dash, path) in zip(colours, looks, strict=True)]
    return len(set(colours)), len(set(told))


@pytest.mark.slow
@pytest.mark.skipif(headless_browser.PROGRAM is None, reason="no Chromium on this machine")
def test_losses_of_equal_colour_differ_in_dashes_or_shape_in_every_chart_and_legend(attempts, board, tmp_path):
    measured = {(each.start.study, each.start.trial): {"unique_negatives_images": each.curve} for each in attempts}
    file = tmp_path / "board.html"
    runs = ShownRuns(attempts, {}, measured, {"demo": None})
    file.write_text(to_html(board, runs=runs), encoding="utf-8")
    (tmp_path / "profile").mkdir()
    with headless_browser.headless_browser(tmp_path / "profile") as browser:
        tab = browser.tab(height=14000)
        tab.open(file.as_uri())
        tab.wait("[...document.querySelectorAll('figure')].every((figure) => figure.querySelector('svg'))")
        for section, figures, marks in (
            ("curves", 2, (LINES, POINTS, LEGEND)), ("heights", 2, (POINTS, LEGEND)),
            ("tuning", 4, (LINES, POINTS, LEGEND)),
            ("negatives", 2, (LINES, POINTS, LEGEND)), ("seconds", 2, (BARS, POINTS)),
        ):
            for mark in marks:
                drawn = tab.run(f"({LOOKS})({section!r}, {mark!r})")
                assert len(drawn) == figures, section
                for looks in drawn:
                    has_shape = mark == POINTS or (mark == LEGEND and section == "heights")
                    assert counted(looks, has_shape=has_shape) == (PALETTE, len(LOSSES)), (section, mark)
        assert tab.problems == []
