"""A timer and a service of the user for systemd. A night missed while the machine was off starts once it is on again.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

from vsetune.errors import VsetuneError
from vsetune.nightly.installing.nightly_entry import MARK, SECRETS_FILE, NightlyEntry

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
        raise VsetuneError(f"systemctl: not found, so systemd was not told; {by_hand}")
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
