"""Which configurations of a searched cell run again with further seeds, unpruned, for the numbers that are shown."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Container, Sequence
from dataclasses import dataclass

from vsetune.config.study.cells import Cell, Configuration, build_trial
from vsetune.config.study.study_spec import StudySpec
from vsetune.jobs.trial_progress import Assignment, TrialProgress
from vsetune.leaderboard.selection import PAPERS, RUNNER_UP, WINNER, runner_up_of, winner_of


@dataclass(frozen=True)
class Confirming:
    """seeds: none of them has searched. contenders: the runner-up and the papers' settings too, not only the winner."""

    seeds: tuple[int, ...]
    contenders: bool = False


class Confirmations:
    """Those of a study. A cell has them once its search is over; they stay the same from then on."""

    def __init__(
        self, study: StudySpec, confirming: Confirming, *, searched: Callable[[Cell], Sequence[TrialProgress] | None]
    ) -> None:
        """searched: the trials of a cell's search, None while it is not over."""
        self._study, self._confirming, self._searched = study, confirming, searched
        self._known: dict[str, list[Assignment]] = {}
        self._done: set[str] = set()

    def of(self, cell: Cell) -> list[Assignment]:
        """What runs again of a cell; nothing before its search is over, and where nothing of it has finished."""
        if cell.name not in self._known:
            searched = self._searched(cell)
            if searched is None:
                return []
            self._known[cell.name] = confirmations_of(self._study, cell, searched, self._confirming)
        return self._known[cell.name]

    def left(self, cell: Cell, handed_out: Container[str]) -> list[Assignment]:
        """Those of other trials than these. A cell that has none left is not looked at again."""
        if cell.name in self._done:
            return []
        left = [assignment for assignment in self.of(cell) if assignment.trial.trial not in handed_out]
        if not left and cell.name in self._known:
            self._done.add(cell.name)
        return left

    def promised(self, cell: Cell) -> int:
        """How many there will be, as far as one can say."""
        return len(self.of(cell)) or len(self._confirming.seeds)


@dataclass(frozen=True)
class _Contender:
    """number: of the configuration; None where the search never asked for it."""

    roles: tuple[str, ...]
    number: int | None
    configuration: Configuration


def further_seeds(study: StudySpec) -> Confirming:
    """What a study promises: its winners, with every seed but the one that searches."""
    return Confirming(tuple(study.seeds[1:]))


def confirming_again(study: StudySpec, seeds: int) -> Confirming:
    """So many seeds, those that the study names first, then the smallest others. Asking for more adds to the same."""
    others = (seed for seed in itertools.count() if seed not in study.seeds)
    return Confirming(tuple(itertools.islice(itertools.chain(study.seeds[1:], others), seeds)), contenders=True)


def trial_id(cell: str, number: int | None, seed: int) -> str:
    """number: None for the papers' settings of a search that never asked for them."""
    return f"{cell}-papers-s{seed}" if number is None else f"{cell}-c{number:03d}-s{seed}"


def number_of(trial: str, cell: str) -> int | None:
    """The number of the configuration in a `trial_id`; None where it has none."""
    number, _, _ = trial.removeprefix(f"{cell}-c").partition("-s")
    return int(number) if number.isdecimal() else None


def confirmations_of(
    study: StudySpec, cell: Cell, searched: Sequence[TrialProgress], confirming: Confirming
) -> list[Assignment]:
    """Every confirming trial of a cell whose search is over, seed by seed. None where no trial of it has finished."""
    contenders = _contenders(cell, searched)
    if not confirming.contenders:
        contenders = contenders[:1]
    return [
        Assignment(
            build_trial(
                study, cell, each.configuration, trial=trial_id(cell.name, each.number, seed), seed=seed,
            ),
            -1 if each.number is None else each.number, "confirm", each.configuration,
            roles=each.roles if confirming.contenders else (),
        )
        for seed in confirming.seeds for each in contenders
    ]


def _contenders(cell: Cell, searched: Sequence[TrialProgress]) -> list[_Contender]:
    """The winner first; a configuration that is two of them stands once."""
    trials = [trial.attempts() for trial in searched if trial.attempts()]
    by_name = {trial.assignment.trial.trial: trial.assignment for trial in searched}
    winner, second = winner_of(trials), runner_up_of(trials)
    if winner is None or winner.status != "finished":
        return []
    found = [(WINNER, by_name[winner.start.trial])]
    found += [(RUNNER_UP, by_name[second.start.trial])] if second is not None else []
    contenders = [_Contender((role,), each.number, each.configuration) for role, each in found]
    defaults = cell.defaults()
    for place, known in enumerate(contenders):
        if dict(known.configuration) == defaults:
            contenders[place] = _Contender((*known.roles, PAPERS), known.number, known.configuration)
            return contenders
    number = next((each.number for each in by_name.values() if dict(each.configuration) == defaults), None)
    return [*contenders, _Contender((PAPERS,), number, defaults)]
