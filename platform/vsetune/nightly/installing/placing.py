"""Installs the entry of a scheduler, or writes it for another machine. Files of other programs stay as they are."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from vsetune.errors import StorageError, UsageError, VsetuneError
from vsetune.nightly import messages
from vsetune.nightly.installing.nightly_entry import (
    SECRETS_FILE,
    DailyTime,
    NightlyEntry,
    in_winter_utc,
    seen_from,
    summer_time_notes,
)
from vsetune.storage.paths import HOME_VARIABLE
from vsetune.storage.whole_files import make_folder, write_text

if TYPE_CHECKING:
    from jinja2 import Environment


class EntryKind(StrEnum):
    """The scheduler that starts the nights."""

    CRON = "cron"
    SYSTEMD = "systemd"
    GITHUB = "github"
    KUBERNETES = "kubernetes"


MARK = "written by `vsetune nightly install`"
"""Text in every file that vsetune writes, so that no other file is overwritten or removed."""
_FILES = {
    EntryKind.CRON: ("crontab",), EntryKind.SYSTEMD: ("{}.service", "{}.timer"), EntryKind.GITHUB: ("{}.yml",),
    EntryKind.KUBERNETES: ("{}.yaml",),
}
_LONGEST_LINE = 990
"""Characters; cron takes 1,000 with the time, and silently cuts longer lines."""
_LEFT_HERE = {"PYTHONPATH", HOME_VARIABLE, "VSETUNE_LOG"}
"""Variables of this machine that do not apply to a GitHub runner, whose history is in its cache."""


@dataclass(frozen=True)
class Entry:
    """An entry and its place. output: folder for its files. None is the place where the scheduler reads it: the user's
    crontab, systemd's folder or .github/workflows; for Kubernetes the current folder. with_raycronjob: for Kubernetes.
    """

    kind: EntryKind
    content: NightlyEntry
    output: Path | None = None
    with_raycronjob: bool = True

    @property
    def files(self) -> list[Path]:
        """Its files; only the names count for the user's crontab. UsageError outside of a git repository."""
        folder = self.output or Path.cwd()
        if self.output is None and self.kind is EntryKind.SYSTEMD:
            folder = _unit_folder()
        if self.output is None and self.kind is EntryKind.GITHUB:
            folder = _repository_root(self.content.file) / ".github" / "workflows"
        return [folder / name.format(self.content.label) for name in _FILES[self.kind]]

    def is_active(self, kind: EntryKind) -> bool:
        """Whether it is of this kind and installed where the scheduler reads it."""
        return self.kind is kind and self.output is None


def entry_texts(entry: Entry) -> dict[str, str]:
    """The texts to write, by file name; for cron the lines, under the name `crontab`. UsageError."""
    now, content = datetime.now(UTC), entry.content
    if entry.kind is EntryKind.CRON:
        return {"crontab": _cron_block(content, now=now)}
    if entry.kind is EntryKind.SYSTEMD:
        return {f"{content.label}.{part}": _rendered(f"systemd.{part}.j2", content) for part in ("service", "timer")}
    path = _path_in_repository(content.file)
    if entry.kind is EntryKind.GITHUB:
        utc, moves = in_winter_utc(content.time, start=now)
        variables = {
            name: value for name, value in content.variables.items()
            if name not in _LEFT_HERE and "://" in value and not value.startswith(("sqlite:", "file:"))
        }
        text = _rendered(
            "github.yaml.j2", content, cron=utc.cron(), moves=moves, variables=variables,
            run=f"vsetune nightly run {shlex.quote(path)}",
        )
        return {f"{content.label}.yml": text}
    name = f"{content.label}.yaml"
    text = _rendered(
        "kubernetes.yaml.j2", content, path=path, ray=metadata.version("ray"), with_raycronjob=entry.with_raycronjob,
        output=str(entry.output / name if entry.output else name),
    )
    return {name: text}


def install(entry: Entry) -> list[str]:
    """Write an entry and start its timer; returns lines about the steps done and the steps left to the user.

    UsageError: the entry is not possible, or a file that vsetune did not write is in the way. VsetuneError: the system
    refuses.
    """
    texts, content = entry_texts(entry), entry.content
    if entry.is_active(EntryKind.CRON):
        make_folder(content.log.parent)
        _crontab(["-"], with_block(_crontab(["-l"]), content.name, texts["crontab"]))
        done = [f"crontab: {content.name} runs at {content.time.text}, messages go to {content.log}"]
    else:
        for file in entry.files:
            _require_ours(file)
        for file in entry.files:
            write_text(file, texts[file.name])
        done = [f"wrote {file}" for file in entry.files]
    if entry.is_active(EntryKind.SYSTEMD):
        timer = f"{content.label}.timer"
        command = f"systemctl --user daemon-reload && systemctl --user enable --now {timer}"
        _systemctl(["daemon-reload"], command)
        _systemctl(["enable", "--now", timer], command)
    return done + _left_to_do(entry) + summer_time_notes(content.time, start=datetime.now(UTC))


