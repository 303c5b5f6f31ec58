"""`vsetune leaderboard explain` and `repeat`: the origin of a row, and how to reproduce it."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich import box
from rich.console import Console, ConsoleOptions, RenderResult
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from vsetune.cli.output import place_to_write, print_json, results, say
from vsetune.config.spec.base import known_name
from vsetune.errors import UsageError
from vsetune.storage.whole_files import write_text

if TYPE_CHECKING:
    from vsetune.records.events import AttemptRecord, StudyRecord
    from vsetune.report.arithmetic import RowSources
    from vsetune.report.rows import Leaderboard, Row

if TYPE_CHECKING:
    from vsetune.report.arithmetic import RowRun, Step

EXPLAIN_EXAMPLE = "Example: vsetune leaderboard explain quickstart/vsepp.lseh"
REPEAT_EXAMPLE = "Example: vsetune leaderboard repeat quickstart/vsepp.lseh --output again.yaml"

RowName = Annotated[
    str,
    typer.Argument(metavar="STUDY/CELL", help="a row of a leaderboard, e.g. quickstart/vsepp.lseh", show_default=False),
]
Baseline = Annotated[str | None, typer.Option(metavar="LOSS", help="to compare with; default: the study's baseline")]


def explain(
    row: RowName,
    baseline: Baseline = None,
    as_json: Annotated[bool, typer.Option("--json", metavar="", help="the same as JSON")] = False,
) -> None:
    """Show where a row comes from: the runs behind its numbers, every step of their arithmetic, and the command that
    trains them again."""
    from vsetune.report.arithmetic import sources_of, steps

    attempts, _, board, found = _found(row, baseline)
    sources = sources_of(found, attempts)
    again = repeat_command(row, sources) if found.seeds else None
    told = steps(found, board)
    if as_json:
        print_json({
            "row": row, "runs": [run.to_plain() for run in sources.runs], "revisions": list(sources.revisions),
            "data_fingerprints": list(sources.data_fingerprints),
            "steps": [{"title": step.title, "lines": list(step.lines)} for step in told], "repeat": again,
        })
        return
    results.print(Text(row, style="bold"), soft_wrap=True)
    results.print(RunsView(sources.runs))
    results.print(StepsView(told))
    if again is None:
        return
    results.print(Text("\nagain", style="bold"))
    results.print(Text(f"  {_origin(sources)}\n  {again}"), soft_wrap=True)


def repeat(
    row: RowName,
    output: Annotated[Path, place_to_write(help="study file to write", show_default=False)],
    every: Annotated[bool, typer.Option("--all", metavar="", help="all losses of its network")] = False,
    epochs: Annotated[
        float | None, typer.Option(min=0.01, max=1e6, help="train so long instead, e.g. until the baseline is level")
    ] = None,
    baseline: Baseline = None,
) -> None:
    """Write a study file that trains a row and its baseline again: the configurations that the board shows, with their
    seeds, without any search. Its name is that of the file. Run it with `vsetune study run`."""
    from vsetune.config.spec.yaml_files import dump_yaml
    from vsetune.report.arithmetic import sources_of
    from vsetune.study.recorded_studies import repeated_study, study_of

    attempts, record, board, found = _found(row, baseline)
    if not found.seeds:
        raise UsageError(f"{row}: no trial of it has a usable validation, so there is nothing to repeat")
    group = next(rows for _, _, rows in board.groups() if found in rows)
    chosen = [each for each in group if each.seeds and (every or each is found or each.is_baseline)]
    spec = repeated_study(study_of(record), chosen, attempts, name=output.stem, epochs=epochs)
    sources = sources_of(found, attempts)
    head = [
        f"# {', '.join(each.cell for each in chosen)} of study {record.name} again"
        + (f", for {epochs:g} epochs." if epochs is not None else "."),
        f"# Recorded with {_origin(sources)}.", "#", f"#   vsetune study run {output}", "",
    ]
    write_text(output, "\n".join(head) + dump_yaml(spec.to_plain()))
    say(f"written: {output.absolute()}; run it with: vsetune study run {output}")


def _origin(sources: RowSources) -> str:
    code, data = (" / ".join(of) or "unknown" for of in (sources.revisions, sources.data_fingerprints))
    return f"code {code}, data {data}"


def repeat_command(row: str, sources: RowSources) -> str:
    """One command line that reproduces the row, with a checkout of its revision where that is known and unchanged."""
    from vsetune.report.wording import new_study_file

    revision = sources.revisions[0] if len(sources.revisions) == 1 else ""
    clean = revision and revision != "unknown" and not revision.endswith("+changes")
    checkout = f"git checkout {revision} && " if clean else ""
    name = new_study_file(row.replace("/", "_").replace(".", "_"), "again")
    return f"{checkout}vsetune leaderboard repeat {row} --output {name} && vsetune study run {name}"


def _found(
    name: str, baseline: str | None
) -> tuple[Sequence[AttemptRecord], StudyRecord, Leaderboard, Row]:
    """Attempts and record of the study, its board, and the row. UsageError for anything that does not exist."""
    from vsetune.records.studies import Studies
    from vsetune.report.building import build

    study, _, cell = name.partition("/")
    if not (study and cell):
        raise UsageError(f"{name}: need STUDY/CELL, e.g. quickstart/vsepp.lseh")
    store = Studies()
    record = store.record(study)
    attempts = store.attempts(study)
    board = build(attempts, baseline=baseline or str(record.config["baseline"]))
    rows = {row.cell: row for row in board.rows}
    try:
        return attempts, record, board, rows[known_name(cell, rows, "row")]
    except ValueError as error:
        raise UsageError(f"{name}: {error}") from error


_RIGHT = ("seed", "best M-Recall", "at epoch")
_NUMBERS, _PLACES = ("best M-Recall", "at epoch", "counts"), ("run", "phase", "status")
_UNLIMITED = 10_000


@dataclass(frozen=True)
class RunsView:
    """One table where it fits; in a narrow terminal one table of numbers and one of the runs' places in the store, so
    that no id of a run is broken."""

    runs: Sequence[RowRun]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        whole = self._table(("seed", "trial", *_PLACES, *_NUMBERS))
        if Measurement.get(console, options.update(max_width=_UNLIMITED), whole).maximum <= options.max_width:
            yield whole
        else:
            yield self._table(("seed", "trial", *_NUMBERS))
            yield self._table(("seed", *_PLACES))
        if not all(run.counts for run in self.runs):
            yield Text("no: it chose the configuration", style="dim")

    def _table(self, headings: Sequence[str]) -> Table:
        table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
        for heading in headings:
            table.add_column(heading, justify="right" if heading in _RIGHT else "left", overflow="fold")
        for run in self.runs:
            words = _words(run)
            table.add_row(*(Text(words[heading]) for heading in headings))
        return table


@dataclass(frozen=True)
class StepsView:
    """Continuation lines are indented further."""

    steps: Sequence[Step]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        wrapper = textwrap.TextWrapper(
            options.max_width, initial_indent="  ", subsequent_indent="      ", break_long_words=False,
            break_on_hyphens=False,
        )
        for step in self.steps:
            yield Text(f"\n{step.title}", style="bold")
            yield Text("\n".join(wrapper.fill(line) for line in step.lines))


def _words(run: RowRun) -> dict[str, str]:
    return {
        "seed": str(run.seed), "trial": run.trial, "run": run.run, "phase": run.phase, "status": run.status,
        "best M-Recall": f"{run.best_m_recall:.6g}", "at epoch": f"{run.epochs_to_best:.6g}",
        "counts": "yes" if run.counts else "no",
    }
