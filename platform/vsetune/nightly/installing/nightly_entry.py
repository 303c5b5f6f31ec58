"""The content common to all kinds of entries: sweep, time of day, program, variables. No secrets."""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, tzinfo
from pathlib import Path
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from vsetune.errors import ConfigError, UsageError
from vsetune.nightly import messages
from vsetune.nightly.night import problem_at
from vsetune.nightly.nightly_spec import NightlySpec
from vsetune.storage.addresses import shown_url
from vsetune.storage.node_cache import FOLDER_VARIABLE, SIZE_VARIABLE
from vsetune.storage.paths import HOME_VARIABLE, NODE_FOLDER_VARIABLE, home, local_path, remote_home
from vsetune.study.job_package import PASSED_ON

_CLOCK = re.compile(r"([01]?\d|2[0-3]):([0-5]\d)")
_DAYS_AHEAD = 366
_UTC_NAMES = {"UTC", "Etc/UTC", "Etc/UCT", "UCT", "Zulu", "Etc/Zulu"}


@dataclass(frozen=True)
class DailyTime:
    """Every day at hour:minute by the clock of `zone`, an IANA name; None is the clock of this machine."""

    hour: int
    minute: int
    zone: str | None

    @property
    def clock(self) -> str:
        return f"{self.hour:02}:{self.minute:02}"

    @property
    def is_utc(self) -> bool:
        return self.zone in _UTC_NAMES

    @property
    def text(self) -> str:
        """For display: `02:30 Europe/Berlin`."""
        return f"{self.clock} {self.zone or 'by the clock of this machine'}"

    def cron(self) -> str:
        """The five fields of cron."""
        return f"{self.minute} {self.hour} * * *"


def daily_time(at: str, zone: str | None) -> DailyTime:
    """A daily time from `HH:MM` and an IANA name. UsageError in one line."""
    found = _CLOCK.fullmatch(at.strip())
    if found is None:
        raise UsageError(messages.WRONG_OPTION(
            option="--at", got=repr(at[:40]), need="a time of day as HH:MM, such as 02:30"
        ))
    if zone is not None:
        _zone(zone)
    return DailyTime(int(found[1]), int(found[2]), zone)


def seen_from(time: DailyTime, zone: str | None, *, start: datetime) -> DailyTime | None:
    """The same moment by the clock of another zone; None where their offset changes within a year of `start`.

    zone: None is the clock of this machine.
    """
    clocks = {_clock(moment, zone) for moment in _moments(time, start)}
    if len(clocks) != 1:
        return None
    ((hour, minute),) = clocks
    return DailyTime(hour, minute, zone)


def in_winter_utc(time: DailyTime, *, start: datetime) -> tuple[DailyTime, bool]:
    """The time in UTC outside summer time, and whether summer time moves it. Without a zone it is the time at `start`:
    the clock of this machine does not report summer time."""
    clocks = [_clock(moment, "UTC") for moment in _moments(time, start) if not _zone(time.zone).dst(moment)]
    hour, minute = clocks[0]
    return DailyTime(hour, minute, "UTC"), seen_from(time, "UTC", start=start) is None


def summer_time_notes(time: DailyTime, *, start: datetime) -> list[str]:
    """One line for each day within a year of `start` on which this time does not exist, or comes twice."""
    zone, notes = _zone(time.zone), []
    for local in _days(time, start):
        moment = local.replace(tzinfo=zone)
        if _seen(moment, time.zone) != local:
            notes.append(f"{time.text}: does not exist on {local.date()} (summer time begins); that night starts at "
                         "another time or not at all")
        elif moment.utcoffset() != moment.replace(fold=1).utcoffset():
            notes.append(f"{time.text}: comes twice on {local.date()} (summer time ends); the night runs once, a "
                         "second start on one date is refused")
    return notes


def _moments(time: DailyTime, start: datetime) -> Iterator[datetime]:
    """The moments of a year; days on which the time does not exist are left out."""
    for local in _days(time, start):
        moment = local.replace(tzinfo=_zone(time.zone))
        if _seen(moment, time.zone) == local:
            yield moment


def _days(time: DailyTime, start: datetime) -> Iterator[datetime]:
    first = datetime(start.year, start.month, start.day, time.hour, time.minute)
    return (first + timedelta(days=day) for day in range(_DAYS_AHEAD))


def _clock(moment: datetime, zone: str | None) -> tuple[int, int]:
    seen = _seen(moment, zone)
    return seen.hour, seen.minute


def _seen(moment: datetime, zone: str | None) -> datetime:
    """The moment by the clock of a zone, as a naive datetime."""
    there = moment.astimezone(UTC).astimezone(None if zone is None else _zone(zone))
    return there.replace(tzinfo=None, fold=0)


