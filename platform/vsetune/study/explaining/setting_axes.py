"""Positions of a setting's values along a line, linear or logarithmic as searched, or one position for each choice."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from vsetune.config.spec.base import Choices, Domain, Range
from vsetune.report.charts import nice_ticks

_STEPS = ((1.0, 2.0, 5.0), (1.0, 3.0), (1.0,))
_MORE = 2
"""Ticks beyond the requested number that still have room."""


@dataclass(frozen=True)
class SettingAxis:
    """The axis of one setting. Places are shares of its length, from 0 to 1; values outside go to its ends."""

    name: str
    domain: Domain

    def place(self, value: Any) -> float | None:
        """None for a value without a place: a text on an axis of numbers, a number up to 0 on a logarithmic axis, or an
        unknown choice."""
        if isinstance(self.domain, Choices):
            words = [text_of(choice) for choice in self.domain.choices]
            return (words.index(text_of(value)) + 0.5) / len(words) if text_of(value) in words else None
        if isinstance(value, str) or not isinstance(value, int | float) or (self.domain.log and value <= 0):
            return None
        low, high = self._turned(self.domain.low), self._turned(self.domain.high)
        return min(1.0, max(0.0, (self._turned(value) - low) / (high - low))) if high > low else 0.5

    def ticks(self, count: int) -> list[tuple[float, str]]:
        """About `count` (place, label) pairs with round numbers; every choice has one."""
        values = self.domain.choices if isinstance(self.domain, Choices) else _round_values(self.domain, count)
        return [(place, text_of(value)) for value in values if (place := self.place(value)) is not None]

    def _turned(self, value: float) -> float:
        return math.log10(value) if isinstance(self.domain, Range) and self.domain.log else value


def text_of(value: Any) -> str:
    """The value as in a study file, floats with six significant digits."""
    if isinstance(value, bool) or value is None:
        return {True: "true", False: "false", None: "null"}[value]
    return f"{value:g}" if isinstance(value, float) else str(value)


def seen_domain(values: Iterable[Any]) -> Domain:
    """The range or the choices that the values of a setting span, where its domain is not known. values: at least one.
    """
    seen = list(values)
    if all(isinstance(value, int | float) and not isinstance(value, bool) for value in seen):
        return Range(low=min(seen), high=max(seen), integer=all(isinstance(value, int) for value in seen))
    return Choices(choices=list({text_of(value): value for value in seen}.values()))


def _round_values(domain: Range, count: int) -> list[float]:
    """About `count` round numbers within the range; the ends of the range if there are fewer than two."""
    if domain.low == domain.high:
        return [domain.low]
    found = _powers(domain, count) if domain.log else nice_ticks(domain.low, domain.high, count)
    slack = 1e-9 * max(abs(domain.low), abs(domain.high))
    inside = [value for value in found if domain.low - slack <= value <= domain.high + slack]
    if domain.integer:
        inside = [value for value in inside if float(value).is_integer()]
    return inside if len(inside) > 1 else [domain.low, domain.high]


def _powers(domain: Range, count: int) -> list[float]:
    """Ticks of a logarithmic range: 1, 2 and 5 times every power of ten; in wide ranges fewer per power, or only every
    n-th power."""
    first, last = math.floor(math.log10(domain.low)), math.ceil(math.log10(domain.high))
    decades = last - first
    steps = next((steps for steps in _STEPS if len(steps) * decades <= count + _MORE), _STEPS[-1])
    return [step * 10.0**power for power in range(first, last + 1, max(1, decades // count)) for step in steps]
