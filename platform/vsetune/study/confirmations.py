"""Confirmations: configurations of a searched cell that run again, unpruned and with further seeds, for the board."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

from vsetune.board.selection import PAPERS, RUNNER_UP, WINNER, runner_up_of, winner_of
from vsetune.config.study.cells import Cell, Configuration, build_trial, unused_seeds
from vsetune.config.study.study_spec import StudySpec
from vsetune.records.state import StudyState
from vsetune.study.trials import PlannedTrial


@dataclass(frozen=True)
class Confirming:
    """The confirming runs of every cell. seeds: how many for each search, without the search seed; None for those of
    the study. contenders: also the runner-up and the papers' settings, not only the winner."""

    seeds: int | None = None
    contenders: bool = False

    def seeds_of(self, study: StudySpec, cell: Cell) -> list[int]:
        """First the cell's own seeds, then unused ones. A larger number extends the list of a smaller one. A cell
        without a search gets as many as all repeats of another one."""
        own = cell.seeds[1:]
        if self.seeds is None:
            return [*own]
        wanted = self.seeds if cell.domains else (self.seeds + 1) * study.search.repeats - 1
        return [*itertools.islice(itertools.chain(own, unused_seeds(study, cell)), wanted)]


@dataclass(frozen=True)
class _Contender:
    """A configuration to confirm. number: of the configuration; None if the search never asked for it."""

    roles: tuple[str, ...]
    number: int | None
    configuration: Configuration


def trial_id(cell: str, number: int | None, seed: int) -> str:
    """The name of a trial. number: of its configuration; None for the papers' settings if the search never asked for
    them."""
    return f"{cell}-papers-s{seed}" if number is None else f"{cell}-c{number:03d}-s{seed}"


def confirmations_of(
    study: StudySpec, cell: Cell, searched: Sequence[PlannedTrial], confirming: Confirming, state: StudyState
) -> list[PlannedTrial]:
    """Every confirming trial of a cell whose search is over, seed by seed. Empty if no trial of it has finished."""
    contenders = _contenders(cell, searched)
    if not confirming.contenders:
        contenders = contenders[:1]
    return [
        PlannedTrial(
            state,
            build_trial(
                study, cell, each.configuration, trial=trial_id(cell.name, each.number, seed), seed=seed,
            ),
            -1 if each.number is None else each.number, "confirm", each.configuration,
            roles=each.roles if confirming.contenders else (),
        )
        for seed in confirming.seeds_of(study, cell) for each in contenders
    ]


def _contenders(cell: Cell, searched: Sequence[PlannedTrial]) -> list[_Contender]:
    """The configurations to confirm, the winner first. A configuration with two roles is listed once."""
    trials = [trial.attempts for trial in searched if trial.attempts]
    by_name = {trial.name: trial for trial in searched}
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
