"""The search of a study as one self-contained HTML page: it has no scripts, makes no requests and escapes names."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from vsetune.report.page_templates import render
from vsetune.report.wording import fixed
from vsetune.study.explaining.explained import (
    OUTCOMES,
    Account,
    ExplainedCell,
    ExplainedStudy,
    TriedTrial,
    settings_text,
)
from vsetune.study.explaining.found import findings
from vsetune.study.explaining.search_charts import MOST_PLOTTED, SearchCharts, charts_of, recall_range

_FEW_TRIALS, _MOST_NAMED = 30, 3


@dataclass(frozen=True)
class _Section:
    """A cell as the page shows it. anchor: its id. bar: (outcome, per cent of the longest bar). budget: the same share
    of its epoch budget, None where it is not known. charts: None where no trial has a result."""

    cell: ExplainedCell
    anchor: str
    lead: str
    notes: list[str]
    bar: Sequence[tuple[str, float]]
    budget: float | None
    charts: SearchCharts | None


def to_html(explained: ExplainedStudy) -> str:
    """The whole page as text. It needs no network and no JavaScript."""
    begun = [cell for cell in explained.cells if cell.trials]
    longest = max((_length(cell.account) for cell in begun), default=0.0) or 1.0
    return render(
        "explained.html.j2", "vsetune.study.explaining",
        explained=explained, fixed=fixed, found=findings(explained),
        outcomes=[each for each in OUTCOMES if any(cell.account.trials[each] for cell in begun)],
        has_budget=any(cell.account.budget for cell in begun),
        has_importances=any(cell.importances.shares for cell in begun),
        headline=f"{_trials(sum(len(cell.trials) for cell in begun))} in {len(begun)} cell{'s'[:len(begun) != 1]}.",
        sections=[_section(cell, number, longest) for number, cell in enumerate(begun)],
    )


def _section(cell: ExplainedCell, number: int, longest: float) -> _Section:
    account = cell.account
    bar = [(outcome, 100 * account.epochs[outcome] / longest) for outcome in OUTCOMES if account.epochs[outcome]]
    budget = None if account.given is None else 100 * account.given / longest
    return _Section(cell, f"cell-{number}", _lead(cell), _notes(cell), bar, budget, charts_of(cell))


def _length(account: Account) -> float:
    return max(account.spent, account.given or 0.0)


def _lead(cell: ExplainedCell) -> str:
    """Epochs, budget and best trial of a cell in a few sentences."""
    counts = ", ".join(f"{cell.account.trials[each]} {each}" for each in OUTCOMES if cell.account.trials[each])
    text = f"{_trials(len(cell.trials))} ({counts}) trained {fixed(cell.account.spent, 1)} epochs"
    budget = cell.account.budget
    if budget is not None:
        text += f" of {fixed(budget.epochs, 1)}{f' ({budget.why})' if budget.why else ''}"
        text += f"; {fixed(budget.left, 1)} are left" if budget.left else ""
    if cell.space.device_seconds is not None:
        seconds = fixed(cell.account.device_seconds, 0), fixed(cell.space.device_seconds, 0)
        text += f"; {seconds[0]} of {seconds[1]} device-seconds"
    if cell.winner is None or cell.winner.best is None:
        return f"{text}. None has a result{' that keeps the constraints' if _breaking(cell) else ''}."
    picked = "Best"
    if cell.winner.value is not None and cell.winner.value != cell.winner.best:
        picked = f"Picked for {fixed(abs(cell.winner.value), 2)} {'epochs' if cell.winner.value < 0 else 'of area'}"
    return (
        f"{text}. {picked}: M-Recall {fixed(cell.winner.best, 1)} % at epoch {fixed(cell.winner.best_epoch, 2)}, by "
        f"{cell.winner.name} with {settings_text(cell.winner)}."
    )


def _notes(cell: ExplainedCell) -> list[str]:
    """Notes for reading the charts of a cell."""
    notes = [f"{end.sentence(cell.name)}." for end in cell.range_ends]
    low, _ = recall_range(cell.trials) or (-math.inf, 0.0)
    below = sum(trial.best is not None and trial.best < low for trial in cell.trials)
    if len(cell.trials) > MOST_PLOTTED:
        notes.append(f"{MOST_PLOTTED} of {len(cell.trials)} trials are plotted: the best, and a sample of others.")
    if below:
        notes.append(f"{_trials(below)} below {fixed(low, 1)} % {'is' if below == 1 else 'are'} at the lower edge.")
    if cell.importances.shares and cell.importances.trials < _FEW_TRIALS:
        notes.append(f"Importances from {cell.importances.trials} trials are a hint, not a measurement.")
    breaking = _breaking(cell)
    if breaking:
        named = "; ".join(f"{trial.name}: {', '.join(trial.breaks)}" for trial in breaking[:_MOST_NAMED])
        more = f"; and {len(breaking) - _MOST_NAMED} more" if len(breaking) > _MOST_NAMED else ""
        verb = "breaks" if len(breaking) == 1 else "break"
        notes.append(f"{_trials(len(breaking))} {verb} a constraint and cannot be the winner ({named}{more}).")
    if cell.account.lost:
        notes.append(f"{fixed(cell.account.lost, 1)} epochs were lost to interruptions and are in no budget.")
    return notes


def _breaking(cell: ExplainedCell) -> list[TriedTrial]:
    return [trial for trial in cell.trials if trial.breaks]


def _trials(count: int) -> str:
    return f"{count} trial{'' if count == 1 else 's'}"
