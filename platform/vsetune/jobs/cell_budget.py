"""How much the search of a cell may train: epochs, the same for every cell of a study whatever it searches."""

from __future__ import annotations

import sys
from dataclasses import dataclass, replace

from vsetune.config.study.cells import Cell
from vsetune.config.study.study_spec import SearchSpec, StudySpec
from vsetune.search.finite_spaces import configurations_in

MOST_TRIALS = 8
"""Times the whole trainings of its budget, or more where trials may be stopped sooner: a search whose trials reach
their target at once comes to an end."""


@dataclass(frozen=True)
class CellBudget:
    """whole: epochs of a trial that nobody stops. committed: epochs that the trials so far come to: of stopped ones
    what they trained, any other whole, as running ones are on their way there and a failed one has had its chance.
    most: may be trained. trials: may be asked for, however little they train; in a space of choices and whole numbers
    not more than it has configurations."""

    whole: float
    committed: float
    most: float
    trials: int

    @classmethod
    def of(cls, study: StudySpec, cell: Cell, committed: float = 0.0) -> CellBudget:
        whole, most = float(cell.training["epochs"]), epochs_of_cell(study, cell)
        shortest, in_space = study.scheduler.grace_epochs, configurations_in(cell)
        trials = int(max(MOST_TRIALS, whole / shortest) * max(1.0, most / whole))
        return cls(whole, committed, most, trials if in_space is None else min(trials, in_space))

    def with_committed(self, epochs: float) -> CellBudget:
        """The same once the trials so far come to so many."""
        return replace(self, committed=epochs)

    def room(self, asked: int) -> int:
        """How many more whole trials the cell may ask for, after `asked`: one is begun where at least half of it is
        left, and finished, so that the budget is met to half a trial."""
        left = int((self.most - self.committed) / self.whole + 0.5)
        return max(0, min(left if asked else max(1, left), self.trials - asked))


def epochs_of_cell(study: StudySpec, cell: Cell) -> float:
    """What the search of a cell may train: `budget.epochs_per_cell`, or `search.configurations` whole trainings; one
    training where nothing is searched."""
    whole = float(cell.training["epochs"])
    if not cell.domains:
        return whole
    asked = study.budget.epochs_per_cell
    return study.search.configurations * whole if asked is None else asked


LEARNING_AT_ONCE = 2


def at_once(search: SearchSpec, asked: int) -> int:
    """Most trials of a cell at a time, once it has asked for so many. What runs at once was asked for without hearing
    how the others went; without a bound, many workers would spend a whole budget on one wave that has learnt nothing.
    The start learns nothing anyway, so it runs side by side; what learns goes two at a time (decision 0042). Samplers
    that learn nothing have no bound."""
    if search.at_once is not None:
        return search.at_once
    if not search.learns:
        return sys.maxsize
    return search.start_trials if asked < search.start_trials else LEARNING_AT_ONCE
