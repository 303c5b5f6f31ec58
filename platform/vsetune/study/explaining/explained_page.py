"""The search of a study as one self-contained HTML page: it has no scripts, makes no requests and escapes names."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from vsetune.report.axis_scale import Scale
from vsetune.report.page_templates import render
from vsetune.report.wording import fixed
from vsetune.study.explaining import history_plot, parallel_plot, slice_plots
from vsetune.study.explaining.drawn_trials import MOST_DRAWN, recall_axis, settings_text
from vsetune.study.explaining.explained import OUTCOMES, Account, ExplainedCell, ExplainedStudy, TriedTrial

BAR_WIDTH = 190
_FEW_TRIALS, _MOST_TOLD = 30, 3


@dataclass(frozen=True)
class _Segment:
    x: float
    width: float
    outcome: str


@dataclass(frozen=True)
class _Section:
    """A cell as the page shows it. anchor: its id. bar: its epochs by outcome. budget: pixel of its epoch budget, None
    where it is not known."""

    cell: ExplainedCell
    anchor: str
    lead: str
    notes: list[str]
    bar: list[_Segment]
    budget: float | None
    history: history_plot.History | None
    slices: list[slice_plots.Slice]
    parallel: parallel_plot.Parallel | None
    front: history_plot.Front | None


def to_html(explained: ExplainedStudy) -> str:
    """The whole page as text. It needs no network and no JavaScript."""
    longest = max((_length(cell.account) for cell in explained.cells), default=0.0)
    return render(
        "explained.html.j2", "vsetune.study.explaining", explained=explained, headline=_headline(explained.cells),
        outcomes=OUTCOMES, fixed=fixed, bar_width=BAR_WIDTH,
        sections=[_section(cell, number, longest) for number, cell in enumerate(explained.cells)],
        slice_plot=slice_plots, history_plot=history_plot, parallel_plot=parallel_plot,
    )


def _headline(cells: Sequence[ExplainedCell]) -> str:
    trials = sum(len(cell.trials) for cell in cells)
    return f"{_trials(trials)} in {len(cells)} cell{'' if len(cells) == 1 else 's'}."


def _section(cell: ExplainedCell, number: int, longest: float) -> _Section:
    scale = Scale(0.0, longest, 0.0, float(BAR_WIDTH))
    given = cell.account.given
    return _Section(
        cell, f"cell-{number}", _lead(cell), _notes(cell), _bar(cell.account, scale),
        None if given is None else scale(given), history_plot.history(cell), slice_plots.slices(cell),
        parallel_plot.parallel(cell), history_plot.front(cell),
    )


def _length(account: Account) -> float:
    return max(account.spent, account.given or 0.0)


def _bar(account: Account, scale: Scale) -> list[_Segment]:
    segments, before = [], 0.0
    for outcome in OUTCOMES:
        epochs = account.epochs[outcome]
        if epochs:
            segments.append(_Segment(scale(before), round(scale(before + epochs) - scale(before), 2), outcome))
            before += epochs
    return segments


def _lead(cell: ExplainedCell) -> str:
    """Epochs, budget and best trial of a cell in a few sentences."""
    if not cell.trials:
        return "No trial yet."
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
    """Notes for reading the plots of a cell."""
    notes = []
    notes += [f"{end.sentence(cell.name)}." for end in cell.range_ends]
    axis = recall_axis(cell.trials)
    if len(cell.trials) > MOST_DRAWN:
        notes.append(f"{MOST_DRAWN} of {len(cell.trials)} trials are plotted: the best, and a sample of others.")
    if axis is not None and axis.below:
        notes.append(f"{_trials(axis.below)} below {fixed(axis.low, 1)} % stand at the lower edge.")
    if cell.importances.shares and cell.importances.trials < _FEW_TRIALS:
        notes.append(f"Importances from {cell.importances.trials} trials are a hint, not a measurement.")
    breaking = _breaking(cell)
    if breaking:
        told = "; ".join(f"{trial.name}: {', '.join(trial.breaks)}" for trial in breaking[:_MOST_TOLD])
        more = f"; and {len(breaking) - _MOST_TOLD} more" if len(breaking) > _MOST_TOLD else ""
        verb = "breaks" if len(breaking) == 1 else "break"
        notes.append(f"{_trials(len(breaking))} {verb} a constraint and can be no winner ({told}{more}).")
    if cell.account.lost:
        notes.append(f"{fixed(cell.account.lost, 1)} epochs were lost to interruptions and are in no budget.")
    return notes


def _breaking(cell: ExplainedCell) -> list[TriedTrial]:
    return [trial for trial in cell.trials if trial.breaks]


def _trials(count: int) -> str:
    return f"{count} trial{'' if count == 1 else 's'}"
