"""Spaces of choices and whole numbers alone: how many configurations there are, and one that has not been tried."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence

from vsetune.config.spec.base import Choices, Domain
from vsetune.config.study.cells import Cell
from vsetune.config.study.domains import Value

_MOST_TIED = 20_000
"""Combinations of settings that depend on each other, beyond which they are not counted."""


def configurations_in(cell: Cell) -> int | None:
    """How many configurations differ in a setting that has an effect; 1 where nothing is searched. None: real numbers,
    of which there is no end, or so many settings that depend on each other that the space counts as endless."""
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
    """The first that has not been tried of a finite space, looked for from one of them on, in a circle; None where all
    have. share: in [0, 1), where that one stands among them."""
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
    """Settings that have conditions or are in those of others."""
    others = {name for ways in cell.conditions.values() for way in ways for name in way}
    return [name for name in cell.domains if name in cell.conditions or name in others]


def _values(domain: Domain) -> Sequence[Value] | None:
    """None for real numbers."""
    if isinstance(domain, Choices):
        return list(dict.fromkeys(domain.choices))
    if domain.low == domain.high:
        return [int(domain.low) if domain.integer else domain.low]
    return range(int(domain.low), int(domain.high) + 1) if domain.integer else None
