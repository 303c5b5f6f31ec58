"""The interface of every sampler: its inputs and its result. Optuna's objects stay in this folder."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar

from optuna.distributions import BaseDistribution

from vsetune.config.study.cells import Cell
from vsetune.config.study.domains import Value
from vsetune.files.hashes import sha256_hex
from vsetune.search.trial_history import TrialHistory

Notes = Mapping[str, Any]
"""Data about a draw that the sampler needs later, plain data; stored with the trial, so that a resumed study has it."""


@dataclass(frozen=True)
class SearchedSpace:
    """The search space of a cell. seed_name: of the search and the cell; draws under different names are independent.

    defaults: of every setting, for settings that a trial lacks because they had no effect in it. budget: number of
    full-length trials that the search may cost. given: number of configurations that precede the sampled ones.
    """

    cell: Cell
    distributions: Mapping[str, BaseDistribution]
    defaults: Mapping[str, Value]
    seed_name: str
    budget: int
    given: int = 0

    @cached_property
    def seed(self) -> int:
        return seed_of(self.seed_name)

    def seed_at(self, number: int) -> int:
        """The seed of the draw that follows `number` draws."""
        return seed_of(f"{self.seed_name}/{number}")

    def filled(self, configuration: Mapping[str, Value]) -> dict[str, Value]:
        """The configuration with defaults for the settings that it lacks, in the order of the space."""
        return {name: configuration.get(name, self.defaults[name]) for name in self.distributions}


@dataclass(frozen=True)
class Draw:
    """A configuration. why: which sampler chose it and from which history, one line for people."""

    configuration: dict[str, Value]
    why: str
    notes: Notes = field(default_factory=dict)


class Sampler(ABC):
    """Draws are pure functions of the history and of the seed: a killed study continues like an uninterrupted one.

    State that an instance keeps between draws is a cache, and is checked against the history. One instance per cell.
    learns: whether draws depend on earlier outcomes; such a sampler needs a start phase. insists: whether it looks for
    one best point, so that another seed gives the same.
    """

    name: ClassVar[str]
    learns: ClassVar[bool] = True
    insists: ClassVar[bool] = False

    @abstractmethod
    def draw(self, space: SearchedSpace, history: TrialHistory) -> Draw:
        """The next configuration, with a value for every setting; the caller removes settings without effect.

        history: every trial of the cell in order, refused draws included. Not modified.
        """


def learnt_from(history: TrialHistory) -> str:
    """How many outcomes a sampler that learns has received, in words."""
    ended = history.ended - history.refused
    running = len(history) - history.ended
    return f"{ended} trial{'' if ended == 1 else 's'}" + (f", {running} running" if running else "")


def seed_of(name: str) -> int:
    return int(sha256_hex(name.encode())[:8], 16)
