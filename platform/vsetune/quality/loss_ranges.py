"""Checks of what a loss lets a study search or choose."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from vsetune.config.spec.base import Choices, Domain, Range, Spec, conditions, tunables
from vsetune.errors import ConfigError
from vsetune.quality.checks import Verdict, first_problem, not_applicable
from vsetune.quality.loss_batches import Surroundings, pairs
from vsetune.quality.loss_runs import LossSubject, in_one_line, infinite, run_steps

_FEW, _MANY = 4, 300
"""Steps after which two settings must differ: at once, or with all that takes time at its quickest."""


def has_sound_ranges(loss: LossSubject) -> Verdict:
    searched = [name for name, _ in tunables(loss.spec)]
    if not searched:
        return not_applicable("declares nothing to search")
    return first_problem((_unsound_range(loss, name) for name in searched), ", ".join(searched))


def takes_every_choice(loss: LossSubject) -> Verdict:
    return first_problem(_refused_choice(loss, name, value) for name, value in _choices(loss))


def refused_end(
    name: str, domain: Domain, resolved: Callable[..., Spec], needed: Mapping[str, Any]
) -> str | None:
    """Which end of a range the spec does not take. resolved: makes the spec of some settings. needed: set with it."""
    for end in _ends(domain):
        if (refusal := _refusal(resolved, {**needed, name: end})) is not None:
            return f"{name}: its own range holds {end}, which the spec refuses ({refusal})"
    return None


def _unsound_range(loss: LossSubject, name: str) -> str | None:
    """Why a range is refused at one end, or why it makes no difference what is drawn from it."""
    domain, needed = dict(tunables(loss.spec))[name], conditions(loss.spec).get(name, {})
    if (refused := refused_end(name, domain, loss.resolved, needed)) is not None:
        return refused
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
        "it in the formula, or say with `when` which other field it needs"
    )


def _ends(domain: Domain) -> tuple[Any, Any]:
    if isinstance(domain, Choices):
        return domain.choices[0], domain.choices[-1]
    return (int(domain.low), int(domain.high)) if domain.integer else (domain.low, domain.high)


def _eager(loss: LossSubject, first: dict[str, Any], second: dict[str, Any]) -> dict[str, Any]:
    """The other tunables where what takes its time comes soonest: counts of steps low, all else high."""
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
    except ValueError as error:
        return in_one_line(error)
    return None


def _choices(loss: LossSubject) -> Iterator[tuple[str, Any]]:
    """Every value of the fields that have few: true and false, words."""
    for name, field in loss.spec.model_fields.items():
        if name == "name":
            continue
        values = (False, True) if field.annotation is bool else getattr(field.annotation, "__args__", ())
        yield from ((name, value) for value in values if isinstance(value, (bool, str)))


def _refused_choice(loss: LossSubject, name: str, value: Any) -> str | None:
    try:
        tried = loss.surroundings(**{name: value})
    except ValueError:
        return None  # contradicts the other settings, and says so
    for surroundings in tried:
        try:
            flaw = infinite(loss.build(**{name: value}), pairs(surroundings), f"{name}: {value}, {surroundings}")
        except ConfigError:
            continue  # refused with a reason
        if flaw is not None:
            return flaw
    return None
