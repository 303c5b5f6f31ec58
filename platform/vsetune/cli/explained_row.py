"""The row of a board in a terminal: the runs behind it, and the steps of its arithmetic."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rich import box
from rich.console import Console, ConsoleOptions, RenderResult
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    from vsetune.leaderboard.arithmetic import Step
    from vsetune.leaderboard.sources import RowRun

_RIGHT = ("seed", "best M-Recall", "at epoch")
_NUMBERS, _PLACES = ("best M-Recall", "at epoch", "counts"), ("run", "phase", "status")
_UNLIMITED = 10_000


@dataclass(frozen=True)
class RunsView:
    """One table where it fits; in a narrow terminal one of numbers and one of the runs' places in the store, so that
    no id of a run is broken."""

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
    """What goes on in a further line stands further in."""

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
