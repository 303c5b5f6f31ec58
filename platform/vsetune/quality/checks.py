"""A check: a name, its meaning, and a function that decides whether a component passes; checks of any component."""

from __future__ import annotations

import itertools
import math
import random
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any, Generic, TypeVar

from pydantic import ValidationError

from vsetune.config.registry import name_of
from vsetune.config.spec.base import Choices, Domain, Spec, conditions, tunables
from vsetune.errors import VsetuneError, one_line

S = TypeVar("S")
SpecT = TypeVar("SpecT", bound=Spec)

_LONGEST_NOTE = 300
_INSIDE, _DRAWS = 8, 32
"""Values tried between the ends of a range, and configurations sampled from all ranges together."""


class Result(StrEnum):
    """The result of a check. NOT_APPLICABLE: the check does not fit the component, such as one that stops a gradient on
    purpose."""

    HOLDS = "holds"
    FAILS = "fails"
    NOT_APPLICABLE = "not applicable"


@dataclass(frozen=True)
class Verdict:
    """note: one line. For a failure: the expected value, the value found, and where to look."""

    result: Result
    note: str = ""


def holds(note: str = "") -> Verdict:
    return Verdict(Result.HOLDS, note)


def fails(note: str) -> Verdict:
    return Verdict(Result.FAILS, note)


def not_applicable(note: str) -> Verdict:
    return Verdict(Result.NOT_APPLICABLE, note)


def first_problem(problems: Iterable[str | None], note: str = "") -> Verdict:
    """Fails with the first problem; holds if all are None. The iterable is read only up to the first problem."""
    found = next((problem for problem in problems if problem is not None), None)
    return holds(note) if found is None else fails(found)


def unless_declared(problem: str | None, stop_gradient: str, note: str = "") -> Verdict:
    """The verdict of a check that fails where a gradient is stopped. stop_gradient: the spec's declaration, or ""."""
    if problem is None:
        return holds(note)
    if stop_gradient:
        return not_applicable(f"a gradient is stopped on purpose, as spec.py declares: {stop_gradient}")
    return fails(
        f'{problem}; a deliberate one is declared in spec.py: `stop_gradient: ClassVar[str] = "what is a constant"`'
    )


def equal_gradients(problem: str | None, stop_gradient: str) -> Verdict:
    """The verdict of autograd against finite differences. Also fails where a declared stop-gradient has no effect."""
    if problem is None and stop_gradient:
        return fails(
            f"spec.py declares a stop-gradient ({stop_gradient}), but autograd equals finite differences: no gradient "
            "is stopped; remove stop_gradient"
        )
    return unless_declared(problem, stop_gradient)


@dataclass(frozen=True)
class Finding:
    """The result of one check on one component."""

    check: str
    meaning: str
    result: Result
    note: str


@dataclass(frozen=True)
class Check(Generic[S]):
    """meaning: the property of a component that passes, in one line. judge: an exception counts as a failure."""

    name: str
    meaning: str
    judge: Callable[[S], Verdict]

    def __str__(self) -> str:
        return self.name

    def finding(self, subject: S) -> Finding:
        """Run the check. An exception of the component is a failure, in one line with its place in the files."""
        try:
            verdict = self.judge(subject)
        except Exception as error:  # the component is foreign code, which may raise anything
            verdict = fails(raised(error))
        return Finding(self.name, self.meaning, verdict.result, verdict.note)

    def require(self, subject: S) -> None:
        """For tests: AssertionError with the note if the check fails."""
        found = self.finding(subject)
        if found.result is Result.FAILS:
            raise AssertionError(f"{found.check}: {found.note}")


def raised(error: Exception) -> str:
    """`raises ValueError at loss.py:31: ...`, the innermost place outside of installed libraries and of these checks.

    A VsetuneError is returned as its message, which names the place and the fix.
    """
    if isinstance(error, VsetuneError):
        return " ".join(str(error).split())
    frames = [
        frame for frame in traceback.extract_tb(error.__traceback__)
        if "site-packages" not in frame.filename and Path(frame.filename).parent != Path(__file__).parent
    ]
    at = f" at {Path(frames[-1].filename).name}:{frames[-1].lineno}" if frames else ""
    return f"raises {type(error).__name__}{at}: {one_line(error, most=_LONGEST_NOTE)}"


