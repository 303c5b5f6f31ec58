"""Tables as text: Markdown, LaTeX for booktabs, CSV; and the short table of searches below a board."""

from __future__ import annotations

import csv
import io
import re
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from vsetune.metrics.best_of_k import BAND, ExpectedBest, TuningCurves
from vsetune.report import wording
from vsetune.report.rows import Leaderboard, Pick, Row


@dataclass(frozen=True)
class TableText:
    """lines: of every row, by `row_key`. before_group: text before the rows of every comparison. The parts follow each
    other without separators."""

    head: str
    before_group: str
    lines: Mapping[str, str]
    tail: str

    def whole(self) -> str:
        """The table with all rows in order. A new comparison begins where data set or network changes."""
        parts, group = [self.head], None
        for key, line in self.lines.items():
            if group_of(key) != group:
                group = group_of(key)
                parts.append(self.before_group)
            parts.append(line)
        return "".join([*parts, self.tail])


@dataclass(frozen=True)
class TableTexts:
    """The tables of a page's boards, with the text before, between and after them. The page leaves out a board without
    rows."""

    head: str
    between: str
    boards: tuple[TableText, ...]
    tail: str

    def whole(self) -> str:
        return self.head + self.between.join(board.whole() for board in self.boards) + self.tail


def row_key(row: Row, number: int) -> str:
    """Key of a row, which does not depend on the other rows of its page. number: of its board among several of one data
    set."""
    return "\t".join([row.dataset, row.network, row.loss, *([str(number)] if number > 1 else [])])


def group_of(key: str) -> str:
    """The comparison of a row, from the key of the row."""
    dataset, network, _, *number = key.split("\t")
    return "\t".join([dataset, network, *number])


def rows_by_key(board: Leaderboard) -> dict[str, Row]:
    """Rows by their keys, one comparison after the other."""
    return {row_key(row, board.number): row for _, _, rows in board.groups() for row in rows}


def csv_line(fields: Sequence[Any]) -> str:
    buffer = io.StringIO()
    csv.writer(buffer, lineterminator="\n").writerow(fields)
    return buffer.getvalue()


def csv_of(lines: Iterable[Mapping[str, Any]]) -> str:
    """A header from the keys of the first line, and the lines."""
    rows = list(lines)
    return "".join([csv_line(list(rows[0]) if rows else []), *(csv_line(list(row.values())) for row in rows)])


_ESCAPED = {character: f"\\{character}" for character in "\\`*_[]<>|#~"}


def markdown_words(text: str) -> str:
    """The text with Markdown's special characters escaped."""
    return "".join(_ESCAPED.get(character, character) for character in text).replace("\n", " ")


def markdown_line(cells: Iterable[str], escape: Callable[[str], str] = markdown_words) -> str:
    return f"| {' | '.join(map(escape, cells))} |\n"


def markdown_frame(
    title: str, heads: Sequence[str], sides: Sequence[str], notes: Sequence[str],
    escape: Callable[[str], str] = markdown_words,
) -> tuple[str, str]:
    """Text before and after the lines of a table. title: in Markdown. sides: `:---` left, `---:` right."""
    head = f"{title}\n\n{markdown_line(heads, escape)}{markdown_line(sides, str)}"
    return head, "".join(["\n", *(f"- {escape(note)}\n" for note in notes)]) if notes else ""


NEEDS_BOOKTABS = "% needs \\usepackage{booktabs}\n"
_LATEX = {
    "\\": r"\textbackslash{}", "&": r"\&", "%": r"\%", "$": r"\$", "#": r"\#", "_": r"\_", "{": r"\{", "}": r"\}",
    "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "<": r"$<$", ">": r"$>$", "±": r"$\pm$", "−": "$-$",
    "–": "--", "∞": r"$\infty$",
}
_HYPHEN_BEFORE_ANOTHER = re.compile("-(?=-)")
"""LaTeX sets two hyphens as a dash, so that a command with --options could not be copied from the typeset text."""


def tex(text: str) -> str:
    """The text with LaTeX's special characters escaped and the signs of our tables as LaTeX commands."""
    parts = _HYPHEN_BEFORE_ANOTHER.split(text)
    return "-{}".join("".join(_LATEX.get(character, character) for character in part) for part in parts)


def latex_line(cells: Iterable[str]) -> str:
    return " & ".join(map(tex, cells)) + " \\\\\n"


