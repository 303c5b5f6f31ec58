"""What to try next in a cell: a pure function of what was tried, how it went, and the seed.

First come the points that are given, then a start, then what the sampler makes of the history; how it draws stands in
`sampling/`. What the cell has drawn already would train the same again, with the same seed, so it is drawn anew: twice
by the sampler, with other chances, then near what it insists on. Draws are made in memory. Optuna's own `ask` writes a
trial, then its parameters one by one; a process that dies in between leaves half a trial, and a resumed study would go
another way than an undisturbed one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.trial import FrozenTrial

from vsetune.config.spec.base import Choices, Domain
from vsetune.config.study.cells import Cell
from vsetune.config.study.domains import Value
from vsetune.config.study.study_spec import SearchSpec
from vsetune.search.finite_spaces import configurations_in, untried
from vsetune.search.sampling.grid import uncovered
from vsetune.search.sampling.points import first_points
from vsetune.search.sampling.sampler import Draw, Sampler, SearchedSpace
from vsetune.search.sampling.sampler_choice import sampler_named
from vsetune.search.sampling.unit_cube import UnitCube
from vsetune.search.trial_history import REFUSED, TAUGHT, TrialHistory

__all__ = [
    "REFUSED", "TAUGHT", "CellDrawing", "Value", "distribution_of", "distributions_of", "draw", "gaps_of",
]


_AGAIN, _NEAR, _FIRST_STEP = 2, 6, 0.05
"""How often a draw that equals an earlier one is made anew by the sampler, then near it: at first by a standard
deviation of this share of every range, by twice as much with every try."""


class CellDrawing:
    """How the configurations of one cell are chosen. Every draw says which sampler made it and from what.

    starts: settings that the configurations after the papers' points have in place of those drawn, one after another.
    """

    def __init__(self, spec: SearchSpec, cell: Cell) -> None:
        self._cell, self._size = cell, configurations_in(cell)
        self._first = first_points(spec, cell) if cell.domains else []
        self._startup = spec.start_trials + max(0, len(self._first) - spec.include_defaults)
        self._sampler = sampler_named(spec.sampler)
        self._start = sampler_named(spec.start) if self._sampler.learns else self._sampler
        space = SearchedSpace(
            cell, distributions_of(cell), cell.all_defaults() if cell.domains else {}, f"{spec.seed}/{cell.name}",
            spec.configurations, len(self._first),
        )
        again = [f"{space.seed_name}/again {number}" for number in range(1, _AGAIN + 1)]
        self._spaces = [space, *(replace(space, seed_name=name) for name in again)]
        self.starts: Sequence[Mapping[str, Value]] = ()

    def gaps(self) -> str:
        """Where a grid does not cover the space, or the space is smaller than the budget, in one line; else empty."""
        if not self._cell.domains:
            return ""
        gaps = uncovered(self._spaces[0]) if self._sampler.name == "grid" else ""
        if self._size is not None and self._size < self._spaces[0].budget:
            gaps = (
                f"the space has {self._size} configurations and the budget {self._spaces[0].budget} whole trainings: "
                f"the search ends early; search more, or lower search.configurations to {self._size}"
            )
        return gaps and f"search: cell {self._cell.name}: {gaps}"

    def left(self, history: TrialHistory) -> int | None:
        """How many configurations have not been drawn; None where there is no end to them."""
        return None if self._size is None else max(0, self._size - history.distinct)

    def next(self, history: TrialHistory) -> Draw | None:
        """After these whole trials, refused ones included, in order. The same history gives the same draw.

        None: all that the space has was drawn. Where it has no end and nothing new was found in so many draws, the
        last one all the same, which says so.
        """
        if self.left(history) == 0:
            return None
        before: list[int] = []
        for drawn in self._draws(history):
            number = history.drawn_as(drawn.configuration)
            if number is None:
                return replace(drawn, why=drawn.why + _told(before))
            before.append(number)
        why = f"{drawn.why}; {len(before)} draws, all drawn before, run again as configuration {before[-1]}"
        return replace(drawn, why=why)

    def _draws(self, history: TrialHistory) -> Iterator[Draw]:
        """What may be next, the first choice first."""
        if not self._cell.domains:
            yield Draw({}, "nothing is searched")
            return
        if history.own < len(self._first):
            configuration, why = self._first[history.own]
            yield Draw(dict(configuration), why)
        elif 0 <= (place := history.own - history.refused - len(self._first)) < len(self.starts):
            drawn = self._sampled(self._spaces[0], history)
            taken, why = {**drawn.configuration, **self.starts[place]}, f"{drawn.why}, with settings of another study"
            yield self._applied(replace(drawn, configuration=taken, why=why))
        for space in self._spaces:
            drawn = self._sampled(space, history)
            yield drawn
            if self._sampler.insists:
                break
        yield from self._in_place_of(drawn, history)

    def _sampled(self, space: SearchedSpace, history: TrialHistory) -> Draw:
        """By the sampler, or by the one that starts for it."""
        is_start = self._sampler.learns and len(history) < self._startup + history.refused
        sampler: Sampler = self._start if is_start else self._sampler
        drawn = sampler.draw(space, history)
        return self._applied(replace(drawn, why=f"start of {self._sampler.name}, {drawn.why}") if is_start else drawn)

    def _in_place_of(self, drawn: Draw, history: TrialHistory) -> Iterator[Draw]:
        """Near what the sampler insists on, farther with each try, then whatever a finite space has left. They keep the
        notes on its own draw."""
        space, cube = self._spaces[0], UnitCube(self._spaces[0].distributions)
        chance = np.random.default_rng(space.seed_at(len(history)))
        at = cube.vector_of(space.filled(drawn.configuration))
        for doublings in range(_NEAR):
            moved = np.abs(at + _FIRST_STEP * 2**doublings * chance.normal(size=cube.width)) % 2
            near = cube.configuration_at(np.minimum(moved, 2 - moved))  # as if the ends of ranges were mirrors
            yield self._applied(replace(drawn, configuration=near, why=f"{drawn.why}, then near it"))
        if self._size is not None:
            found = untried(self._cell, lambda each: history.drawn_as(each) is not None, share=chance.random())
            assert found is not None, "there are configurations left"
            yield replace(drawn, configuration=found, why=f"{drawn.why}, then one of those left")

    def _applied(self, drawn: Draw) -> Draw:
        return replace(drawn, configuration=self._cell.applying(drawn.configuration))


def _told(before: Sequence[int]) -> str:
    """Which draws went before one that is new."""
    if not before:
        return ""
    those = "the one before was configuration" if len(before) == 1 else f"the {len(before)} before were configurations"
    return f"; draw {len(before) + 1}, {those} {', '.join(map(str, before))}"


def draw(spec: SearchSpec, cell: Cell, history: Sequence[FrozenTrial]) -> dict[str, Value]:
    """The next configuration of a cell after this history (whole trials, refused ones included, in order), which has
    not drawn all of a finite space."""
    drawn = CellDrawing(spec, cell).next(TrialHistory(history, applying=cell.applying))
    assert drawn is not None, f"cell {cell.name}: all its configurations were drawn"
    return drawn.configuration


def gaps_of(spec: SearchSpec, cell: Cell) -> str:
    """Why a search cannot come everywhere in a cell, or has seen it all early, in one line; else empty."""
    return CellDrawing(spec, cell).gaps()


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
