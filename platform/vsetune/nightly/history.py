"""The history of a nightly sweep: one checked file per night, the accepted changes, and the reports."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from datetime import date as Day
from pathlib import Path
from typing import Any, TypeVar
from uuid import uuid4

from pydantic import TypeAdapter, ValidationError

from vsetune.errors import DataError, Problem, StorageError, StudyConflict, one_line
from vsetune.nightly.night import Night, NightReport
from vsetune.nightly.nightly_spec import WRONG_OPTION
from vsetune.storage.addresses import join
from vsetune.storage.home_files import find_in_home, keep_in_home
from vsetune.storage.lease import Lease
from vsetune.storage.locks import take_lock
from vsetune.storage.paths import home, home_variable, remote_place
from vsetune.storage.s3 import listing
from vsetune.storage.whole_files import (
    free_name,
    make_folder,
    move_in_place,
    read_json,
    readable_json,
    write_json,
    write_whole,
)

_NIGHTS, _REPORTS, _ACCEPTED, _LOCK, _LEASE = "nights", "reports", "accepted.json", "lock", "lease.json"
_NIGHTS_IN_REPORT = 30
_NIGHT_BYTES = 64 << 20
"""Largest file of a night: room for a thousand first losses of each of a thousand cells."""
_REPORT_ENDINGS = ("html", "md", "json")
ContentT = TypeVar("ContentT")


@dataclass(frozen=True)
class Accepted:
    """An accepted change: nights before `date` (an ISO day) no longer count, for what it covers.

    measure: a name of `MEASURES`, `first_losses`, or None for all. cell: None for all. reason: why the change is
    intended. revision: commit of the code that accepted it. at: ISO time in UTC.
    """

    date: str
    measure: str | None
    cell: str | None
    reason: str
    revision: str
    at: str

    def __post_init__(self) -> None:
        if not is_date(self.date):
            raise ValueError(WRONG_OPTION(
                option="date", got=repr(self.date[:40]), need="a day such as 2026-01-31"
            ))

    def covers(self, cell: str, measure: str) -> bool:
        """Whether it is about this measure of this cell."""
        return self.cell in (None, cell) and self.measure in (None, measure)


_ENTRIES = TypeAdapter(list[Accepted])


def nightly_folder(name: str) -> Path:
    """Folder of the history of a nightly sweep on this machine."""
    return home() / "nightly" / name


def history_id(name: str) -> str:
    """Identity of the history of a nightly sweep: made when it is first asked for. StorageError."""
    file = nightly_folder(name) / "id.json"
    find_in_home(file)
    known = read_json(file)
    if not isinstance(known, str):
        known = uuid4().hex
        make_folder(file.parent)
        write_json(file, known, durable=True)
        keep_in_home(file)
    return known


class History:
    """The nights of one sweep, as files in `folder`. Reading needs no lock; writing must happen inside `held`.

    problems: errors found while reading, one line each; a damaged night is left out.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.problems: list[str] = []
        self._lease: Lease | None = None

    @contextmanager
    def held(self) -> Iterator[None]:
        """Lock the history: one process at a time, on all machines that share the home.

        StudyConflict when another process has the lock. StorageError when the folder or the home cannot be written.
        """
        make_folder(self.folder)
        try:
            lock = take_lock(self.folder / _LOCK, wait_s=0)
        except BlockingIOError:
            raise StudyConflict(
                "VSE-G010", "{what}: another process is at work on it; wait for it or stop it",
                what=f"nightly {self.folder.name}",
            ) from None
        except OSError as error:
            raise StorageError(
                "VSE-G011", "{folder}: cannot be written ({reason}); set {variable} to another folder",
                folder=self.folder, reason=error.strerror, variable=home_variable(),
            ) from error
        with lock:
            place = remote_place(self.folder)
            if place is None:
                yield
                return
            lease = Lease(join(place, _LEASE), f"nightly {self.folder.name}", on_lost=self.problems.append)
            self._lease = lease
            try:
                self._fetch()
                yield
            finally:
                self._lease = None
                lease.release()

    def fetch(self) -> None:
        """For readers: fetch the files under a remote home. With a local home there is nothing to fetch. StorageError.
        """
        if remote_place(self.folder) is not None:
            make_folder(self.folder)
            self._fetch()

    def nights(self) -> list[Night]:
        """All nights, oldest first. A night that cannot be read is left out, with a line in `problems`."""
        found = []
        for file in self._night_files():
            try:
                found.append(_night_in(file))
            except DataError as error:
                self.problems.append(str(error))
        return sorted(found, key=lambda night: night.date)

    def keep(self, night: Night) -> None:
        """Write a night, replacing one of the same date. StorageError when it cannot be stored."""
        make_folder(self.folder / _NIGHTS)
        self._write(self._night_file(night.date), {"format": FORMAT} | asdict(night))

    def set_aside_damaged(self) -> list[str]:
        """Rename damaged nights, so that each is reported once; a night of a newer version stays. Returns one line for
        each."""
        lines = []
        for file in self._night_files():
            try:
                _night_in(file)
            except NewerFormat as error:
                lines.append(f"{error}; until then it counts for nothing")
            except DataError as error:
                lines.append(f"{error}; set aside as {_set_aside(file).name}")
        self.problems.clear()
        return lines

    def require_readable(self, date: str) -> None:
        """DataError where the night of an ISO date exists but cannot be read: it must not be overwritten."""
        file = self._night_file(date)
        if file.exists():
            _night_in(file)

    def accepted(self) -> list[Accepted]:
        """The accepted changes, oldest first. DataError when the file is damaged: its content must not be guessed."""
        file, remedy = self.folder / _ACCEPTED, "fix it or move it away"
        try:
            plain = read_json(file)
            return [] if plain is None else _ENTRIES.validate_python(plain)
        except DataError as error:
            raise DataError(error.problem.worded(f"{error}; {remedy}")) from error
        except ValidationError as error:
            raise DataError(
                "VSE-G013", "{file}: cannot read ({reason}); {remedy}", file=file, reason=first_of(error),
                remedy=remedy,
            ) from error

    def accept(self, accepted: Accepted) -> None:
        """Add an accepted change. StorageError when it cannot be stored; DataError when the file is damaged."""
        make_folder(self.folder)
        self._write(self.folder / _ACCEPTED, [asdict(each) for each in [*self.accepted(), accepted]])

    def keep_report(self, report: NightReport, html: str, markdown: str) -> Path:
        """Write the report's page, its Markdown and its data; returns the page's path. StorageError."""
        make_folder(self.folder / _REPORTS)
        plain = readable_json({"format": FORMAT} | asdict(_shortened(report)))
        for ending, content in zip(_REPORT_ENDINGS, (html.encode(), markdown.encode(), plain), strict=True):
            file = self.report_file(report.date, ending)
            write_whole(file, content, durable=True)
            keep_in_home(file)
        return self.report_file(report.date, "html")

    def report_file(self, date: str, ending: str) -> Path:
        """Path of the report of a date; ending: `html`, `md` or `json`."""
        return self.folder / _REPORTS / f"{date}.{ending}"

    def report(self, date: str) -> NightReport | None:
        """The stored report of a date; None where there is none or it cannot be read."""
        file = self.report_file(date, "json")
        try:
            return _content_of(json.loads(file.read_bytes()), file, _REPORT, "report")
        except FileNotFoundError:
            return None
        except DataError as error:
            self.problems.append(str(error))
        except (OSError, ValueError, RecursionError) as error:
            self.problems.append(Problem.of(
                "VSE-G013", "{file}: cannot read ({reason}); {remedy}", file=file, reason=one_line(error),
                remedy="remove it",
            ))
        return None

    def was_judged(self, date: str) -> bool:
        """Whether the stored report of a date has verdicts."""
        report = self.report(date)
        return report is not None and bool(report.rows)

    def _night_file(self, date: str) -> Path:
        return self.folder / _NIGHTS / f"{date}.json"

    def _night_files(self) -> Sequence[Path]:
        return sorted(file for file in (self.folder / _NIGHTS).glob("*.json"))

    def _write(self, file: Path, plain: Any) -> None:
        """Write a file of the history. StorageError, also when another machine has taken over the lock."""
        if self._lease is not None:
            self._lease.check()
        write_whole(file, readable_json(plain), durable=True)
        keep_in_home(file)

    def _fetch(self) -> None:
        """Fetch files under the remote home that are missing or outdated here. StorageError."""
        place = remote_place(self.folder)
        assert place is not None
        for url in listing(f"{place}/"):
            name = url.removeprefix(f"{place}/")
            if name != _LEASE and ".." not in name.split("/"):
                file = self.folder / name
                make_folder(file.parent)
                find_in_home(file)


