"""Spaces that contain only choices and whole numbers: their number of configurations, and one that is untried."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence

from vsetune.config.spec.base import Choices, Domain
from vsetune.config.study.cells import Cell
from vsetune.config.study.domains import Value

_MOST_TIED = 20_000
"""Largest number of combinations of interdependent settings that is counted."""


def configurations_in(cell: Cell) -> int | None:
    """How many configurations differ in a setting that has an effect; 1 where nothing is searched. None: the space has
    real numbers, or so many interdependent settings that it counts as infinite."""
    values = {name: _values(domain) for name, domain in cell.domains.items()}
    if any(each is None for each in values.values()):
        return None
    tied = _tied(cell)
    free = math.prod(len(each) for name, each in values.items() if each is not None and name not in tied)
    if math.prod(len(values[name] or ()) for name in tied) > _MOST_TIED:
        return None
    combinations = itertools.product(*(values[name] or () for name in tied))
    kept = {frozenset(cell.applying(dict(zip(tied, each, strict=True))).items()) for each in combinations}
    return len(kept) * free


def untried(
    cell: Cell, is_tried: Callable[[Mapping[str, Value]], bool], *, share: float
) -> dict[str, Value] | None:
    """The first untried configuration of a finite space, searched cyclically from one of them on; None when all were
    tried. share: in [0, 1), the position of that starting configuration."""
    values = {name: _values(domain) or () for name, domain in cell.domains.items()}
    total = math.prod(len(each) for each in values.values())
    start = int(share * total)
    for place in itertools.chain(range(start, total), range(start)):
        configuration = {}
        for name, of_setting in values.items():
            place, index = divmod(place, len(of_setting))
            configuration[name] = of_setting[index]
        kept = cell.applying(configuration)
        if not is_tried(kept):
            return kept
    return None


def _tied(cell: Cell) -> list[str]:
    """Settings that have conditions or occur in the conditions of others."""
    others = {name for ways in cell.conditions.values() for way in ways for name in way}
    return [name for name in cell.domains if name in cell.conditions or name in others]


def _values(domain: Domain) -> Sequence[Value] | None:
    """None for real numbers."""
    if isinstance(domain, Choices):
        return list(dict.fromkeys(domain.choices))
    if domain.low == domain.high:
        return [int(domain.low) if domain.integer else domain.low]
    return range(int(domain.low), int(domain.high) + 1) if domain.integer else None
