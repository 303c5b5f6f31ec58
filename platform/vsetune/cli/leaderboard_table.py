"""`vsetune leaderboard table`: a table of a paper, filled from recorded runs."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from vsetune.cli.leaderboard_reading import named_records, read_studies
from vsetune.cli.output import results
from vsetune.errors import UsageError

TABLE_EXAMPLE = "Example: vsetune leaderboard table lseh_table3 flickr8k --as LMH1=lmh --format latex"

TableName = Annotated[
    str,
    typer.Argument(
        metavar="TABLE", help="lseh_table3, lseh_table4 to 7, zhang_table2 or 3, mse_table1 or 2", show_default=False,
    ),
]
StudyNames = Annotated[
    list[str] | None, typer.Argument(help="studies with the runs; none: all in the store", show_default=False)
]
Names = Annotated[
    list[str] | None,
    typer.Option(
        "--as", metavar="PAPER=OURS", help="what a loss, network or data set of the paper is called here",
        show_default=False,
    ),
]


class Format(StrEnum):
    text = "text"
    markdown = "markdown"
    csv = "csv"
    latex = "latex"


def table(
    name: TableName,
    study: StudyNames = None,
    names: Names = None,
    form: Annotated[Format, typer.Option("--format", help="how it is written")] = Format.text,
) -> None:
    """Print a table of a paper in its layout: our numbers, and below them those that the paper prints. Cells that are
    empty say why."""
    from vsetune.leaderboard.paper_table import paper_table
    from vsetune.leaderboard.table_filling import fill, renamed
    from vsetune.leaderboard.table_formats import FORMATS
    from vsetune.leaderboard.table_in_terminal import to_terminal

    layout = renamed(paper_table(name), _pairs(names or []))
    from vsetune.records.studies import Studies

    store = Studies()
    filled = fill(layout, read_studies(store, named_records(store, study or [])))
    if form is Format.text:
        results.print(to_terminal(filled))
    else:
        results.out(FORMATS[form.value](filled), highlight=False, end="")


def _pairs(told: list[str]) -> dict[str, str]:
    pairs = {}
    for each in told:
        paper, equals, ours = each.rpartition("=")
        if not (paper and equals and ours):
            raise UsageError(f"leaderboard table: --as {each}: need PAPER=OURS, e.g. LMH2=lmh_lseh_settings")
        pairs[paper] = ours
    return pairs
