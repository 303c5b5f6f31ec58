"""Expected errors, compared by their code and their fields, not by their wording."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from vsetune.errors import ConfigError, Problem, VsetuneError


@contextmanager
def refused(
    code: str, /, *, by: type[Exception] = VsetuneError, **fields: Any
) -> Iterator[pytest.ExceptionInfo[Exception]]:
    """The block raises an error with this code. fields: those that the test is about; compared as text."""
    with pytest.raises(by) as caught:
        yield caught
    found = problems_of(caught.value)
    assert any(fits(each, code, **fields) for each in found), (code, fields, found)


def problems_of(error: Exception) -> list[Problem]:
    """The problems that an error carries, each with its code."""
    if isinstance(error, ConfigError):
        return [each if isinstance(each, Problem) else Problem(each) for each in error.problems]
    if isinstance(error, VsetuneError):
        return [error.problem]
    return [each for each in error.args[:1] if isinstance(each, Problem)]


def fits(problem: str, code: str, /, **fields: Any) -> bool:
    """Whether a problem has this code, with these values of its fields."""
    return (
        isinstance(problem, Problem) and problem.code == code
        and {name: str(problem.fields[name]) for name in fields} == {name: str(value) for name, value in fields.items()}
    )
