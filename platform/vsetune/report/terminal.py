"""The leaderboard in a terminal, with short tables of the expected best of shorter searches."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rich import box
from rich.console import Console, ConsoleOptions, Group, JustifyMethod, RenderResult
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from vsetune.metrics.best_of_k import BAND, ExpectedBest, TuningCurves
from vsetune.report import wording
from vsetune.report.column import Column, columns_of
from vsetune.report.columns import COLUMNS
from vsetune.report.findings import collapses, findings, is_ahead
from vsetune.report.rows import Leaderboard, LossProfile, Row, TimeProfile

_UNLIMITED = 10_000
_NAMES = ("data", "network", "loss")


@dataclass(frozen=True)
class LeaderboardView:
    """One table where it fits; in a narrow terminal tables of results, epochs and costs for every network."""

    leaderboard: Leaderboard
    columns: Sequence[Column]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        board = self.leaderboard
        columns = columns_of("terminal", self.columns, board.rows)
        for sentence in collapses(board):
            yield Text(sentence, style="bold red")
        yield Text(f"{board.study}: losses compared with {board.baseline}", style="bold")
        whole = _table(board, [rows for _, _, rows in board.groups()], columns)
        needed = Measurement.get(console, options.update(max_width=_UNLIMITED), whole).maximum
        if needed <= options.max_width:
            yield whole
        else:
            for dataset, network, rows in board.groups():
                yield Text(f"\n{network} on {dataset}", style="bold")
                for part in ("result", "epochs", "cost"):
                    yield _table(board, [rows], [column for column in columns if column.part in ("name", part)])
        yield Text("\n".join([wording.protocol_line(board), *findings(board), *wording.notes(board)]), style="dim")
        profiles = (profile_table(each, board.baseline) for each in (board.profile, board.seconds_profile))
        for words in (tuning_table(board), *profiles):
            if words is not None:
                yield render_words(words)


def render_table(leaderboard: Leaderboard, columns: Sequence[Column] = COLUMNS) -> LeaderboardView:
    """A renderable for a rich console: tables, with notes on protocol, resolution and flags below."""
    return LeaderboardView(leaderboard, columns)


def _table(leaderboard: Leaderboard, groups: Sequence[tuple[Row, ...]], columns: Sequence[Column]) -> Table:
    letters = wording.flag_marks(leaderboard)
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, collapse_padding=True)
    for column in columns:
        side: JustifyMethod = "left" if column.kind == "text" else "right"
        table.add_column(Text(column.broken_heading), justify=side, overflow="fold")
    for rows in groups:
        for row in rows:
            words = [_words(column, row, letters) for column in columns]
            table.add_row(*words, style="bold" if is_ahead(row) else "")
        table.add_section()
    return table


def render_words(words: WordTable) -> Group:
    """The table with its title and notes."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, collapse_padding=True)
    for heading in words.headings:
        table.add_column(Text(heading), justify="left" if heading in _NAMES else "right", overflow="fold")
    for row in words.rows:
        table.add_row(*(Text(_broken(cell)) for cell in row))
    return Group(Text(f"\n{words.title}", style="bold"), table, Text("\n".join(words.notes), style="dim"))


def _words(column: Column, row: Row, letters: Mapping[str, str]) -> Text:
    words = Text(_broken(column.words(row)))
    if column.part == "name" and row.flags:
        words.append(f" ({wording.marks(row, letters)})", style="dim")
    return words


def _broken(word: str) -> str:
    """Text with intervals and counts on the lines below their number."""
    number, bracket, rest = word.partition(" (")
    return f"{number}\n{rest[:-1].replace(', ', chr(10))}" if bracket else word.replace(" [", "\n[")


_TRIALS = 4
"""Fewest trials of a search for a row in the table."""
_COUNTS = 5
_PARTS = {"¼ of epochs": 0.25, "½ of epochs": 0.5}
_TAUS = (1.0, 1.25, 1.5, 2.0, 4.0)
_SECONDS = (
    "Seconds are epochs at the pace of the seed's whole training, without validations, on one hardware; what ran "
    "beside it is in them."
)


