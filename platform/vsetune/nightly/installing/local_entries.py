"""Entries of this machine: a line in the user's crontab, or a timer and a service of systemd."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
from datetime import datetime
from pathlib import Path

from vsetune.errors import UsageError, VsetuneError
from vsetune.nightly.installing.nightly_entry import MARK, SECRETS_FILE, DailyTime, NightlyEntry, seen_from

_LONGEST_LINE = 990
"""Characters; cron takes 1,000 with the time, and silently cuts longer lines."""


def cron_time(time: DailyTime, *, now: datetime) -> DailyTime:
    """The time by the clock of this machine, which cron uses. UsageError where summer time shifts the two differently.
    """
    if time.zone is None:
        return time
    here = seen_from(time, None, start=now)
    if here is None:
        raise UsageError(
            f"--timezone: got {time.zone}, and cron goes by the clock of this machine, which summer time moves "
            "differently; leave --timezone out, or use --as systemd, which knows time zones"
        )
    return here


def cron_block(entry: NightlyEntry, *, now: datetime) -> str:
    """The lines of one sweep. UsageError for a line too long for a crontab, and as `cron_time`."""
    here = cron_time(entry.time, now=now)
    variables = "".join(f"{name}={shlex.quote(value)} " for name, value in entry.variables.items())
    secrets = f"set -a; [ ! -r {SECRETS_FILE} ] || . {SECRETS_FILE}; set +a"
    command = (
        f"{secrets}; cd {shlex.quote(str(entry.folder))} && {variables}{entry.shell} "
        f">> {shlex.quote(str(entry.log))} 2>&1"
    ).replace("%", r"\%")  # a bare one ends the command
    line = f"{here.cron()} {command}"
    if len(line) > _LONGEST_LINE:
        raise UsageError(
            f"crontab: the line would have {len(line)} characters, need at most {_LONGEST_LINE}; shorten paths, or use "
            "--as systemd"
        )
    begin, end = _markers(entry.name)
    return f"{begin}, {MARK}: {here.clock} by the clock of this machine\n{line}\n{end}\n"


def with_block(crontab: str, name: str, block: str | None) -> str:
    """The crontab with the sweep's block replaced by `block`; None removes it.

    UsageError when the two markers are not there once each, in order: the end of the block is then unknown.
    """
    begin, end = _markers(name)
    lines = crontab.splitlines(keepends=True)
    starts = [number for number, line in enumerate(lines) if re.match(re.escape(begin) + r"\b(?![\w-])", line)]
    ends = [number for number, line in enumerate(lines) if line.strip() == end]
    if not starts and not ends:
        kept = crontab if not crontab or crontab.endswith("\n") else crontab + "\n"
        return kept + (block or "")
    if len(starts) != 1 or len(ends) != 1 or starts[0] > ends[0]:
        raise UsageError(
            f"crontab: has {len(starts)} lines `{begin}` and {len(ends)} lines `{end}`, need one of each in this "
            "order; fix it with: crontab -e"
        )
    return "".join([*lines[: starts[0]], block or "", *lines[ends[0] + 1:]])


class Crontab:
    """The user's table, through the `crontab` program."""

    def __init__(self, program: str | None = None) -> None:
        """UsageError where there is no such program."""
        found = program or shutil.which("crontab")
        if found is None:
            raise UsageError(
                "crontab: not found on this machine; install cron, use --as systemd, or see the line with --dry-run "
                "and give it to what starts jobs here"
            )
        self._program = found

    def read(self) -> str:
        """Empty where the user has none yet."""
        done = subprocess.run([self._program, "-l"], capture_output=True, text=True, check=False)
        if done.returncode == 0:
            return done.stdout
        if "no crontab" in done.stderr.lower():
            return ""
        raise VsetuneError(f"crontab -l: {_line(done.stderr)}; is this user allowed to use cron?")

    def write(self, text: str) -> None:
        """Replace the whole table. VsetuneError when cron refuses it; the old table then stays."""
        done = subprocess.run([self._program, "-"], input=text, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise VsetuneError(f"crontab: refused the new table ({_line(done.stderr)}); the old one stays")


def _markers(name: str) -> tuple[str, str]:
    return f"# BEGIN vsetune nightly {name}", f"# END vsetune nightly {name}"


def _line(text: str) -> str:
    return " ".join(text.split()) or "without a word"


_SERVICE = """\
# {mark}: one night of {name}.
# Exit codes: 0 no change, 1 regression, 2 could not run; `systemctl --user --failed` shows the last two.
[Unit]
Description=vsetune nightly {name}
Documentation=file://{file}

[Service]
Type=oneshot
WorkingDirectory={folder}
{environment}
EnvironmentFile=-%h/{secrets}
ExecStart={command}
TimeoutStopSec=180
"""
_TIMER = """\
# {mark}: every day at {text}.
# A night missed while the machine was off starts once it is on again.
[Unit]
Description=vsetune nightly {name}, every day at {text}

[Timer]
OnCalendar={calendar}
Persistent=true
AccuracySec=1min
Unit={label}.service

[Install]
WantedBy=timers.target
"""


def unit_folder() -> Path:
    """Folder in which systemd finds units of the user."""
    return Path(os.environ.get("XDG_CONFIG_HOME") or "~/.config").expanduser() / "systemd" / "user"


def systemd_units(entry: NightlyEntry) -> dict[str, str]:
    """Text by file name: the service and the timer that starts it."""
    lines = [f"Environment={_quoted(f'{name}={value}')}" for name, value in entry.variables.items()]
    service = _SERVICE.format(
        mark=MARK, name=entry.name, file=_escaped(str(entry.file)).replace(" ", "%%20"),
        folder=_escaped(str(entry.folder)), environment="\n".join(lines),
        secrets=SECRETS_FILE.as_posix().removeprefix("~/"),
        command=" ".join(_quoted(word).replace("$", "$$") for word in entry.command),
    )
    timer = _TIMER.format(
        mark=MARK, name=entry.name, text=entry.time.text, calendar=on_calendar(entry), label=entry.label
    )
    return {f"{entry.label}.service": service, f"{entry.label}.timer": timer}


def on_calendar(entry: NightlyEntry) -> str:
    """The time in systemd's format; without a zone it is by the clock of the machine."""
    zone = "UTC" if entry.time.is_utc else entry.time.zone
    return f"*-*-* {entry.time.clock}:00" + (f" {zone}" if zone else "")


def start_timer(label: str) -> None:
    """Make the user's systemd read its units and start this timer. VsetuneError with the commands to run by hand."""
    by_hand = f"run: systemctl --user daemon-reload && systemctl --user enable --now {label}.timer"
    _systemctl(["daemon-reload"], by_hand)
    _systemctl(["enable", "--now", f"{label}.timer"], by_hand)


def stop_timer(label: str) -> None:
    """Stop and disable this timer. Must be called before its files are removed."""
    _systemctl(["disable", "--now", f"{label}.timer"], f"run: systemctl --user disable --now {label}.timer")


def _systemctl(words: list[str], by_hand: str) -> None:
    program = shutil.which("systemctl")
    if program is None:
        raise VsetuneError(f"systemctl: not found, so systemd does not know of it; {by_hand}")
    done = subprocess.run([program, "--user", *words], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        reason = " ".join(done.stderr.split()) or f"exit code {done.returncode}"
        raise VsetuneError(f"systemctl --user {words[0]}: {reason}; the units are there, {by_hand}")


def _quoted(text: str) -> str:
    """A word quoted for unit files."""
    plain = _escaped(text).replace("\\", "\\\\").replace('"', '\\"')
    return f'"{plain}"'


def _escaped(text: str) -> str:
    return text.replace("%", "%%")
