"""The history of a nightly sweep: one file per night, what was accepted, and the kept reports.

    nightly/NAME/nights/DATE.json     a `Night`
    nightly/NAME/accepted.json        where a line was moved, and why
    nightly/NAME/reports/DATE.html, DATE.md, DATE.json

With a home on object storage the same files stand there too, and whoever holds the history fetches them first.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from datetime import date as Day
from pathlib import Path
from typing import Any, Literal

from pydantic import TypeAdapter, ValidationError

from vsetune.config.spec.foreign_text import one_line
from vsetune.config.spec.paths import home, home_variable, remote_place
from vsetune.errors import DataError, StorageError, StudyConflict
from vsetune.files.locks import take_lock
from vsetune.files.whole_files import free_name, make_folder, move_in_place, read_json, readable_json, write_whole
from vsetune.nightly.night import Night
from vsetune.nightly.report import NightReport
from vsetune.object_storage.addresses import join
from vsetune.object_storage.home_files import find_in_home, keep_in_home
from vsetune.object_storage.lease import Lease
from vsetune.object_storage.s3 import listing

FORMAT = 1
"""Of the files. Another one was written by another version of vsetune."""

_DATE = re.compile(r"\d{4}-\d{2}-\d{2}")
_NIGHTS, _REPORTS, _ACCEPTED, _LOCK, _LEASE = "nights", "reports", "accepted.json", "lock", "lease.json"
_NIGHTS_IN_REPORT = 30
_NIGHT_BYTES = 64 << 20
"""A thousand first losses of each of a thousand cells."""
_REPORT_ENDINGS = ("html", "md", "json")


@dataclass(frozen=True)
class Accepted:
    """From `date` on (an ISO day) a new line begins, for one stream or for all: nights before it no longer count.

    measure: a name of `MEASURES`, `first_losses`, or None for all. cell: None for all. reason: why the change is meant.
    revision: commit of the code that accepted it. at: ISO time in UTC.
    """

    date: str
    measure: str | None
    cell: str | None
    reason: str
    revision: str
    at: str

    def __post_init__(self) -> None:
        if not is_date(self.date):
            raise ValueError(f"date: got {self.date[:40]!r}, need a day such as 2026-01-31")

    def covers(self, cell: str, measure: str) -> bool:
        """Whether it moves the line of this stream."""
        return self.cell in (None, cell) and self.measure in (None, measure)


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
    """What is read of a kept report."""

    format: Literal[1]
    rows: Sequence[_KeptRow] = ()
    headline: str = ""
    exit_code: int | None = None


_NIGHT, _REPORT, _ENTRIES = TypeAdapter(Night), TypeAdapter(_KeptReport), TypeAdapter(list[Accepted])


def nightly_folder(name: str) -> Path:
    """Where the history of a nightly sweep stands on this machine."""
    return home() / "nightly" / name


class History:
    """The nights of one sweep, as files in `folder`. Reading needs no lock; who writes is inside `held`.

    problems: what reading found wrong, one line each; a damaged night counts as none.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.problems: list[str] = []
        self._lease: Lease | None = None

    @contextmanager
    def held(self) -> Iterator[None]:
        """One process at a time, on all machines that share the home.

        StudyConflict when another one holds it. StorageError when the folder or the home cannot be written.
        """
        make_folder(self.folder)
        try:
            lock = take_lock(self.folder / _LOCK, wait_s=0)
        except BlockingIOError:
            raise StudyConflict(
                f"nightly {self.folder.name}: another process is running a night of it; wait for it or stop it"
            ) from None
        except OSError as error:
            raise StorageError(
                f"{self.folder}: cannot be written ({error.strerror}); set {home_variable()} to another folder"
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
        """For who only reads: what stands under a remote home; with a local one it is here already. StorageError."""
        if remote_place(self.folder) is not None:
            make_folder(self.folder)
            self._fetch()

    def nights(self) -> list[Night]:
        """All nights, oldest first. One that cannot be read is left out, and a line about it added to `problems`."""
        found = []
        for file in self._night_files():
            night = self._read(file)
            if night is not None:
                found.append(night)
        return sorted(found, key=lambda night: night.date)

    def night(self, date: str) -> Night | None:
        """The night of an ISO date; None where there is none or it cannot be read."""
        file = self._night_file(date)
        return self._read(file) if file.exists() else None

    def keep(self, night: Night) -> None:
        """Write a night, in place of one of the same date. StorageError when it cannot be stored."""
        make_folder(self.folder / _NIGHTS)
        self._write(self._night_file(night.date), {"format": FORMAT} | night.to_plain())

    def set_aside_damaged(self) -> list[str]:
        """Rename what cannot be read, so that it is told once; one line for each."""
        told = []
        for file in self._night_files():
            self.problems.clear()
            if self._read(file) is None:
                kept = _put_aside(file, "damaged")
                told += [f"{problem}; set aside as {kept.name}" for problem in self.problems]
        self.problems.clear()
        return told

    def accepted(self) -> list[Accepted]:
        """Where lines were moved, oldest first. DataError when the file is damaged: it must not be guessed."""
        file = self.folder / _ACCEPTED
        try:
            plain = read_json(file)
        except DataError as error:
            raise DataError(f"{error}; mend it or move it away") from error
        if plain is None:
            return []
        try:
            return _ENTRIES.validate_python(plain)
        except ValidationError as error:
            raise DataError(f"{file}: cannot read ({_first_of(error)}); mend it or move it away") from error

    def accept(self, accepted: Accepted) -> None:
        """Add one. StorageError when it cannot be stored; DataError when what is there is damaged."""
        make_folder(self.folder)
        self._write(self.folder / _ACCEPTED, [asdict(each) for each in [*self.accepted(), accepted]])

    def keep_report(self, report: NightReport, html: str, markdown: str) -> Path:
        """Write the report's page, its Markdown and its data; the page's path. StorageError."""
        make_folder(self.folder / _REPORTS)
        plain = readable_json({"format": FORMAT} | asdict(_shortened(report)))
        for ending, content in zip(_REPORT_ENDINGS, (html.encode(), markdown.encode(), plain), strict=True):
            file = self.report_file(report.date, ending)
            write_whole(file, content, durable=True)
            keep_in_home(file)
        return self.report_file(report.date, "html")

    def report_file(self, date: str, ending: str) -> Path:
        """Where the report of a date is kept; ending: `html`, `md` or `json`."""
        return self.folder / _REPORTS / f"{date}.{ending}"

    def report_plain(self, date: str) -> Mapping[str, Any] | None:
        """The kept report of a date as plain data; None where there is none or it cannot be read."""
        file = self.report_file(date, "json")
        try:
            plain: Mapping[str, Any] = json.loads(file.read_bytes())
            _REPORT.validate_python(plain)
        except FileNotFoundError:
            return None
        except ValidationError as error:
            self.problems.append(f"{file}: is no report of format {FORMAT} ({_first_of(error)})")
            return None
        except (OSError, ValueError, RecursionError) as error:
            self.problems.append(f"{file}: cannot read ({one_line(error)})")
            return None
        return plain

    def _night_file(self, date: str) -> Path:
        return self.folder / _NIGHTS / f"{date}.json"

    def _night_files(self) -> Sequence[Path]:
        return sorted(file for file in (self.folder / _NIGHTS).glob("*.json"))

    def _read(self, file: Path) -> Night | None:
        try:
            return night_of(read_json(file, most_bytes=_NIGHT_BYTES), file)
        except DataError as error:
            self.problems.append(str(error))
            return None

    def _write(self, file: Path, plain: Any) -> None:
        """StorageError, also when another machine has taken the history over."""
        if self._lease is not None:
            self._lease.check()
        write_whole(file, readable_json(plain), durable=True)
        keep_in_home(file)

    def _fetch(self) -> None:
        """What stands under the remote home and is not here as it should be. StorageError."""
        place = remote_place(self.folder)
        assert place is not None
        for url in listing(f"{place}/"):
            name = url.removeprefix(f"{place}/")
            if name != _LEASE:
                file = self.folder / name
                make_folder(file.parent)
                find_in_home(file)


def night_of(plain: Any, file: Path) -> Night:
    """A night from the content of its file. DataError, in one line, when it is none."""
    if not isinstance(plain, dict) or plain.get("format") != FORMAT:
        got = plain.get("format") if isinstance(plain, dict) else type(plain).__name__
        raise DataError(f"{file}: is no night of format {FORMAT} (got {got})")
    try:
        read = _NIGHT.validate_python(plain)
    except ValidationError as error:
        raise DataError(f"{file}: is no night ({_first_of(error)})") from error
    cells = {name: replace(cell, first_losses=tuple(cell.first_losses)) for name, cell in read.cells.items()}
    night = replace(read, cells=cells, seeds=tuple(read.seeds), problems=tuple(read.problems))
    if night.date != file.stem or not is_date(night.date):
        raise DataError(f"{file}: says that it is the night of {night.date}; two nights have one date")
    return night


def is_date(text: str) -> bool:
    """Whether it is an ISO day such as 2026-01-31."""
    try:
        return _DATE.fullmatch(text) is not None and Day.fromisoformat(text) is not None
    except ValueError:
        return False


def _first_of(error: ValidationError) -> str:
    """The first thing that is wrong, with its key."""
    first = error.errors(include_url=False)[0]
    where = ".".join(map(str, first["loc"]))
    return one_line(f"{where}: {first['msg']}" if where else first["msg"])


def _shortened(report: NightReport) -> NightReport:
    """The nights have files of their own: each report's data repeats the last of them alone."""
    rows = [
        replace(row, dates=tuple(row.dates)[-_NIGHTS_IN_REPORT:], values=tuple(row.values)[-_NIGHTS_IN_REPORT:])
        for row in report.rows
    ]
    return replace(report, rows=rows)


def _put_aside(file: Path, what: str) -> Path:
    kept = free_name(file, what)
    try:
        move_in_place(file, kept, durable=False)
    except OSError as error:
        raise StorageError(f"{file}: cannot be renamed ({error.strerror}); check the rights of its folder") from error
    return kept
