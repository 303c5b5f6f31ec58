"""The report printed after a study: the board, unfinished trials, where to look, how to continue."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NoReturn

import typer
from rich.table import Column, Table

from vsetune.cli.output import messages, mlflow_server, results, say

if TYPE_CHECKING:
    from vsetune.study.preparation import PreparedStudy
    from vsetune.study.run import StudyOutcome, Trouble


def report(prepared: PreparedStudy, outcome: StudyOutcome, *, go_on: str, file: str) -> NoReturn:
    """Print the leaderboard to stdout, events and places to look to stderr. Exits with the exit code.

    go_on: the command that continues an interrupted study. file: the study file, for other commands.
    """
    from vsetune.report.terminal import render_table
    from vsetune.study.places import tracking_uri

    if outcome.board is not None:
        results.print(render_table(outcome.board))
    if outcome.remark:
        say(f"{'no leaderboard' if outcome.board is None else 'leaderboard not whole on disk'}: {outcome.remark}")
    if outcome.troubles:
        messages.print(_table_of(outcome.troubles))
    counts = ", ".join(f"{count} {status}" for status, count in sorted(outcome.counts.items()))
    lines = [f"{prepared.spec.study}: {counts}"]
    if outcome.page is not None:
        lines.append(f"page:      {outcome.page}")
    lines += in_mlflow(tracking_uri(prepared.spec.tracking), outcome.experiment)
    say("\n".join(lines))
    if outcome.undelivered:
        say(
            f"{outcome.undelivered} events are not in MLflow yet ({outcome.outage}); export them with: "
            f"vsetune tracking flush {prepared.spec.study}"
        )
    if outcome.was_interrupted:
        why = f" by {outcome.stopped_by}" if outcome.stopped_by else ""
        say(f"interrupted{why}; nothing finished is lost, go on with: {go_on}")
    raise typer.Exit(_EXIT_CODES[outcome.ending] or (UNDELIVERED if outcome.undelivered else 0))


def in_mlflow(uri: str | None, experiment: str | None) -> list[str]:
    """The command that serves MLflow's UI, where none answers yet, and where in it the charts of the study are."""
    from vsetune.records.run_descriptions import charts_link
    from vsetune.study.places import mlflow_ui

    server = mlflow_server(uri)
    lines = [] if server is None else [f"MLflow UI: {server}"]
    if experiment is not None:
        lines.append(f"charts:    {mlflow_ui(None, uri) or 'http://127.0.0.1:5000'}/{charts_link(experiment)}")
    return lines


_EXIT_CODES = {"finished": 0, "failed": 1, "partly failed": 3, "interrupted": 130}
UNDELIVERED = 4
"""Exit code of a study that finished while its tracking store has not taken all records."""


def _table_of(troubles: Sequence[Trouble]) -> Table:
    """Trials that failed or are open, with the first line of the reason."""
    columns = (Column("trial", overflow="fold"), "is", Column("because", overflow="fold"))
    table = Table(*columns, title="not finished", title_justify="left")
    for trouble in troubles[:_MOST_TROUBLES]:
        table.add_row(trouble.trial, "open" if trouble.is_open else "failed", trouble.reason[:_LONGEST_REASON])
    if len(troubles) > _MOST_TROUBLES:
        table.add_row(f"and {len(troubles) - _MOST_TROUBLES} more", "", "vsetune trial show STUDY/TRIAL tells of each")
    return table


_MOST_TROUBLES, _LONGEST_REASON = 20, 800
