"""Shared parts of the plots of a cell: the plotted trials, the axis of M-Recall, and the text of tooltips."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from vsetune.report.axis_scale import Scale
from vsetune.report.charts import Tick, nice_ticks
from vsetune.report.wording import fixed
from vsetune.study.explaining.explained import ExplainedCell, TriedTrial
from vsetune.study.explaining.setting_axes import text_of

MOST_DRAWN = 400
"""Most trials of a cell that are plotted; a page with more marks opens slowly."""
_BEST_DRAWN = 100
_WORST_SHOWN = 2.0
"""Lowest plotted value: this multiple of the distance between best and median trial, below the best. Lower trials are
plotted at the edge."""
_ROOM, _LEAST_ROOM = 0.05, 0.5
"""Room above and below the trials: a share of their span, and at least so many points of M-Recall."""


@dataclass(frozen=True)
class RecallAxis:
    """M-Recall in per cent. low, high: ends of the axis. values: of the ticks. below: number of trials under the low
    end, which are plotted at the edge."""

    low: float
    high: float
    values: tuple[float, ...]
    below: int

    def scale(self, start: float, end: float) -> Scale:
        """The map to pixels. start, end: pixels of the low and the high end."""
        return Scale(self.low, self.high, start, end)

    def ticks(self, start: float, end: float) -> tuple[Tick, ...]:
        place = self.scale(start, end)
        return tuple(Tick(place(value), f"{value:g}") for value in self.values)


def recall_axis(trials: Sequence[TriedTrial]) -> RecallAxis | None:
    """The axis, from `_WORST_SHOWN` up to the best trial, so that a few collapsed trials do not compress the others.
    None without a result."""
    bests = [trial.best for trial in trials if trial.best is not None]
    if not bests:
        return None
    lowest = max(min(bests), max(bests) - _WORST_SHOWN * (max(bests) - median(bests)))
    room = max(_ROOM * (max(bests) - lowest), _LEAST_ROOM)
    low, high = lowest - room, max(bests) + room
    values = tuple(value for value in nice_ticks(low, high, 5) if low <= value <= high)
    return RecallAxis(low, high, values, sum(best < low for best in bests))


def drawn_trials(cell: ExplainedCell) -> list[TriedTrial]:
    """The trials to plot, in their order: all, or above `MOST_DRAWN` the best and an even selection of the others."""
    trials = list(cell.trials)
    if len(trials) <= MOST_DRAWN:
        return trials
    ranked = sorted(trials, key=lambda trial: -1.0 if trial.best is None else trial.best, reverse=True)
    best = {trial.name for trial in ranked[:_BEST_DRAWN]}
    rest = [trial for trial in trials if trial.name not in best]
    room = MOST_DRAWN - len(best)
    others = {rest[index * len(rest) // room].name for index in range(room)}
    return [trial for trial in trials if trial.name in best or trial.name in others]


def words_of(trial: TriedTrial) -> str:
    """A trial in one line, for its tooltip."""
    best = "no result" if trial.best is None or trial.best_epoch is None else (
        f"M-Recall {fixed(trial.best, 2)} % at epoch {fixed(trial.best_epoch, 2)}"
    )
    return f"{trial.name}: {best}, {trial.outcome} after {fixed(trial.epochs, 1)} epochs; {settings_text(trial)}"


def settings_text(trial: TriedTrial) -> str:
    """`loss.margin 0.2, training.learning_rate 0.0003`."""
    values = {name: value for name, value in trial.configuration.items() if name != "seed"}
    return ", ".join(f"{name} {text_of(value)}" for name, value in values.items()) or "nothing searched"
