"""One measured cell of a paper's table, from the rows of a board and the summaries of its seeds."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from vsetune.leaderboard import wording
from vsetune.leaderboard.paper_table import PaperColumn
from vsetune.leaderboard.rows import FLAGS, Row
from vsetune.metrics.survival import Epochs

_TOLD = (
    "baseline_rising", "incomplete", "seed_failed", "chosen_by_itself", "stopped_at_target",
    "censored",
)
"""Flags that become notes below a table that contains their row."""
Summaries = Mapping[tuple[str, str], Mapping[str, float]]
"""Summary of the latest attempt by (study, trial)."""


@dataclass(frozen=True)
class Cell:
    """words: the text shown. values: in full precision, as many as the paper prints here. notes: caveats, or for an
    empty cell the reason. counts: it may enter an average."""

    words: str
    values: tuple[float, ...] = ()
    notes: tuple[str, ...] = ()
    counts: bool = False


def missing(reason: str) -> Cell:
    return Cell(wording.NOTHING, notes=(reason,))


def measured(
    column: PaperColumn, row: Row, baseline: Row | None, summaries: Summaries, *, prefix: str
) -> Cell:
    """row: the loss of the cell; baseline: of the column, None where the column has none or it was not run."""
    if row.not_comparable is not None:
        return missing(f"{row.loss} of {row.network}: {row.not_comparable}")
    if not row.seeds:
        return missing(f"{row.loss} of {row.network}: {FLAGS['no_result']}")
    notes = tuple(f"{row.network} {row.loss}: {FLAGS[flag]}" for flag in _TOLD if flag in row.flags)
    match column.quantity:
        case "best_m_recall" if row.best_m_recall is not None:
            return Cell(_fixed(row.best_m_recall, column), (row.best_m_recall,), notes)
        case "epochs_to_best" if row.epochs_to_best is not None:
            return Cell(_fixed(row.epochs_to_best, column), (row.epochs_to_best,), notes)
        case "epochs_to_target" if row.epochs_to_target is not None:
            return Cell(_epochs(row.epochs_to_target, column), (row.epochs_to_target.value,), notes)
        case "difference" if row.difference is not None and baseline is not None:
            return _difference(row, baseline, column, notes)
        case "scored" | "mean_and_spread":
            return _scored(column, row, summaries, prefix, notes)
    if row.collapse is not None:
        return missing(f"{row.network}: {wording.collapse(row)}")
    if baseline is None:
        return missing(f"{row.network}: {column.against} was not run beside {row.loss}")
    return missing(f"{row.loss} of {row.network} shares no seed with {baseline.loss}")


def average(cells: Sequence[Cell]) -> Cell:
    """Mean of the Differences of several networks, as in the paper, without lower bounds and rising baselines."""
    known = [cell.values for cell in cells if cell.counts]
    if len(known) < 2:
        return missing("an average takes two networks whose baseline is a yardstick and whose target was reached")
    epochs, percent = (statistics.fmean(values) for values in zip(*known, strict=True))
    return Cell(_difference_words(epochs, percent, 1), (epochs, percent), (f"average over {len(known)} networks",))


def _difference(row: Row, baseline: Row, column: PaperColumn, notes: tuple[str, ...]) -> Cell:
    """Median difference in epochs and median Difference in per cent, over the pairs of seeds."""
    needed = {seed.seed: seed.epochs_to_best for seed in baseline.headline}
    apart = [
        seed.epochs_to_target.value - needed[seed.seed] for seed in row.headline
        if seed.epochs_to_target is not None and seed.seed in needed
    ]
    if row.difference is None or not apart:
        return missing(f"{row.loss} of {row.network} shares no seed with {baseline.loss}")
    epochs, percent = statistics.median(apart), row.difference.percent
    bound = "> " if row.difference.is_lower_bound else ""
    counts = not bound and "baseline_rising" not in row.flags
    return Cell(bound + _difference_words(epochs, percent, column.digits), (epochs, percent), notes, counts)


def _difference_words(epochs: float, percent: float, digits: int) -> str:
    return f"{wording.fixed(epochs, digits)} ({wording.fixed(percent, 1)}%)"


def _scored(
    column: PaperColumn, row: Row, summaries: Summaries, prefix: str, notes: tuple[str, ...]
) -> Cell:
    found = []
    for key in column.keys:
        values = [_value(summaries.get((row.study, seed.trial), {}), prefix + key) for seed in row.headline]
        known = [value for value in values if value is not None]
        if len(known) < len(values):
            where = "test" if prefix == "test_" else "validation"
            return missing(
                f"{row.loss} of {row.network}: {len(values) - len(known)} of {len(values)} seeds have no {key} of the "
                f"{where} split, or by several encoders"
            )
        found.append(column.scale * statistics.fmean(known))
    if column.quantity == "scored":
        return Cell(_fixed(found[0], column), (found[0],), notes)
    mean, spread = statistics.fmean(found), statistics.pstdev(found)
    return Cell(f"{_fixed(mean, column)} (±{_fixed(spread, column)})", (mean, spread), notes)


def _value(summary: Mapping[str, float], key: str) -> float | None:
    """The finite number of a key, None without one. A key ending in `*` matches by prefix; None for several matches."""
    if not key.endswith("*"):
        value = summary.get(key)
    else:
        found = [number for name, number in summary.items() if name.startswith(key[:-1])]
        value = found[0] if len(found) == 1 else None
    return value if value is not None and math.isfinite(value) else None


def _fixed(value: float, column: PaperColumn) -> str:
    return wording.fixed(value, column.digits)


def _epochs(value: Epochs, column: PaperColumn) -> str:
    return f"{'> ' if value.censored else ''}{_fixed(value.value, column)}"