def _shortened(report: NightReport) -> NightReport:
    """The report with its last nights only, since the nights have files of their own."""
    rows = [
        replace(row, dates=tuple(row.dates)[-_NIGHTS_IN_REPORT:], values=tuple(row.values)[-_NIGHTS_IN_REPORT:])
        for row in report.rows
    ]
    return replace(report, rows=rows)


def _set_aside(file: Path) -> Path:
    renamed = free_name(file, "damaged")
    try:
        move_in_place(file, renamed, durable=False)
    except OSError as error:
        raise StorageError(
            "VSE-G017", "{file}: cannot be renamed or removed ({reason}); fix the permissions of its folder", file=file,
            reason=error.strerror,
        ) from error
    return renamed


FORMAT = 1
"""Format of nights and reports. Files with another format were written by another version of vsetune."""
_DATE = re.compile(r"\d{4}-\d{2}-\d{2}")
_NIGHT, _REPORT = TypeAdapter(Night), TypeAdapter(NightReport)


class NewerFormat(DataError):
    """The file was written by a newer version of vsetune. It is intact, but this version cannot read it."""


def _night_in(file: Path) -> Night:
    """The night in a file. DataError, in one line, when its content is not a valid night of its date."""
    read = _content_of(read_json(file, most_bytes=_NIGHT_BYTES), file, _NIGHT, "night")
    cells = {name: replace(cell, first_losses=tuple(cell.first_losses)) for name, cell in read.cells.items()}
    night = replace(read, cells=cells, seeds=tuple(read.seeds), problems=tuple(read.problems))
    if night.date != file.stem or not is_date(night.date):
        raise DataError(
            "VSE-G016", "{file}: contains the night of {date}; two nights have one date", file=file, date=night.date
        )
    return night


def _content_of(plain: Any, file: Path, kind: TypeAdapter[ContentT], name: str) -> ContentT:
    """The content of a file as a night or a report. DataError, in one line, when it is neither."""
    given = plain.get("format") if isinstance(plain, dict) else type(plain).__name__
    if isinstance(given, int) and given > FORMAT:
        raise NewerFormat(
            "VSE-G015", "{file}: was written by a newer version of vsetune (format {got}, this one reads {need}); "
            "update vsetune to read it", file=file, got=given, need=FORMAT,
        )
    if given != FORMAT:
        raise DataError(
            "VSE-G014", "{file}: is no {kind} of format {format} ({reason})", file=file, kind=name, format=FORMAT,
            reason=f"got {given}",
        )
    try:
        return kind.validate_python(plain)
    except ValidationError as error:
        reason = first_of(error)
        raise DataError(
            "VSE-G014", "{file}: is no {kind} of format {format} ({reason})", file=file, kind=name, format=FORMAT,
            reason=reason,
        ) from error


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