def remove(entry: Entry) -> list[str]:
    """Remove an entry; returns lines about the steps done. UsageError when vsetune did not write a file of it.
    VsetuneError when systemd refuses to stop the timer; its files are then removed."""
    name, label = entry.content.name, entry.content.label
    if entry.is_active(EntryKind.CRON):
        before = _crontab(["-l"])
        after = with_block(before, name, None)
        if after == before:
            return [f"crontab: has no entry of {name}; nothing to remove"]
        _crontab(["-"], after)
        return [f"crontab: {name} is removed"]
    there = [file for file in entry.files if file.exists()]
    if not there:
        return [f"{entry.files[0].parent}: has no entry of {name}; nothing to remove"]
    for file in there:
        _require_ours(file)
    refused: VsetuneError | None = None
    if entry.is_active(EntryKind.SYSTEMD):
        try:
            _systemctl(["disable", "--now", f"{label}.timer"], f"systemctl --user disable --now {label}.timer")
        except VsetuneError as error:
            refused = error
    for file in there:
        try:
            file.unlink()
        except OSError as error:
            raise StorageError(messages.FILE_STAYS(file=file, reason=error.strerror)) from error
    if refused is not None:
        raise VsetuneError(refused.problem.worded(f"{refused}; its files are removed")) from refused
    kind = "raycronjob" if entry.with_raycronjob else "cronjob"
    on_cluster = [f"on the cluster: kubectl delete {kind} {label}"] if entry.kind is EntryKind.KUBERNETES else []
    return [f"removed {file}" for file in there] + on_cluster


def _left_to_do(entry: Entry) -> list[str]:
    """Lines on the steps left to the user."""
    label, names = entry.content.label, entry.content.secrets
    if entry.kind is EntryKind.GITHUB:
        secrets = f"; give the repository the secrets {', '.join(names)}" if names else ""
        return [f"commit and push it; it can also be started by hand on GitHub, under Actions{secrets}"]
    if entry.kind is EntryKind.KUBERNETES:
        return [f"replace REGISTRY in it, then: kubectl apply -f {entry.files[0]}"]
    steps = []
    if entry.kind is EntryKind.SYSTEMD and entry.output is not None:
        steps = [f"copy them to {_unit_folder()}, then: systemctl --user enable --now {label}.timer"]
    elif entry.kind is EntryKind.SYSTEMD:
        steps = ["it runs while you are logged in; to run it always: loginctl enable-linger"]
    if names:
        lines = ", ".join(f"{name}=..." for name in names)
        steps.append(f"secrets: write {lines} into {SECRETS_FILE}, and chmod 600 it")
    return steps


def _require_ours(file: Path) -> None:
    """UsageError when the file exists and vsetune did not write it."""
    try:
        ours = not file.exists() or MARK in file.read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        remedy = "name another folder with --output"
        raise StorageError(messages.UNREADABLE(file=file, reason=error.strerror, remedy=remedy)) from error
    if not ours:
        raise UsageError(messages.NOT_OURS(file=file, mark=MARK))


def _path_in_repository(file: Path) -> str:
    """The path of the sweep's file below its repository, which the runner or the image has. UsageError without one."""
    root, real = _repository_root(file), file.resolve()
    if not real.is_relative_to(root.resolve()):
        raise UsageError(messages.OUTSIDE_REPOSITORY(file=file, root=root))
    return real.relative_to(root.resolve()).as_posix()


def _repository_root(file: Path) -> Path:
    """The top folder of the file's repository. UsageError outside of any repository."""
    for folder in file.absolute().parents:
        if (folder / ".git").exists():
            return folder
    raise UsageError(messages.NO_REPOSITORY(file=file))


def _rendered(template: str, entry: NightlyEntry, **values: Any) -> str:
    secrets_file = SECRETS_FILE.as_posix()
    return _templates().get_template(template).render(entry=entry, mark=MARK, secrets_file=secrets_file, **values)


