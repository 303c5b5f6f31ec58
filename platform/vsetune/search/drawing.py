"""The next configuration of a cell: a pure function of the earlier trials, their outcomes, and the seed.

The given points come first, then a start phase, then the sampler's draws from the history (`sampling/` defines each
sampler). A repeated configuration would train the same trial again, with the same seed, so it is replaced: the sampler
draws twice more with other random numbers, then nearby points are tried. Draws are made in memory. Optuna's own `ask`
writes a trial, then its parameters one by one; a process that dies in between leaves a partial trial, and the resumed
study would differ from an uninterrupted one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from vsetune.config.spec.base import Choices, Domain
from vsetune.config.study.cells import Cell
from vsetune.config.study.domains import PublishedPoint, Value, clipped, tables
from vsetune.config.study.study_spec import SearchSpec
from vsetune.search.finite_spaces import configurations_in, untried
from vsetune.search.sampling.optuna_samplers import (
    EvenPoints,
    GaussianProcessDraws,
    GridDraws,
    ParzenDraws,
    RandomDraws,
)
from vsetune.search.sampling.sampler import Sample, Sampler, SearchedSpace, UnitCube, distributions_of
from vsetune.search.trial_history import TrialHistory

_AGAIN = 2
"""How often the sampler repeats a draw that equals an earlier one."""
_NEAR = 6
"""How often it is then replaced by a nearby point."""
_FIRST_STEP = 0.05
"""Standard deviation of the first nearby point, as a share of every range. It doubles with every try."""


class CellDrawing:
    """How the configurations of one cell are chosen. Each names its sampler and the history it used."""

    def __init__(self, spec: SearchSpec, cell: Cell) -> None:
        self._cell, self._size = cell, configurations_in(cell)
        self._first = first_points(spec, cell) if cell.domains else []
        self._startup = spec.start_trials + max(0, len(self._first) - spec.include_defaults)
        self._sampler = sampler_named(spec.sampler)
        self._start = sampler_named(spec.start) if self._sampler.learns else self._sampler
        space = SearchedSpace(
            cell, distributions_of(cell), cell.all_defaults() if cell.domains else {}, f"{spec.seed}/{cell.name}",
            f"{spec.seed}/{cell.network_name}/{cell.repeat}",
        )
        self._spaces = [space, *(
            replace(space, seed_name=f"{space.seed_name}/again {number}",
                    shared_seed_name=f"{space.shared_seed_name}/again {number}")
            for number in range(1, _AGAIN + 1)
        )]

    def left(self, history: TrialHistory) -> int | None:
        """How many configurations have not been sampled yet; None for an infinite space."""
        return None if self._size is None else max(0, self._size - history.distinct)

    def next(self, history: TrialHistory) -> Sample | None:
        """The configuration after `history`, which has all trials in order, refused ones included. The same history
        gives the same one.

        None: the whole space has been sampled. Where all attempts in an infinite space repeat earlier configurations,
        the last one is returned, and its reason reports the repetition.
        """
        if self.left(history) == 0:
            return None
        before: list[int] = []
        for configuration, why in self._candidates(history):
            number = history.drawn_as(configuration)
            if number is None:
                return configuration, why + _repeated(before)
            before.append(number)
        return configuration, f"{why}; {len(before)} draws, all drawn before, run again as configuration {before[-1]}"

    def _candidates(self, history: TrialHistory) -> Iterator[Sample]:
        """Candidates for the next configuration, first choice first."""
        if not self._cell.domains:
            yield {}, "nothing is searched"
            return
        if len(history) < len(self._first):
            configuration, why = self._first[len(history)]
            yield dict(configuration), why
        for space in self._spaces:
            configuration, why = self._sampled(space, history)
            yield configuration, why
            if self._sampler.insists:
                break
        yield from self._in_place_of(configuration, why, history)

    def _sampled(self, space: SearchedSpace, history: TrialHistory) -> Sample:
        """By the sampler, or by the start sampler during the start phase."""
        is_start = self._sampler.learns and self.is_start(history)
        sampler: Sampler = self._start if is_start else self._sampler
        configuration, why = sampler.draw(space, history)
        return self._cell.applying(configuration), f"start of {self._sampler.name}, {why}" if is_start else why

    def is_start(self, history: TrialHistory) -> bool:
        """Whether the next draw belongs to the start phase, of a sampler that learns."""
        return len(history) < self._startup + history.refused

    def _in_place_of(self, sampled: dict[str, Value], why: str, history: TrialHistory) -> Iterator[Sample]:
        """Points near the sampler's draw, farther away with each try, then an untried one of a finite space."""
        space, cube = self._spaces[0], UnitCube(self._spaces[0].distributions)
        chance = np.random.default_rng(space.seed_at(len(history)))
        at = cube.vector_of(space.filled(sampled))
        for doublings in range(_NEAR):
            moved = np.abs(at + _FIRST_STEP * 2**doublings * chance.normal(size=cube.width)) % 2
            near = cube.configuration_at(np.minimum(moved, 2 - moved))  # as if the ends of ranges were mirrors
            yield self._cell.applying(near), f"{why}, then near it"
        if self._size is not None:
            found = untried(self._cell, lambda each: history.drawn_as(each) is not None, share=chance.random())
            assert found is not None, "there are configurations left"
            yield found, f"{why}, then one of those left"


