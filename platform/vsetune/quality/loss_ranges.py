"""Checks of the ranges and choices that a loss offers to a study."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import NoneType
from typing import Any

from pydantic import ValidationError

from vsetune.config.spec.base import Choices, Domain, Range, Spec, conditions, kinds_of, tunables
from vsetune.errors import ConfigError
from vsetune.quality.checks import Verdict, first_problem, not_applicable
from vsetune.quality.loss_batches import LossSubject, Surroundings, in_one_line, infinite, pairs, run_steps

_FEW, _MANY = 4, 300
"""Steps within which two settings must differ: with the defaults, or with the quickest settings (`_eager`)."""
_INSIDE, _DRAWS = 8, 32
"""Values tried between the ends of a range, and configurations sampled from all ranges together."""


def has_sound_ranges(loss: LossSubject) -> Verdict:
    searched = [name for name, _ in tunables(loss.spec)]
    if not searched:
        return not_applicable("declares nothing to search")
    problems = itertools.chain(
        refused_values(loss.spec, loss.resolved), (_infinite_inside(loss, name) for name in searched),
        (_without_effect(loss, name) for name in searched),
    )
    return first_problem(problems, ", ".join(searched))


def takes_every_choice(loss: LossSubject) -> Verdict:
    return first_problem(_refused_choice(loss, name, value) for name, value in _choices(loss))


def refused_values(spec: type[Spec], resolved: Callable[..., Spec]) -> Iterator[str]:
    """Problems with values of its own ranges that a spec refuses: of single settings with the others at their defaults,
    and of configurations sampled from all ranges. resolved: makes the spec from settings."""
    searched, needed = dict(tunables(spec)), conditions(spec)
    for name, domain in searched.items():
        for value in (*_ends(domain), *values_inside(domain)):
            if (refusal := _refusal(resolved, {**needed.get(name, {}), name: value})) is not None:
                yield f"{name}: its own range holds {_shown(value)}, which the spec refuses ({refusal})"
                break
    chance = random.Random(0)
    drawn = [{name: _value_at(domain, chance.random()) for name, domain in searched.items()} for _ in range(_DRAWS)]
    refusals = [(each, refusal) for each in drawn if (refusal := _refusal(resolved, each)) is not None]
    if len(refusals) > _DRAWS // 2:
        values = ", ".join(f"{name} {_shown(value)}" for name, value in refusals[0][0].items())
        yield (
            f"{len(refusals)} of {_DRAWS} configurations sampled from all ranges together are refused, such as "
            f"{values} ({refusals[0][1]}); narrow the ranges until their values fit each other"
        )


def values_inside(domain: Domain) -> Sequence[Any]:
    """All choices, or values between the ends of a range, spread over its scale."""
    if isinstance(domain, Choices):
        return domain.choices
    golden = (math.sqrt(5) - 1) / 2
    return list(dict.fromkeys(_value_at(domain, (number * golden) % 1) for number in range(1, _INSIDE + 1)))


def _value_at(domain: Domain, share: float) -> Any:
    """The value at a fraction of a domain. share: in [0, 1), through the choices, or from the low end to the high one
    on the range's scale."""
    if isinstance(domain, Choices):
        return domain.choices[int(share * len(domain.choices))]
    turn, back = (math.log, math.exp) if domain.log else (float, float)
    value = back(turn(domain.low) + share * (turn(domain.high) - turn(domain.low)))
    return round(value) if domain.integer else min(max(value, domain.low), domain.high)


def _infinite_inside(loss: LossSubject, name: str) -> str | None:
    """A problem if a value of a range gives a loss or gradient that is not finite; None otherwise."""
    domain, needed = dict(tunables(loss.spec))[name], conditions(loss.spec).get(name, {})
    for value in values_inside(domain):
        settings = {**needed, name: value}
        for kind in loss.kinds(**settings):
            try:
                flaw = infinite(loss.build(**settings), pairs(kind), f"{name}: {value}, {kind}")
            except ConfigError:
                continue  # refused with a reason: too large for the few images of a check
            if flaw is not None:
                return flaw
    return None


def _without_effect(loss: LossSubject, name: str) -> str | None:
    """A problem if the two ends of a range give equal losses; None otherwise."""
    domain, needed = dict(tunables(loss.spec))[name], conditions(loss.spec).get(name, {})
    first, second = ({**needed, name: end} for end in _ends(domain))
    kinds, eager = loss.kinds(**needed), _eager(loss, first, second)
    tries: list[tuple[int, Surroundings, dict[str, Any]]] = [(_FEW, kind, {}) for kind in kinds]
    for steps, kind, others in [*tries, (_MANY, kinds[0], eager)]:
        try:
            traces = [run_steps(loss.build(**others, **ends), kind, range(steps)) for ends in (first, second)]
        except ConfigError:
            return None  # refused with a reason: too large for the few images of a check
        if traces[0] != traces[1]:
            return None
    return (
        f"{name}: {first[name]} and {second[name]} give the same {_MANY} losses, a search of it would be wasted; use "
        "it in the formula, or name with `when` the other field that it needs"
    )


def _ends(domain: Domain) -> tuple[Any, Any]:
    if isinstance(domain, Choices):
        return domain.choices[0], domain.choices[-1]
    return (int(domain.low), int(domain.high)) if domain.integer else (domain.low, domain.high)


def _eager(loss: LossSubject, first: dict[str, Any], second: dict[str, Any]) -> dict[str, Any]:
    """Values of the other tunables for which delayed effects appear early: integer ranges low, all others high."""
    found: dict[str, Any] = {}
    for name, domain in tunables(loss.spec):
        is_count = isinstance(domain, Range) and domain.integer
        value = _ends(domain)[0 if is_count else 1]
        tried = {**found, name: value}
        if name not in first and all(_refusal(loss.resolved, {**tried, **ends}) is None for ends in (first, second)):
            found = tried
    return found


def _refusal(resolved: Callable[..., Spec], settings: Mapping[str, Any]) -> str | None:
    try:
        resolved(**settings)
    except ValidationError as error:
        return "; ".join(dict.fromkeys(each["msg"].removeprefix("Value error, ") for each in error.errors()))
    except ValueError as error:
        return in_one_line(error)
    return None


def _shown(value: Any) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def _choices(loss: LossSubject) -> Iterator[tuple[str, Any]]:
    """Every value of fields with few values: true and false, listed words and numbers, and None where optional."""
    for name, field in loss.spec.model_fields.items():
        if name == "name":
            continue
        for kind in kinds_of(field.annotation):
            if kind is bool:
                yield from ((name, False), (name, True))
            elif kind is NoneType:
                yield name, None
            elif isinstance(kind, (bool, int, str)):
                yield name, kind


def _refused_choice(loss: LossSubject, name: str, value: Any) -> str | None:
    try:
        tried = loss.surroundings(**{name: value})
    except ValueError:
        return None  # refused with a reason: contradicts the other settings
    for surroundings in tried:
        try:
            flaw = infinite(loss.build(**{name: value}), pairs(surroundings), f"{name}: {value}, {surroundings}")
        except ConfigError:
            continue  # refused with a reason
        if flaw is not None:
            return flaw
    return None