@cache
def _templates() -> Environment:
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader("vsetune.nightly", "templates"), autoescape=False, undefined=StrictUndefined,
        trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True,
    )
    environment.filters |= {
        "tojson": json.dumps, "shell": shlex.quote, "yaml": _yaml_scalar, "unit": _unit_text, "unit_word": _unit_word,
    }
    return environment


def _yaml_scalar(text: str) -> str:
    return yaml.safe_dump([text], width=10**6).removeprefix("- ").rstrip("\n")


def _unit_text(text: object) -> str:
    """Text for systemd's unit files."""
    return str(text).replace("%", "%%")


def _unit_word(text: str) -> str:
    """A quoted word for systemd's unit files."""
    plain = _unit_text(text).replace("\\", "\\\\").replace('"', '\\"')
    return f'"{plain}"'


def cron_time(time: DailyTime, *, now: datetime) -> DailyTime:
    """The time by the clock of this machine, which cron uses. UsageError where summer time shifts the two differently.
    """
    here = time if time.zone is None else seen_from(time, None, start=now)
    if here is None:
        raise UsageError(messages.OTHER_CLOCK(zone=time.zone))
    return here


def _cron_block(entry: NightlyEntry, *, now: datetime) -> str:
    """The lines of one sweep. UsageError for a line too long for a crontab, and as `cron_time`."""
    variables = "".join(f"{name}={shlex.quote(value)} " for name, value in entry.variables.items())
    command = (
        f"set -a; [ ! -r {SECRETS_FILE} ] || . {SECRETS_FILE}; set +a; cd {shlex.quote(str(entry.folder))} && "
        f"{variables}{shlex.join(entry.command)} >> {shlex.quote(str(entry.log))} 2>&1"
    ).replace("%", r"\%")  # a bare one ends the command
    begin, end = _markers(entry.name)
    block = _rendered(
        "crontab.j2", entry, begin=begin, end=end, here=cron_time(entry.time, now=now), command=command
    )
    length = len(block.splitlines()[1])
    if length > _LONGEST_LINE:
        raise UsageError(messages.LONG_LINE(length=length, longest=_LONGEST_LINE))
    return block


def with_block(crontab: str, name: str, block: str | None) -> str:
    """The crontab with the sweep's block replaced by `block`; None removes it.

    UsageError when the two markers are not there once each, in order: the end of the block is then unknown.
    """
    begin, end = _markers(name)
    lines = crontab.splitlines(keepends=True)
    starts = [number for number, line in enumerate(lines) if re.match(re.escape(begin) + r"\b(?![\w-])", line)]
    ends = [number for number, line in enumerate(lines) if line.strip() == end]
    if not starts and not ends:
        before = crontab if not crontab or crontab.endswith("\n") else crontab + "\n"
        return before + (block or "")
    if len(starts) != 1 or len(ends) != 1 or starts[0] > ends[0]:
        raise UsageError(messages.BROKEN_BLOCK(begins=len(starts), begin=begin, ends=len(ends), end=end))
    return "".join([*lines[: starts[0]], block or "", *lines[ends[0] + 1:]])


def _markers(name: str) -> tuple[str, str]:
    return f"# BEGIN vsetune nightly {name}", f"# END vsetune nightly {name}"


def _crontab(words: Sequence[str], text: str | None = None) -> str:
    """The output of the user's `crontab` program; empty where the user has no table yet. UsageError without the
    program, VsetuneError when it fails."""
    program = shutil.which("crontab")
    if program is None:
        raise UsageError(messages.NO_CRONTAB())
    done = subprocess.run([program, *words], input=text, capture_output=True, text=True, check=False)
    if done.returncode != 0 and "no crontab" not in done.stderr.lower():
        raise VsetuneError(messages.CRONTAB_FAILED(words=" ".join(words), reason=_reason(done)))
    return done.stdout


def _unit_folder() -> Path:
    """Folder in which systemd finds units of the user."""
    return Path(os.environ.get("XDG_CONFIG_HOME") or "~/.config").expanduser() / "systemd" / "user"


def _systemctl(words: Sequence[str], by_hand: str) -> None:
    """VsetuneError with the command to run by hand."""
    program = shutil.which("systemctl")
    if program is None:
        raise VsetuneError(messages.NO_SYSTEMCTL(command=by_hand))
    done = subprocess.run([program, "--user", *words], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise VsetuneError(messages.SYSTEMCTL_FAILED(word=words[0], reason=_reason(done), command=by_hand))


def _reason(done: subprocess.CompletedProcess[str]) -> str:
    return " ".join(done.stderr.split()) or f"exit code {done.returncode}"
