"""What every way of drawing configurations is given, and what it answers. Optuna's objects stay in this room."""

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
"""What a sampler must know of a draw later, plain data; stored with the trial, so that a resumed study knows it."""


@dataclass(frozen=True)
class SearchedSpace:
    """What a cell searches. seed_name: of the search and the cell; draws of different names have nothing in common.

    defaults: of every setting, for those that a trial has not because they had no effect in it. budget: whole trainings
    that the search may come to. given: configurations that come before any is drawn.
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
        """Of the draw that comes after so many."""
        return seed_of(f"{self.seed_name}/{number}")

    def filled(self, configuration: Mapping[str, Value]) -> dict[str, Value]:
        """With the defaults of the settings that it lacks, in the order of the space."""
        return {name: configuration.get(name, self.defaults[name]) for name in self.distributions}


@dataclass(frozen=True)
class Draw:
    """A configuration. why: which sampler drew it and what it had learnt from, one line for people."""

    configuration: dict[str, Value]
    why: str
    notes: Notes = field(default_factory=dict)


class Sampler(ABC):
    """Draws are pure functions of what was tried and of the seed: a killed study goes on as if nothing had happened.

    What an instance keeps between draws is a copy that makes it faster, and is checked against the history. One per
    cell. learns: whether draws depend on how earlier ones went; such a sampler needs a start. insists: whether it
    looks for one best point, so that another seed gives the same.
    """

    name: ClassVar[str]
    learns: ClassVar[bool] = True
    insists: ClassVar[bool] = False

    @abstractmethod
    def draw(self, space: SearchedSpace, history: TrialHistory) -> Draw:
        """The next configuration, with a value for every setting; those without effect are left out by the caller.

        history: every whole trial of the cell in order, refused draws included. Not changed.
        """


def learnt_from(history: TrialHistory) -> str:
    """How much a sampler that learns has heard of, in words."""
    ended = history.ended - history.refused
    running = len(history) - history.ended
    return f"{ended} trial{'' if ended == 1 else 's'}" + (f", {running} running" if running else "")


def seed_of(name: str) -> int:
    return int(sha256_hex(name.encode())[:8], 16)
