"""Answers of Prometheus to the query of every panel, for the page and for the table of panels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from watching.panels import Board, Panel, every_panel, filled
from watching.prometheus_api import Curve, Server

MOST_POINTS = 240


@dataclass(frozen=True)
class Answer:
    """The answer for one panel. query: as it was sent."""

    board: Board
    panel: Panel
    query: str
    curves: Sequence[Curve]

    @property
    def points(self) -> int:
        """Number of points of all its series."""
        return sum(len(curve.points) for curve in self.curves)


@dataclass(frozen=True)
class Span:
    """The time range of a page in Unix seconds, and the step between two points of a curve."""

    start: float
    end: float
    step_s: float

    @classmethod
    def until(cls, end: float, *, hours: float, step_s: float | None = None) -> Span:
        """The last hours before `end`, with at most MOST_POINTS points unless the step is given."""
        return cls(end - hours * 3600, end, step_s or max(5.0, hours * 3600 / MOST_POINTS))


def ask_all(server: Server, span: Span, **chosen: str) -> list[Answer]:
    """Query every panel, in order. chosen: studies, cells or trials as regular expressions. Raises PrometheusError."""
    rate_interval = f"{max(60, round(4 * span.step_s))}s"
    answers = []
    for board, panel in every_panel():
        query = filled(panel.expr, rate_interval=rate_interval, **chosen)
        curves = server.over_time(query, start=span.start, end=span.end, step_s=span.step_s)
        answers.append(Answer(board, panel, query, [curve for curve in curves if curve.points]))
    return answers


def table(answers: Sequence[Answer]) -> str:
    """panel | query | series | points, as Markdown."""
    rows = [
        f"| {answer.board.name}: {answer.panel.title} | `{answer.query.replace('|', chr(92) + '|')}` | "
        f"{len(answer.curves)} | {answer.points} |" for answer in answers
    ]
    return "\n".join(["| panel | query | series | points |", "| --- | --- | ---: | ---: |", *rows])
