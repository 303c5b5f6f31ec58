"""Draws every panel from Prometheus on one self-contained page, and prints what each query returned.

    python dashboards/render.py --hours 3 --output board.html
    python dashboards/render.py --table           # only the table: panel, query, series, points
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

from watching.answers import Span, ask_all, table
from watching.page import to_html
from watching.prometheus_api import PrometheusError, Server


def main(arguments: list[str] | None = None) -> int:
    """0 done, 1 Prometheus does not answer."""
    parser = argparse.ArgumentParser(description="Draws every panel from Prometheus on one self-contained page.")
    parser.add_argument("--url", default="http://127.0.0.1:9090", help="of Prometheus")
    parser.add_argument("--hours", type=float, default=3.0, help="how far back")
    parser.add_argument("--study", default=".*", help="regular expression")
    parser.add_argument("--output", type=Path, default=Path("board.html"))
    parser.add_argument("--table", action="store_true", help="print panel, query, series and points, write nothing")
    given = parser.parse_args(arguments)
    span = Span.until(time.time(), hours=given.hours)
    try:
        answers = ask_all(Server(given.url), span, study=given.study)
    except PrometheusError as error:
        print(error, file=sys.stderr)
        return 1
    if given.table:
        print(table(answers))
        return 0
    given.output.write_text(to_html(answers, span, source=given.url), encoding="utf-8")
    empty = [answer.panel.title for answer in answers if not answer.curves]
    print(f"{given.output}: {len(answers)} panels{'; without data: ' + ', '.join(empty) if empty else ''}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
