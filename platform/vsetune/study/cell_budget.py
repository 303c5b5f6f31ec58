"""Budget of a cell's search, in epochs. It does not depend on the number of searched settings."""

from __future__ import annotations

import sys
from dataclasses import dataclass

from vsetune.config.study.cells import Cell
from vsetune.config.study.study_spec import SearchSpec, StudySpec
from vsetune.search.finite_spaces import configurations_in

MOST_TRIALS = 8
"""Upper bound on a cell's trials, as a multiple of the whole trainings in its budget; it is higher if trials may be
pruned earlier than after 1/8 of their epochs. It ends a search whose trials reach their target at once."""
_BROKEN_AFTER = 1.0
"""Epochs after which a trial may be pruned by a constraint of the study, whatever its stopping rule."""


@dataclass(frozen=True)
class CellBudget:
    """Budget of a cell's search. whole: epochs of a trial that is not stopped. committed: epochs of the trials so far.
    Pruned trials count the epochs they trained; running and failed trials count their full length. most: epochs that
    may be trained. trials: most trials that may be asked for, however little they train; in a finite space at most its
    number of configurations."""

    whole: float
    committed: float
    most: float
    trials: int

    @classmethod
    def of(cls, study: StudySpec, cell: Cell) -> CellBudget:
        """The budget before the first trial."""
        whole, most = float(cell.training["epochs"]), epochs_of_cell(study, cell)
        if not cell.is_trained:
            return cls(whole, 0.0, most, 1)
        shortest, in_space = study.scheduler.grace_in(whole), configurations_in(cell)
        if study.search.constraints.given:
            shortest = min(_BROKEN_AFTER, shortest)
        trials = int(max(MOST_TRIALS, whole / shortest) * max(1.0, most / whole))
        return cls(whole, 0.0, most, trials if in_space is None else min(trials, in_space))

    def room(self, asked: int) -> int:
        """How many more whole trials the cell may ask for, after `asked` trials. A trial begins if at least half of its
        epochs are left, and is then finished, so that the budget is met to within half a trial."""
        left = int((self.most - self.committed) / self.whole + 0.5) if self.whole else 0
        return max(0, min(left if asked else max(1, left), self.trials - asked))


def epochs_of_cell(study: StudySpec, cell: Cell) -> float:
    """Epochs that the search of a cell may train: `budget.epochs_per_cell`, else `search.configurations` whole
    trainings; one training if no setting is searched."""
    whole = float(cell.training["epochs"])
    if not cell.domains:
        return whole
    asked = study.budget.epochs_per_cell
    return study.search.configurations * whole if asked is None else asked


LEARNING_AT_ONCE = 2
"""Fewest trials of a cell at a time, so that a cell goes on while one of its trials is long."""


def at_once(search: SearchSpec, asked: int, places: int = 0) -> int:
    """Most trials of a cell at a time. asked: trials that it has asked for so far. places: trials that the cluster has
    room for at a time, divided by the cells that are searched.

    Trials that run at once are sampled without each other's results. Without a bound, many workers would spend a whole
    budget on one wave of trials that learns from no result. The start trials do not depend on results, so they run in
    parallel; later trials use the places there are, up to a quarter of the budget (decision 0042). Samplers that do not
    learn have no bound.
    """
    if search.at_once is not None:
        return search.at_once
    if not search.learns:
        return sys.maxsize
    if asked < search.start_trials:
        return search.start_trials
    return max(LEARNING_AT_ONCE, min(places, search.configurations // 4))