def _repeated(before: Sequence[int]) -> str:
    """Which earlier configurations were drawn again before a new one was found."""
    if not before:
        return ""
    those = "the one before was configuration" if len(before) == 1 else f"the {len(before)} before were configurations"
    return f"; draw {len(before) + 1}, {those} {', '.join(map(str, before))}"


def first_points(spec: SearchSpec, cell: Cell) -> list[Sample]:
    """Points in the order in which they are tried, equal ones once. Each says its source."""
    begins = [(cell.defaults(), "the papers' defaults")] if spec.include_defaults else []
    found = {_key(configuration): (configuration, why) for configuration, why in begins}
    for name in spec.points:
        for configuration, why in published_in(name, cell):
            found.setdefault(_key(configuration), (configuration, f"points: {why}"))
    return list(found.values())


def published_in(table: str, cell: Cell) -> list[Sample]:
    """The points of every row of a table that is about this cell. Settings that a row lacks stay at their defaults; a
    value outside its range is moved to the nearer end, which the source line reports."""
    found = []
    for point in tables()[table]:
        about = {name: value for name, value in point.settings.items() if name in cell.domains}
        if not about or not _is_about(point, cell):
            continue
        inside = {name: _in_domain(value, cell.domains[name]) for name, value in about.items()}
        moved = [name for name, value in about.items() if inside[name] != value]
        source = f"{point.source} ({', '.join(moved)} moved into the range)" if moved else point.source
        found.append((cell.applying({**cell.all_defaults(), **inside}), source))
    return found


def _is_about(point: PublishedPoint, cell: Cell) -> bool:
    return point.network == cell.network["name"] and point.loss in ("", cell.loss["name"])


def _in_domain(value: float, domain: Domain) -> Value:
    """For choices, the nearest number in the list, or the first choice if it has no numbers; else clipped to the
    range."""
    if not isinstance(domain, Choices):
        return clipped(value, domain)
    numbers = [each for each in domain.choices if isinstance(each, int | float) and not isinstance(each, bool)]
    return min(numbers, key=lambda each: abs(each - value)) if numbers else domain.choices[0]


def _key(configuration: dict[str, Value]) -> Sequence[tuple[str, Value]]:
    return tuple(sorted(configuration.items()))


_SAMPLERS: dict[str, type[Sampler]] = {
    kind.name: kind for kind in (
        GaussianProcessDraws, ParzenDraws, EvenPoints, RandomDraws, GridDraws,
    )
}


def sampler_named(name: str) -> Sampler:
    """A new instance; each cell has its own."""
    return _SAMPLERS[name]()