def _zone(name: str | None) -> tzinfo:
    if name is None:
        return _LocalClock()
    if name in _UTC_NAMES:
        return UTC
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        need = "a name such as UTC, Europe/Berlin or America/New_York"
        raise UsageError(messages.WRONG_OPTION(option="--timezone", got=repr(name[:60]), need=need)) from error


class _LocalClock(tzinfo):
    """The clock of this machine according to the C library. The offset includes summer time; `dst` is always 0."""

    def utcoffset(self, moment: datetime | None) -> timedelta | None:
        return None if moment is None else moment.replace(tzinfo=None).astimezone().utcoffset()

    def dst(self, moment: datetime | None) -> timedelta | None:
        return timedelta(0)

    def tzname(self, moment: datetime | None) -> str | None:
        return None if moment is None else moment.replace(tzinfo=None).astimezone().tzname()


SECRETS_FILE = Path("~/.config/vsetune/nightly.env")
"""Lines NAME=value with secret passwords and addresses, written by the user and readable only by the user."""

_OF_MAIL = {f"VSETUNE_SMTP_{name}" for name in ("HOST", "PORT", "USER", "PASSWORD", "FROM")}
_VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")


@dataclass(frozen=True)
class NightlyEntry:
    """name: of the sweep. file: absolute path of its nightly.yaml. time: of the start.

    command: words that run a night from `folder`. variables: of the environment, without secrets. secrets: names of the
    variables that contain secrets. log: file for its messages on this machine.
    """

    name: str
    file: Path
    time: DailyTime
    command: Sequence[str]
    folder: Path
    variables: Mapping[str, str]
    secrets: Sequence[str]
    log: Path

    @property
    def label(self) -> str:
        """Name for units and objects, which may not contain underscores or capitals."""
        return f"vsetune-nightly-{self.name.lower().replace('_', '-')}"


def nightly_entry(spec: NightlySpec, file: Path, time: DailyTime, home_given: str | None) -> NightlyEntry:
    """An entry with the interpreter, the package and the settings of this process. ConfigError lists every problem of
    the variables. UsageError for an unprintable character."""
    name, absolute = spec.nightly, file.absolute()
    place = _home(home_given)
    variables = {**_variables(), **_of_this_machine(), HOME_VARIABLE: place}
    if os.environ.get("PYTHONPATH"):
        variables["PYTHONPATH"] = os.pathsep.join(
            str(Path(each).absolute()) for each in os.environ["PYTHONPATH"].split(os.pathsep) if each
        )
    words = [sys.executable, "-m", "vsetune.cli.entry", "nightly", "run", str(absolute)]
    folder = home() if "://" in place else Path(place)
    for text in (*words, *variables.values()):
        if not text.isprintable():
            raise UsageError(messages.UNPRINTABLE(text=ascii(text)))
    return NightlyEntry(
        name, absolute, time, words, absolute.parent, dict(sorted(variables.items())),
        _secrets(spec, variables), folder / "nightly" / name / "nightly.log",
    )


def _secrets(spec: NightlySpec, variables: Mapping[str, str]) -> list[str]:
    """Names of the variables that the report needs, and of those that appear as `${NAME}` in the sweep or in others."""
    named = {*_VARIABLE.findall(json.dumps([spec.to_plain(), *variables.values()]))}
    named |= {spec.report.webhook} if spec.report.webhook else set()
    return sorted(named | _OF_MAIL if spec.report.mail_to else named)


def _home(given: str | None) -> str:
    """The absolute home written into the entry: --home, or that of this process."""
    if given is None:
        return remote_home() or str(home())
    if given.startswith("s3://"):
        if shown_url(given) != given:
            raise ConfigError(messages.KEYS_IN_ADDRESS(address=shown_url(given)))
        return given.rstrip("/")
    try:
        return str(Path(local_path(given)).absolute())
    except ValueError as error:
        raise ConfigError(problem_at("--home", error)) from error


def _of_this_machine() -> dict[str, str]:
    """Variables for working folders, made absolute, and the cache size. ConfigError for an invalid folder."""
    given = {name: os.environ[name] for name in (SIZE_VARIABLE,) if os.environ.get(name)}
    for name in (NODE_FOLDER_VARIABLE, FOLDER_VARIABLE):
        try:
            given |= {name: str(Path(local_path(folder)).absolute())} if (folder := os.environ.get(name)) else {}
        except ValueError as error:
            raise ConfigError(problem_at(name, error)) from error
    return given


def _variables() -> dict[str, str]:
    """Variables of this shell for the places of records and data. ConfigError for values that contain a password."""
    given = {name: os.environ[name] for name in PASSED_ON if os.environ.get(name) and name != HOME_VARIABLE}
    problems: list[str] = [
        messages.PASSWORD_IN_VARIABLE(variable=name, secrets_file=SECRETS_FILE)
        for name, value in given.items() if shown_url(value) != value
    ]
    if problems:
        raise ConfigError(problems)
    return given