def latex_frame(caption: str, sides: str, head: str, notes: Sequence[str]) -> tuple[str, str]:
    r"""Text before and after the lines of a `table`. caption, head: in LaTeX; the head ends its line."""
    before = f"\\begin{{table}}\n\\centering\n\\caption{{{caption}}}\n\\begin{{tabular}}{{{sides}}}\n\\toprule\n{head}"
    after = ["\\bottomrule\n\\end{tabular}\n", *(f"\\par\\footnotesize {tex(note)}\n" for note in notes)]
    return before, "".join([*after, "\\end{table}\n"])


@dataclass(frozen=True)
class WordTable:
    """A table of words. headings, rows: of equal length, the first column left. notes: one line each, below the
    table."""

    title: str
    headings: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    notes: tuple[str, ...]


_TRIALS = 4
"""Fewest trials of a search for a row in the table."""
_COUNTS = 5
_PARTS = {"¼ of epochs": 0.25, "½ of epochs": 0.5}


def tuning_table(board: Leaderboard) -> WordTable | None:
    """A row per loss with searches of at least four trials, their mean; None without such a search. Columns by epochs
    only where a trial was stopped: of whole trials they repeat those by trials."""
    searched = [
        (row, curves) for row in board.rows
        if (curves := [pick.tuning for pick in row.repeats if pick.tuning and pick.tuning.trials >= _TRIALS])
    ]
    if not searched:
        return None
    counts = _counts(max(tuning.trials for _, curves in searched for tuning in curves))
    parts = _PARTS if any(row.counts.get("pruned") for row, _ in searched) else {}
    headings = ("loss", "trials", *(f"{count} trial{'s' if count > 1 else ''}" for count in counts), *parts, "all")
    rows = [_tuning_row(row.loss, curves, counts, list(parts.values())) for row, curves in searched]
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
            *([_OVER_SEARCHES] if any(len(curves) > 1 for _, curves in searched) else []),
        ),
    )


def searches_of(board: Leaderboard) -> list[tuple[Row, Pick, TuningCurves]]:
    """Every search with curves of its expected best."""
    return [(row, pick, pick.tuning) for row in board.rows for pick in row.repeats if pick.tuning is not None]


def _counts(trials: int) -> list[int]:
    """Powers of two below the number of trials, every second one if there are many; the last column has all trials."""
    powers = [2**power for power in range(trials.bit_length()) if 2**power < trials]
    return powers if len(powers) <= _COUNTS else powers[::2]


_OVER_SEARCHES = (
    "Of a loss with several searches: the mean of their expected bests, and from the lowest to the highest of them."
)


def _tuning_row(
    name: str, searches: Sequence[TuningCurves], counts: Sequence[int], shares: Sequence[float]
) -> tuple[str, ...]:
    """counts: of trials. shares: of the epochs of a search."""
    known = [{int(each.at): each for each in tuning.after_trials} for tuning in searches]
    ends = [tuning.after_epochs[-1] for tuning in searches]
    parts = [
        [min(tuning.after_epochs, key=lambda each: abs(each.at - share * tuning.after_epochs[-1].at))
         for tuning in searches]
        for share in shares
    ]
    trials = sorted({tuning.trials for tuning in searches})
    epochs = statistics.fmean(each.at for each in ends)
    return (
        name, f"{trials[0]}–{trials[-1]}" if len(trials) > 1 else str(trials[0]),
        *(
            tuning_words(over_searches([of[count] for of in known])) if all(count in of for of in known)
            else wording.NOTHING for count in counts
        ),
        *(tuning_words(over_searches(part)) for part in parts),
        f"{wording.fixed(statistics.fmean(each.mean for each in ends), 1)} ({wording.fixed(epochs, 1)} epochs)",
    )


def over_searches(found: Sequence[ExpectedBest]) -> ExpectedBest:
    """The mean of the searches of a loss, and from the lowest to the highest; one search as it is."""
    if len(found) == 1:
        return found[0]
    means = [each.mean for each in found]
    return replace(found[0], mean=statistics.fmean(means), low=min(means), high=max(means))


def tuning_words(each: ExpectedBest) -> str:
    """`58.1 (55.0–60.2)`: in parentheses, because square brackets mark intervals on boards."""
    return f"{wording.fixed(each.mean, 1)} ({wording.fixed(each.low, 1)}–{wording.fixed(each.high, 1)})"
