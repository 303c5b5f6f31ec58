"""Ends of searched ranges, wider ranges that the setting accepts, and when a search widens its own.

`search.widen`: where the best trial so far has a setting in the outer twentieth of its range, the search widens that
range before the next draw. The wider range is stored with this draw, so a resumed search has the same ranges.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any, Literal

from vsetune.config.spec.base import Choices, Domain, Range
from vsetune.config.study.cells import Cell
from vsetune.config.study.domains import Value

FROM, UNTIL = 1 / 3, 3 / 4
"""A search may widen once this share of `search.configurations` has ended, and until this share has been sampled: later
too few trials would try the wider range."""
TIMES = 2
"""How often a range may grow."""
WIDENED = "widened"
"""Attribute of the first trial sampled after a range was widened: low and high of every setting that the search has
widened so far."""
NEAR = 0.05
"""Share of a range, on its search scale, that counts as its end. Of n values spread over a range, the outermost lies
1/(n + 1) of the range from the end. With up to 19 trials, a winner this near the end is the outermost value tried."""
_WIDER = (0.5, 0.25, 0.1, NEAR)
"""Shares of the range by which it may be widened. The largest one that the setting accepts is used."""
_SLACK = 1e-9
_FEWEST = 3
"""Fewest values, of a list or of whole numbers, that include one which is not an end."""

End = Literal["low", "high"]

Ranges = Mapping[str, Mapping[str, float]]
"""Setting -> `low` and `high`, of the settings that a search has widened."""


def with_ranges(cell: Cell, ranges: Ranges) -> Cell:
    """The cell with the ranges that its search has widened."""
    widened = {name: cell.domains[name].model_copy(update=dict(ends)) for name, ends in ranges.items()}
    return replace(cell, domains={**cell.domains, **widened})


def widened_ranges(
    cell: Cell, best: Mapping[str, Value], accepts: Callable[[Mapping[str, Value]], bool]
) -> dict[str, Range]:
    """The wider ranges of the settings of which the best configuration so far has a value at an end; lists of choices
    stay.

    cell: with the ranges searched so far. accepts: whether a trial can be made of a configuration.
    """
    found = {}
    for name, domain in cell.domains.items():
        end = near_end(domain, best[name]) if isinstance(domain, Range) and name in best else None
        if end is None:
            continue

        def is_accepted(value: Value, of: str = name) -> bool:
            return accepts({**best, of: value})

        wider = next(wider_domains(domain, end, is_accepted), None)
        if isinstance(wider, Range):
            found[name] = wider
    return found


def near_end(domain: Domain, value: Any) -> End | None:
    """The end of the domain that a value is at. None if it is at no end, and for domains without order (words,
    booleans) or without values between their ends."""
    if isinstance(value, bool | str):
        return None
    if isinstance(domain, Choices):
        numbers = _numbers(domain)
        if len(numbers) < _FEWEST or value not in (numbers[0], numbers[-1]):
            return None
        return "low" if value == numbers[0] else "high"
    if domain.low == domain.high or (domain.integer and domain.high - domain.low < _FEWEST - 1):
        return None
    low, high = _turned(domain, domain.low), _turned(domain, domain.high)
    place = (_turned(domain, value) - low) / (high - low)
    return "low" if place <= NEAR else "high" if place >= 1 - NEAR else None


def wider_domains(domain: Domain, end: End, accepts: Callable[[Value], bool]) -> Iterator[Domain]:
    """The widened domains whose new end the setting accepts, the widest first; none if it does not accept even the
    nearest new end."""
    wider: list[Domain] = (
        [_further(domain, end)] if isinstance(domain, Choices)
        else [each for each in (_wider(domain, end, by) for by in _WIDER) if each.low > 0 or not each.log]
    )
    ends = [_outermost(each, end) for each in wider]
    if ends and accepts(ends[-1]):
        yield from (each for each, value in zip(wider, ends, strict=True) if accepts(value))


def _wider(domain: Range, end: End, by: float) -> Range:
    low, high = _turned(domain, domain.low), _turned(domain, domain.high)
    reach = by * (high - low)
    beyond = low - reach if end == "low" else high + reach
    value = _outwards(math.exp(beyond) if domain.log else beyond, end, of=domain)
    if domain.integer:
        value = min(math.floor(value), domain.low - 1) if end == "low" else max(math.ceil(value), domain.high + 1)
    return domain.model_copy(update={end: float(value)})


def _outwards(value: float, end: End, *, of: Range) -> float:
    """The value rounded outwards to one digit of its distance from the end; on a log scale, to one digit of the smaller
    of that distance and the value."""
    way = abs(value - (of.low if end == "low" else of.high))
    digit = 10.0 ** math.floor(math.log10(min(way, value) if of.log else way))
    whole = math.floor(value / digit + _SLACK) if end == "low" else math.ceil(value / digit - _SLACK)
    return _plain(whole * digit)


def _further(domain: Choices, end: End) -> Choices:
    """The choices with one more beyond an end, as far from the outermost as that is from its neighbour. The distance is
    a factor if the choices are positive and unevenly spaced."""
    numbers = _numbers(domain)
    third, second, first = numbers[2::-1] if end == "low" else numbers[-3:]
    steps = abs(second - third), abs(first - second)
    is_scaled = numbers[0] > 0 and not math.isclose(*steps)
    value: int | float = _plain(first * first / second if is_scaled else 2 * first - second)
    if all(isinstance(number, int) for number in numbers):
        value = round(value)
    listed = [value, *domain.choices] if end == "low" else [*domain.choices, value]
    return Choices(choices=listed)


def _outermost(domain: Domain, end: End) -> int | float:
    if isinstance(domain, Choices):
        return _numbers(domain)[0 if end == "low" else -1]
    value = domain.low if end == "low" else domain.high
    return int(value) if domain.integer else value


def _numbers(domain: Choices) -> list[int | float]:
    """The choices in ascending order; none if one of them is not a number."""
    if any(isinstance(choice, bool | str) for choice in domain.choices):
        return []
    return sorted({choice for choice in domain.choices if not isinstance(choice, bool | str)})


def _turned(domain: Range, value: float) -> float:
    return math.log(value) if domain.log else float(value)


def _plain(value: float) -> float:
    """The value rounded to six digits, to remove rounding noise."""
    return float(f"{value:.6g}")
