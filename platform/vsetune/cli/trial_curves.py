"""`vsetune trial curves`: all numbers of all validations of a trial."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from vsetune.cli.output import place_to_write, print_json, results, say
from vsetune.cli.recorded_runs import Run
from vsetune.files.whole_files import write_text

if TYPE_CHECKING:
    from vsetune.records.attempts import ValidationPoint

EXAMPLE = "Example: vsetune trial curves quickstart/vsepp.lseh-c000-s0 --output curves.csv"
_OWN = ("step", "epoch", "pairs_seen", "m_recall", "train_seconds")


def curves(
    run: Run,
    output: Annotated[Path | None, place_to_write(help="CSV file to write; default: the terminal")] = None,
    as_json: Annotated[bool, typer.Option("--json", metavar="", help="one object per validation, as JSON")] = False,
) -> None:
    """Print every number of every validation of a trial as CSV: recalls, losses, rates, seconds, a line per validation.
    MLflow draws only M-Recall of them, unless the study file says `tracking: {series: all}`."""
    from vsetune.jobs.recorded import find_attempt
    from vsetune.records.studies import Studies

    store = Studies()
    points = store.points(find_attempt(store, run, finished=False).record.attempt_id)
    if as_json:
        print_json([asdict(point) for point in points])
        return
    text = as_csv(points)
    if output is None:
        results.out(text, end="", highlight=False)
        return
    write_text(output, text)
    say(f"written: {output.absolute()}")


def as_csv(points: Sequence[ValidationPoint]) -> str:
    """A column for every number that any of the points has; empty where a point has not."""
    names = dict.fromkeys(name for point in points for name in point.metrics if name not in _OWN)
    file = io.StringIO()
    rows = csv.writer(file, lineterminator="\n")
    rows.writerow([*_OWN, *names])
    for point in points:
        own = (getattr(point, name) for name in _OWN)
        rows.writerow([*own, *(point.metrics.get(name, "") for name in names)])
    return file.getvalue()
