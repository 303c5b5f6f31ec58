"""Validation of the files of a history; errors are one line."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import date as Day
from pathlib import Path
from typing import Any, Literal

from pydantic import TypeAdapter, ValidationError

from vsetune.config.spec.foreign_text import one_line
from vsetune.errors import DataError
from vsetune.nightly.night import Night

FORMAT = 1
"""Format of nights and reports. Files with another format were written by another version of vsetune."""
_DATE = re.compile(r"\d{4}-\d{2}-\d{2}")


class NewerFormat(DataError):
    """The file was written by a newer version of vsetune. It is intact, but this version cannot read it."""


@dataclass(frozen=True)
class _KeptMeasure:
    name: str


@dataclass(frozen=True)
class _KeptRow:
    cell: str
    verdict: str
    measure: _KeptMeasure | None = None
    since: str | None = None
    change: float | None = None


@dataclass(frozen=True)
class _KeptReport:
    """The fields of a stored report that are checked."""

    format: Literal[1]
    rows: Sequence[_KeptRow] = ()
    headline: str = ""
    exit_code: int | None = None


_NIGHT, _REPORT = TypeAdapter(Night), TypeAdapter(_KeptReport)


def night_of(plain: Any, file: Path) -> Night:
    """A night from the content of its file. DataError, in one line, when the content is not a valid night."""
    _require_no_newer(plain, file)
    if not isinstance(plain, dict) or plain.get("format") != FORMAT:
        got = plain.get("format") if isinstance(plain, dict) else type(plain).__name__
        raise DataError(f"{file}: is no night of format {FORMAT} (got {got})")
    try:
        read = _NIGHT.validate_python(plain)
    except ValidationError as error:
        raise DataError(f"{file}: is no night ({first_of(error)})") from error
    cells = {name: replace(cell, first_losses=tuple(cell.first_losses)) for name, cell in read.cells.items()}
    night = replace(read, cells=cells, seeds=tuple(read.seeds), problems=tuple(read.problems))
    if night.date != file.stem or not is_date(night.date):
        raise DataError(f"{file}: says that it is the night of {night.date}; two nights have one date")
    return night


def require_report(plain: Any, file: Path) -> None:
    """DataError, in one line, when the content of a file is not a valid report."""
    _require_no_newer(plain, file)
    try:
        _REPORT.validate_python(plain)
    except ValidationError as error:
        raise DataError(f"{file}: is no report of format {FORMAT} ({first_of(error)})") from error


def is_date(text: str) -> bool:
    """Whether it is an ISO day such as 2026-01-31."""
    try:
        return _DATE.fullmatch(text) is not None and Day.fromisoformat(text) is not None
    except ValueError:
        return False


def first_of(error: ValidationError) -> str:
    """The first error, with its key, in one line."""
    first = error.errors(include_url=False)[0]
    where = ".".join(map(str, first["loc"]))
    return one_line(f"{where}: {first['msg']}" if where else first["msg"])


def _require_no_newer(plain: Any, file: Path) -> None:
    given = plain.get("format") if isinstance(plain, dict) else None
    if isinstance(given, int) and given > FORMAT:
        raise NewerFormat(
            f"{file}: was written by a newer version of vsetune (format {given}, this one reads {FORMAT}); "
            "update vsetune to read it"
        )
