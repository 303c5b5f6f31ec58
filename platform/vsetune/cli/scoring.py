"""Bars while networks score pairs, and the table of recalls."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from rich.table import Table

from vsetune.cli.output import messages

if TYPE_CHECKING:
    from vsetune.data.progress import ProgressSink
    from vsetune.scoring.pair_scores import Report


@contextmanager
def scoring(names: Sequence[str]) -> Iterator[list[Report | None]]:
    """One report for each network: bars that appear with its first scored block; fast networks never show any."""
    from vsetune.data.terminal_progress import terminal_progress

    with terminal_progress(messages) as progress:
        yield [_bar(progress, name) for name in names]


def recall_table(title: str, rows: Sequence[tuple[str, dict[str, float]]], *, of: str) -> Table:
    """Recalls in per cent; a row called `ensemble` stands out. of: header of the names."""
    table = Table(title=title, title_justify="left")
    table.add_column(of, overflow="fold")
    names = [f"{way}_r{k}" for way in ("i2t", "t2i") for k in (1, 5, 10)]
    for header in [f"{way}\nR@{k}" for way in ("I2T", "T2I") for k in (1, 5, 10)] + ["M-Recall"]:
        table.add_column(header, justify="right", no_wrap=True)
    for name, numbers in rows:
        style = "bold" if name == "ensemble" else ""
        table.add_row(name, *(f"{numbers[each]:.1f}" for each in [*names, "m_recall"]), style=style)
    return table


def _bar(progress: ProgressSink, name: str) -> Report:
    last = 0

    def report(done: int, total: int) -> None:
        nonlocal last
        if last == 0:
            progress.stage(f"{name}, pairs", total)
        progress.advance(done - last)
        last = done

    return report