@dataclass(frozen=True)
class Subject(Generic[SpecT]):
    """A component under check. settings: fields that differ from their defaults."""

    spec: type[SpecT]
    settings: Mapping[str, Any] = field(default_factory=dict)

    def resolved(self, **changes: Any) -> SpecT:
        """The spec with all its values. ValidationError for invalid values."""
        return self.spec.model_validate({"name": name_of(self.spec), **self.settings, **changes})

    def inside(self, name: str) -> Iterator[dict[str, Any]]:
        """The settings for each of the values inside the range of a field, with those that it needs to matter."""
        domain, needed = dict(tunables(self.spec))[name], conditions(self.spec).get(name, {})
        yield from ({**needed, name: value} for value in _values_inside(domain))

    def refusal(self, settings: Mapping[str, Any]) -> str | None:
        """Why the spec refuses these settings; None if it takes them."""
        try:
            self.resolved(**settings)
        except ValidationError as error:
            return "; ".join(dict.fromkeys(each["msg"].removeprefix("Value error, ") for each in error.errors()))
        except ValueError as error:
            return one_line(error)
        return None


def described(subject: Subject[Any], **facts: str) -> Verdict:
    """facts: the class attributes that its spec must have, with their meaning."""
    return first_problem(_undescribed(subject.spec, facts), subject.spec.source)


def _undescribed(spec: type[Any], facts: Mapping[str, str]) -> Iterator[str | None]:
    for fact, meaning in facts.items():
        yield None if getattr(spec, fact, "") else f"spec.py: {fact} is missing, need {meaning}"
    has_docstring = bool((vars(spec).get("__doc__") or "").strip())
    yield None if has_docstring else "spec.py: the class has no docstring, need one line that describes it"
    for name, field_ in spec.model_fields.items():
        is_missing = name != "name" and not field_.description
        yield f"spec.py: {name} has no description, need its meaning and unit" if is_missing else None


def sound_ranges(subject: Subject[Any], *problems_of: Callable[[Any, str], str | None]) -> Verdict:
    """All of every searched range is valid. problems_of: further checks, each of one searched field."""
    searched = [name for name, _ in tunables(subject.spec)]
    if not searched:
        return not_applicable("declares nothing to search")
    further = (problem_of(subject, name) for problem_of in problems_of for name in searched)
    return first_problem(itertools.chain(_refused_values(subject), further), ", ".join(searched))


def _refused_values(subject: Subject[Any]) -> Iterator[str]:
    """Problems with values of its own ranges that a spec refuses: of single settings with the others at their defaults,
    and of configurations sampled from all ranges."""
    searched, needed = dict(tunables(subject.spec)), conditions(subject.spec)
    for name, domain in searched.items():
        for value in (*ends_of(domain), *_values_inside(domain)):
            if (refusal := subject.refusal({**needed.get(name, {}), name: value})) is not None:
                yield f"{name}: its own range holds {_shown(value)}, which the spec refuses ({refusal})"
                break
    chance = random.Random(0)
    drawn = [{name: _value_at(domain, chance.random()) for name, domain in searched.items()} for _ in range(_DRAWS)]
    refusals = [(each, refusal) for each in drawn if (refusal := subject.refusal(each)) is not None]
    if len(refusals) > _DRAWS // 2:
        values = ", ".join(f"{name} {_shown(value)}" for name, value in refusals[0][0].items())
        yield (
            f"{len(refusals)} of {_DRAWS} configurations sampled from all ranges together are refused, such as "
            f"{values} ({refusals[0][1]}); narrow the ranges until their values fit each other"
        )


def ends_of(domain: Domain) -> tuple[Any, Any]:
    """The ends of a range; the first and the last choice."""
    if isinstance(domain, Choices):
        return domain.choices[0], domain.choices[-1]
    return (int(domain.low), int(domain.high)) if domain.integer else (domain.low, domain.high)


def _values_inside(domain: Domain) -> Sequence[Any]:
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


def _shown(value: Any) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)
