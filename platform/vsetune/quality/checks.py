"""A check: a name, its meaning, and a function that decides whether a component passes."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Generic, TypeVar

from vsetune.errors import VsetuneError

S = TypeVar("S")

_LONGEST_NOTE = 300


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
    text = " ".join(str(error).split())
    text = text if len(text) <= _LONGEST_NOTE else text[:_LONGEST_NOTE] + "..."
    return f"raises {type(error).__name__}{at}: {text or 'no further words'}"