@dataclass(frozen=True)
class WordTable:
    """A table of words. headings, rows: of equal length. notes: one line each, below the table."""

    title: str
    headings: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    notes: tuple[str, ...]


def tuning_table(board: Leaderboard) -> WordTable | None:
    """A row per search with at least four trials; None without such a search."""
    searched = [(row, row.tuning) for row in board.rows if row.tuning is not None and row.tuning.trials >= _TRIALS]
    if not searched:
        return None
    counts = _counts(max(tuning.trials for _, tuning in searched))
    headings = ("loss", "trials", *(f"{count} trial{'s' if count > 1 else ''}" for count in counts), *_PARTS, "all")
    rows = [_tuning_row(row, tuning, counts) for row, tuning in searched]
    places = [(row.dataset, row.network) for row, _ in searched]
    title = "Expected best of a search that had ended earlier, M-Recall in per cent"
    if len(set(places)) == 1:  # a narrow terminal has no room for it in every row
        title += f", {searched[0][0].network} on {searched[0][0].dataset}"
    else:
        headings = ("data", "network", *headings)
        rows = [(*place, *row) for place, row in zip(places, rows, strict=True)]
    return WordTable(
        title, headings, tuple(rows), (
            f"Expected best: mean over all orders of the recorded trials, and where it lies in {100 * BAND:.0f} % of "
            "these orders, which is no interval for another search. Of a sampler that learns from its trials it tells "
            "less than of one that does not. Validation, by the seed that searched: a maximum, and optimistic.",
        ),
    )


def profile_table(profile: TimeProfile | None, baseline: str) -> WordTable | None:
    """A row per loss; None for fewer than two tasks, where Difference gives the same information."""
    if profile is None or len(profile.tasks) < 2:
        return None
    counted = "epochs" if profile.unit == "epochs" else "seconds of training"
    return WordTable(
        f"Share of {len(profile.tasks)} tasks on which a loss is at the best of {baseline} within a factor of "
        f"the {counted} of the fastest loss",
        ("loss", *(f"{tau:g}×" for tau in _TAUS), "score", "seeds"),
        tuple(_profile_row(each) for each in profile.losses), (
            f"A task is a network on a data set; a loss is there when {profile.hit_words} of its seeds "
            f"are. Score: mean share from 1 to {profile.largest_factor:g}×. As measured, not tested.",
            *([_SECONDS] if profile.unit == "seconds" else []),
            *(f"Not in it: {each}." for each in profile.left_out),
        ),
    )


def _counts(trials: int) -> list[int]:
    """Powers of two below the number of trials, every second one if there are many; the last column has all trials."""
    powers = [2**power for power in range(trials.bit_length()) if 2**power < trials]
    return powers if len(powers) <= _COUNTS else powers[::2]


def _tuning_row(row: Row, tuning: TuningCurves, counts: Sequence[int]) -> tuple[str, ...]:
    known = {int(each.at): each for each in tuning.after_trials}
    end = tuning.after_epochs[-1]
    parts = [_at(tuning.after_epochs, share * end.at) for share in _PARTS.values()]
    return (
        row.loss, str(tuning.trials),
        *(_tuning_words(known[count]) if count in known else wording.NOTHING for count in counts),
        *map(_tuning_words, parts),
        f"{wording.fixed(end.mean, 1)} ({wording.fixed(end.at, 1)} epochs)",
    )


def _at(points: Sequence[ExpectedBest], epochs: float) -> ExpectedBest:
    return min(points, key=lambda each: abs(each.at - epochs))


def _tuning_words(each: ExpectedBest) -> str:
    """`58.1 (55.0–60.2)`: in parentheses, because square brackets mark intervals on boards."""
    return f"{wording.fixed(each.mean, 1)} ({wording.fixed(each.low, 1)}–{wording.fixed(each.high, 1)})"


def _profile_row(each: LossProfile) -> tuple[str, ...]:
    shares = [max((share for tau, share in each.steps if tau <= limit), default=0.0) for limit in _TAUS]
    return (
        each.loss, *(f"{wording.fixed(100 * share, 0)} %" for share in shares), wording.fixed(each.score, 2),
        str(each.seeds),
    )
