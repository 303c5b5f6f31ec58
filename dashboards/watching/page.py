"""Every panel on one self-contained page, in the style of the leaderboard, for machines without Grafana."""

from __future__ import annotations

import time
from collections.abc import Sequence

from vsetune.board.page_templates import render
from watching.answers import Answer, Span
from watching.drawing import FURTHER_COLOURS, MOST_LINES, SHARED_COLOURS, drawing_of
from watching.panels import BOARDS


def to_html(answers: Sequence[Answer], span: Span, *, source: str) -> str:
    """The whole page as text; it makes no requests. source: where the numbers are from."""
    boards = []
    for board in BOARDS:
        drawings = [drawing_of(answer, span) for answer in answers if answer.board is board]
        boards.append((board, [each for each in drawings if each.kind == "stat"],
                       [each for each in drawings if each.kind == "line"]))
    return render(
        "watched.html.j2", "watching", boards=boards, answers=answers, source=source, period=_period(span),
        further=list(enumerate(FURTHER_COLOURS, SHARED_COLOURS)), most=MOST_LINES,
    )


def _period(span: Span) -> str:
    hours = (span.end - span.start) / 3600
    lasting = f"{hours:.3g} hours" if hours >= 2 else f"{60 * hours:.0f} minutes"
    return f"The last {lasting} before {time.strftime('%d %B %Y, %H:%M', time.localtime(span.end))}"
