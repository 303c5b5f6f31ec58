"""What to try next in a cell: a pure function of what was tried, how it went, and the seed.

First come the points that are given, then a start, then what the sampler makes of the history; how it draws stands in
`sampling/`. Draws are made in memory. Optuna's own `ask` writes a trial, then its parameters one by one; a process that
dies in between leaves half a trial, and a resumed study would go another way than an undisturbed one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.trial import FrozenTrial

from vsetune.config.spec.base import Choices, Domain
from vsetune.config.study.cells import Cell
from vsetune.config.study.domains import Value
from vsetune.config.study.study_spec import SearchSpec
from vsetune.search.sampling.grid import uncovered
from vsetune.search.sampling.points import first_points
from vsetune.search.sampling.sampler import Draw, SearchedSpace
from vsetune.search.sampling.sampler_choice import sampler_named
from vsetune.search.trial_history import REFUSED, TAUGHT, TrialHistory

__all__ = [
    "REFUSED", "TAUGHT", "CellDrawing", "Value", "distribution_of", "distributions_of", "draw", "gaps_of",
    "is_whole", "startup_of",
]


class CellDrawing:
    """How the configurations of one cell are chosen. Every draw says which sampler made it and from what."""

    def __init__(self, spec: SearchSpec, cell: Cell) -> None:
        self._cell = cell
        self._first = first_points(spec, cell) if cell.domains else []
        self._startup = startup_of(spec) + max(0, len(self._first) - spec.include_defaults)
        self._sampler = sampler_named(spec.sampler)
        self._start = sampler_named(spec.start) if self._sampler.learns else self._sampler
        self._space = SearchedSpace(
            cell, distributions_of(cell), cell.all_defaults() if cell.domains else {}, f"{spec.seed}/{cell.name}",
            spec.configurations, len(self._first),
        )

    @property
    def given(self) -> int:
        """Configurations of the papers, which come before any is drawn."""
        return len(self._first)

    def gaps(self) -> str:
        """Where a grid does not cover the space, in one line; else empty."""
        gaps = uncovered(self._space) if self._sampler.name == "grid" and self._cell.domains else ""
        return gaps and f"search: cell {self._cell.name}: {gaps}"

    def next(self, history: TrialHistory) -> Draw:
        """After these whole trials, refused ones included, in order. The same history gives the same draw."""
        number = len(history)
        if not self._cell.domains:
            return Draw({}, "nothing is searched")
        if history.own < len(self._first):
            configuration, why = self._first[history.own]
            return Draw(dict(configuration), why)
        if self._sampler.learns and number < self._startup + history.refused:
            drawn = self._start.draw(self._space, history)
            drawn = replace(drawn, why=f"start of {self._sampler.name}, {drawn.why}")
        else:
            drawn = self._sampler.draw(self._space, history)
        return replace(drawn, configuration=self._cell.applying(drawn.configuration))


def draw(spec: SearchSpec, cell: Cell, history: Sequence[FrozenTrial]) -> dict[str, Value]:
    """The next configuration of a cell after this history (whole trials, refused ones included, in order)."""
    return CellDrawing(spec, cell).next(TrialHistory(history)).configuration


def gaps_of(spec: SearchSpec, cell: Cell) -> str:
    """Why a search cannot come everywhere in a cell, in one line; empty for all but a grid larger than its budget."""
    return CellDrawing(spec, cell).gaps()


def startup_of(spec: SearchSpec) -> int:
    """How many configurations are drawn before anything is learnt from them, points of papers apart. Refused draws say
    nothing of what is good, so they end no start."""
    return max(2, min(10, spec.configurations // 3))


def is_whole(trial: FrozenTrial, cell: Cell) -> bool:
    """Whether all its parameters were drawn. Versions before 0.2 could die in the middle of asking. It may have some
    without effect, which later versions leave out."""
    if len(trial.params) == len(cell.domains):
        return trial.params.keys() == cell.domains.keys()
    needed = cell.applying({**dict.fromkeys(cell.domains, ""), **trial.params})
    return needed.keys() <= trial.params.keys() <= cell.domains.keys()


def distributions_of(cell: Cell) -> dict[str, BaseDistribution]:
    """Optuna's form of the domains of a cell."""
    return {name: distribution_of(domain) for name, domain in cell.domains.items()}


def distribution_of(domain: Domain) -> BaseDistribution:
    """Optuna's form of a domain."""
    if isinstance(domain, Choices):
        return CategoricalDistribution(domain.choices)
    if domain.integer:
        return IntDistribution(int(domain.low), int(domain.high), log=domain.log)
    return FloatDistribution(domain.low, domain.high, log=domain.log)
