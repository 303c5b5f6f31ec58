"""The history of a nightly sweep: one checked file per night, the accepted changes, and the reports."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import date as Day
from pathlib import Path
from typing import Any, TypeVar
from uuid import uuid4

from pydantic import TypeAdapter, ValidationError

from vsetune.errors import DataError, Overtaken, StorageError, StudyConflict, one_line
from vsetune.home.addresses import join
from vsetune.home.heartbeat import Heartbeat
from vsetune.home.home_files import find_in_home, keep_in_home, versions_in, write
from vsetune.home.locks import take_lock
from vsetune.home.paths import home, home_variable, remote_place
from vsetune.home.s3 import ObjectChanged
from vsetune.home.whole_files import (
    make_folder,
    read_json,
    readable_json,
    write_json,
    write_whole,
)
from vsetune.nightly.night import Night, NightReport
from vsetune.nightly.nightly_spec import WRONG_OPTION

_NIGHTS, _REPORTS, _ACCEPTED, _LOCK, _HEARTBEAT = "nights", "reports", "accepted.json", "lock", "heartbeat.json"
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

    def covers(self, cell: str | None, measure: str | None) -> bool:
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
        self._versions: dict[str, str] | None = None
        """Of the files under a remote home, as this process knows them."""

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
            heartbeat = Heartbeat(
                join(place, _HEARTBEAT), f"nightly {self.folder.name}", on_lost=self.problems.append
            )
            try:
                self.fetch()
                yield
            finally:
                heartbeat.release()

    def fetch(self) -> None:
        """Fetch files under a remote home that are missing or outdated here. StorageError."""
        self._versions = versions_in(self.folder)
        for name in self._versions or ():
            if name != _HEARTBEAT and ".." not in name.split("/"):
                find_in_home(self.folder / name)

    def nights(self) -> list[Night]:
        """All nights, oldest first. A night that cannot be read is left out, with a line in `problems`."""
        found = []
        for file in (self.folder / _NIGHTS).glob("*.json"):
            try:
                found.append(_night_in(file))
            except DataError as error:
                self.problems.append(f"{error}; it counts for nothing")
        return sorted(found, key=lambda night: night.date)

    def keep(self, night: Night) -> None:
        """Write a night, replacing one of the same date. StorageError when it cannot be stored."""
        make_folder(self.folder / _NIGHTS)
        self._write(self._night_file(night.date), {"format": FORMAT} | asdict(night))

    def require_readable(self, date: str) -> None:
        """DataError where the night of an ISO date exists but cannot be read: it must not be overwritten."""
        if (file := self._night_file(date)).exists():
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
        plain = readable_json({"format": FORMAT} | asdict(report))
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
            plain = read_json(file, most_bytes=_NIGHT_BYTES)
            return None if plain is None else _content_of(plain, file, _REPORT, "report")
        except (DataError, StorageError) as error:
            self.problems.append(str(error))
            return None

    def _night_file(self, date: str) -> Path:
        return self.folder / _NIGHTS / f"{date}.json"

    def _write(self, file: Path, plain: Any) -> None:
        """Write a file of the history. StorageError; Overtaken when another machine has written it meanwhile."""
        content = readable_json(plain)
        if self._versions is None:
            self._versions = versions_in(self.folder)
        if self._versions is not None:
            name = file.relative_to(self.folder).as_posix()
            known = self._versions.get(name)
            try:
                self._versions[name] = write(file, content, if_absent=known is None, if_unchanged=known)
            except ObjectChanged as error:
                raise Overtaken(
                    "VSE-G017", "{file}: another machine has written it meanwhile; repeat the command", file=file
                ) from error
        write_whole(file, content, durable=True)


FORMAT = 1
"""Format of nights and reports. Files with another format were written by another version of vsetune."""
_NIGHT, _REPORT = TypeAdapter(Night), TypeAdapter(NightReport)


def _night_in(file: Path) -> Night:
    """The night in a file. DataError, in one line, when its content is not a valid night of its date."""
    night = _content_of(read_json(file, most_bytes=_NIGHT_BYTES), file, _NIGHT, "night")
    if night.date != file.stem or not is_date(night.date):
        raise DataError(
            "VSE-G016", "{file}: contains the night of {date}; two nights have one date", file=file, date=night.date
        )
    return night


def _content_of(plain: Any, file: Path, kind: TypeAdapter[ContentT], name: str) -> ContentT:
    """The content of a file as a night or a report. DataError, in one line, when it is neither."""
    given = plain.get("format") if isinstance(plain, dict) else type(plain).__name__
    if isinstance(given, int) and given > FORMAT:
        raise DataError(
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
        raise DataError(
            "VSE-G014", "{file}: is no {kind} of format {format} ({reason})", file=file, kind=name, format=FORMAT,
            reason=first_of(error),
        ) from error


def is_date(text: str) -> bool:
    """Whether it is an ISO day such as 2026-01-31."""
    try:
        return Day.fromisoformat(text).isoformat() == text
    except ValueError:
        return False


def first_of(error: ValidationError) -> str:
    """The first error, with its key, in one line."""
    first = error.errors(include_url=False)[0]
    where = ".".join(map(str, first["loc"]))
    return one_line(f"{where}: {first['msg']}" if where else first["msg"])
