"""What every drawing of a cell has in common: which trials are drawn, on which axis of M-Recall, under which words."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from vsetune.explaining_search.explained import ExplainedCell
from vsetune.explaining_search.setting_axes import text_of
from vsetune.explaining_search.tried_trials import TriedTrial
from vsetune.leaderboard.axis_scale import Scale
from vsetune.leaderboard.charts import Tick, nice_ticks
from vsetune.leaderboard.wording import fixed

MOST_DRAWN = 400
"""Trials of a cell that are drawn; a page with more marks opens slowly."""
_BEST_DRAWN = 100
_WORST_SHOWN = 2.0
"""Times the distance from the best trial to the median one, below the best: what is lower goes to the edge."""
_ROOM, _LEAST_ROOM = 0.05, 0.5
"""Above and below the trials: a share of what they span, and M-Recall in points."""


@dataclass(frozen=True)
class RecallAxis:
    """M-Recall in per cent. low, high: its ends. below: trials that lie under its low end and are drawn at the edge."""

    low: float
    high: float
    values: tuple[float, ...]
    below: int

    def scale(self, start: float, end: float) -> Scale:
        """start: pixel of the low end."""
        return Scale(self.low, self.high, start, end)

    def ticks(self, start: float, end: float) -> tuple[Tick, ...]:
        place = self.scale(start, end)
        return tuple(Tick(place(value), f"{value:g}") for value in self.values)


def recall_axis(trials: Sequence[TriedTrial]) -> RecallAxis | None:
    """Wide enough for every trial that is worth a look: a few that collapsed would press the others into one line.
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
    """Those of the trials that are drawn, in their order: all, or the best and as many others as there is room for."""
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
    """A trial in one line, for whoever points at it."""
    best = "no result" if trial.best is None or trial.best_epoch is None else (
        f"M-Recall {fixed(trial.best, 2)} % at epoch {fixed(trial.best_epoch, 2)}"
    )
    return f"{trial.name}: {best}, {trial.outcome} after {fixed(trial.epochs, 1)} epochs; {settings_text(trial)}"


def settings_text(trial: TriedTrial) -> str:
    """`loss.margin 0.2, training.learning_rate 0.0003`."""
    values = {name: value for name, value in trial.configuration.items() if name != "seed"}
    return ", ".join(f"{name} {text_of(value)}" for name, value in values.items()) or "nothing searched"
