"""Every panel on one self-contained page, in the style of the leaderboard: for whoever has no Grafana."""

from __future__ import annotations

import time
from collections.abc import Sequence
from importlib import resources
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from vsetune.report.charts import PALETTE
from watching import drawing
from watching.answers import Answer, Span
from watching.panels import BOARDS


def to_html(answers: Sequence[Answer], span: Span, *, source: str) -> str:
    """The whole page as text; it asks for nothing from anywhere. source: where the numbers are from."""
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent), autoescape=True, undefined=StrictUndefined,
        trim_blocks=True, lstrip_blocks=True,
    )
    boards = []
    for board in BOARDS:
        drawn = [drawing.drawing_of(answer, span) for answer in answers if answer.board is board]
        boards.append((board, [one for one in drawn if one.kind == "stat"],
                       [one for one in drawn if one.kind == "line"]))
    style = resources.files("vsetune.report").joinpath("templates/page.css").read_text(encoding="utf-8")
    return environment.get_template("page.html.j2").render(
        boards=boards, answers=answers, source=source, period=_period(span), style=style, palette=PALETTE,
        width=drawing.WIDTH, height=drawing.HEIGHT, left=drawing.LEFT, right=drawing.RIGHT, bottom=drawing.BOTTOM,
    )


def _period(span: Span) -> str:
    hours = (span.end - span.start) / 3600
    lasting = f"{hours:.3g} hours" if hours >= 2 else f"{60 * hours:.0f} minutes"
    return f"The last {lasting} before {time.strftime('%d %B %Y, %H:%M', time.localtime(span.end))}"
