"""The leaderboard in a terminal."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rich import box
from rich.console import Console, ConsoleOptions, RenderResult
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from vsetune.leaderboard import wording
from vsetune.leaderboard.rows import Leaderboard, Row

COLUMNS = (
    "data", "network", "loss", "best\nM-Recall", "epochs\nto best", "epochs to\nbaseline's\nbest", "Difference",
    "s/epoch", "device-\nseconds", "trials", "seeds",
)
"""Headers, broken over lines so that eleven columns fit a terminal."""
TEXT_COLUMNS = 3
_RESULT = (2, 3, 4, 5, 6, 10)
_COST = (2, 7, 8, 9)
_UNLIMITED = 10_000


def cells(row: Row) -> tuple[str, ...]:
    """The words of one row, in the order of COLUMNS."""
    return (
        row.dataset, row.network, row.loss, wording.recall(row),
        wording.fixed(row.epochs_to_best, 2), wording.epochs(row.epochs_to_target), wording.difference(row.difference),
        wording.fixed(row.seconds_per_epoch, 1), wording.fixed(row.cost.device_seconds, 0), wording.trials(row),
        str(len(row.headline)),
    )


@dataclass(frozen=True)
class LeaderboardView:
    """One table where it fits; in a narrow terminal a table of results and one of costs for every network."""

    leaderboard: Leaderboard

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        board = self.leaderboard
        yield Text(f"{board.study}: losses compared with {board.baseline}", style="bold")
        whole = _table(board, [rows for _, _, rows in board.groups()], range(len(COLUMNS)))
        needed = Measurement.get(console, options.update(max_width=_UNLIMITED), whole).maximum
        if needed <= options.max_width:
            yield whole
        else:
            for dataset, network, rows in board.groups():
                yield Text(f"\n{network} on {dataset}", style="bold")
                yield _table(board, [rows], _RESULT)
                yield _table(board, [rows], _COST)
        yield Text("\n".join([wording.protocol_line(board), *wording.notes(board)]), style="dim")


def render_table(leaderboard: Leaderboard) -> LeaderboardView:
    """Something a rich console prints: tables, and below them the notes on protocol, resolution and flags."""
    return LeaderboardView(leaderboard)


def _table(leaderboard: Leaderboard, groups: Sequence[tuple[Row, ...]], columns: Sequence[int]) -> Table:
    letters = wording.flag_marks(leaderboard)
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, collapse_padding=True)
    for column in columns:
        side = "left" if column < TEXT_COLUMNS else "right"
        table.add_column(Text(COLUMNS[column]), justify=side, overflow="fold")  # type: ignore[arg-type]
    for rows in groups:
        for row in rows:
            words = [Text(_broken(word)) for word in cells(row)]
            if row.flags:
                words[2].append(f" ({wording.marks(row, letters)})", style="dim")
            table.add_row(*(words[column] for column in columns), style="bold" if _is_top(row, rows) else "")
        table.add_section()
    return table


def _broken(word: str) -> str:
    """Intervals and counts below the number they belong to."""
    number, bracket, rest = word.partition(" (")
    return f"{number}\n{rest[:-1].replace(', ', chr(10))}" if bracket else word.replace(" [", "\n[")


def _is_top(row: Row, rows: tuple[Row, ...]) -> bool:
    top = wording.top(rows)
    return top is not None and row.not_comparable is None and row.best_m_recall == top.best_m_recall
