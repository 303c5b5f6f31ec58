"""Installs an entry or removes it; files of other programs are left alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from importlib import metadata
from pathlib import Path

from vsetune.errors import StorageError, UsageError, VsetuneError
from vsetune.nightly.installing.local_entries import (
    Crontab,
    cron_block,
    start_timer,
    stop_timer,
    systemd_units,
    unit_folder,
    with_block,
)
from vsetune.nightly.installing.manifests import github_workflow, kubernetes_schedule, repository_root
from vsetune.nightly.installing.nightly_entry import MARK, SECRETS_FILE, NightlyEntry, summer_time_notes
from vsetune.storage.whole_files import make_folder, write_text


class EntryKind(StrEnum):
    """The scheduler that starts the nights."""

    CRON = "cron"
    SYSTEMD = "systemd"
    GITHUB = "github"
    KUBERNETES = "kubernetes"


@dataclass(frozen=True)
class Entry:
    """An entry and its place. output: folder for its files. None is the place where the scheduler reads it: the user's
    crontab, systemd's folder or .github/workflows; for Kubernetes the current folder. with_raycronjob: for Kubernetes.
    """

    kind: EntryKind
    content: NightlyEntry
    output: Path | None = None
    with_raycronjob: bool = True


def entry_texts(entry: Entry) -> dict[str, str]:
    """The texts to write, by file name; for cron the lines, under the name `crontab`. UsageError."""
    now, content = datetime.now(UTC), entry.content
    if entry.kind is EntryKind.CRON:
        return {"crontab": cron_block(content, now=now)}
    if entry.kind is EntryKind.SYSTEMD:
        return systemd_units(content)
    root = repository_root(content.file)
    if entry.kind is EntryKind.GITHUB:
        return {f"{content.label}.yml": github_workflow(content, root, now=now)}
    path, name = content.file.resolve().relative_to(root.resolve()).as_posix(), f"{content.label}.yaml"
    text = kubernetes_schedule(
        content, path, ray=metadata.version("ray"), with_raycronjob=entry.with_raycronjob,
        output=str(entry.output / name if entry.output else name),
    )
    return {name: text}


def install(entry: Entry) -> list[str]:
    """Write an entry and start its timer; returns lines about the steps done and the steps left to the user.

    UsageError: the entry is not possible, or a file that vsetune did not write is in the way. VsetuneError: the system
    refuses.
    """
    texts = entry_texts(entry)
    if entry.kind is EntryKind.CRON and entry.output is None:
        make_folder(entry.content.log.parent)
        table = Crontab()
        table.write(with_block(table.read(), entry.content.name, texts["crontab"]))
        told = [f"crontab: {entry.content.name} runs at {entry.content.time.text}, messages go to {entry.content.log}"]
    else:
        folder = _folder(entry)
        for name in texts:
            _require_ours(folder / name)
        for name, text in texts.items():
            write_text(folder / name, text)
        told = [f"wrote {folder / name}" for name in texts] + _next(entry, folder)
    if entry.kind is EntryKind.SYSTEMD and entry.output is None:
        start_timer(entry.content.label)
        told.append("it runs while you are logged in; to run it always: loginctl enable-linger")
    return told + _about_secrets(entry) + summer_time_notes(entry.content.time, start=datetime.now(UTC))


def remove(entry: Entry) -> list[str]:
    """Remove an entry; returns lines about the steps done. UsageError when vsetune did not write a file of it.
    VsetuneError when systemd refuses to stop the timer; its files are then removed."""
    name = entry.content.name
    if entry.kind is EntryKind.CRON and entry.output is None:
        table = Crontab()
        before = table.read()
        after = with_block(before, name, None)
        if after == before:
            return [f"crontab: has no entry of {name}; nothing to remove"]
        table.write(after)
        return [f"crontab: {name} is removed"]
    folder = _folder(entry)
    there = [folder / file for file in _file_names(entry) if (folder / file).exists()]
    if not there:
        return [f"{folder}: has no entry of {name}; nothing to remove"]
    for file in there:
        _require_ours(file)
    refused: VsetuneError | None = None
    if entry.kind is EntryKind.SYSTEMD and entry.output is None:
        try:
            stop_timer(entry.content.label)
        except VsetuneError as error:
            refused = error
    for file in there:
        _unlink(file)
    if refused is not None:
        raise VsetuneError(f"{refused}; its files are removed") from refused
    told = [f"removed {file}" for file in there]
    if entry.kind is EntryKind.KUBERNETES:
        kind = "raycronjob" if entry.with_raycronjob else "cronjob"
        told.append(f"on the cluster: kubectl delete {kind} {entry.content.label}")
    return told


def _file_names(entry: Entry) -> Sequence[str]:
    label = entry.content.label
    names: Mapping[EntryKind, Sequence[str]] = {
        EntryKind.CRON: ["crontab"], EntryKind.SYSTEMD: [f"{label}.service", f"{label}.timer"],
        EntryKind.GITHUB: [f"{label}.yml"], EntryKind.KUBERNETES: [f"{label}.yaml"],
    }
    return names[entry.kind]


def _folder(entry: Entry) -> Path:
    if entry.output is not None:
        return entry.output
    if entry.kind is EntryKind.SYSTEMD:
        return unit_folder()
    if entry.kind is EntryKind.GITHUB:
        return repository_root(entry.content.file) / ".github" / "workflows"
    return Path.cwd()


def _require_ours(file: Path) -> None:
    """UsageError when the file exists and vsetune did not write it."""
    try:
        ours = not file.exists() or MARK in file.read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        raise StorageError(f"{file}: cannot be read ({error.strerror}); name another folder with --output") from error
    if not ours:
        raise UsageError(f"{file}: is there and was not {MARK}; move it away, or name another folder with --output")


def _unlink(file: Path) -> None:
    try:
        file.unlink()
    except OSError as error:
        raise StorageError(f"{file}: cannot be removed ({error.strerror}); mend the rights of its folder") from error


def _next(entry: Entry, folder: Path) -> list[str]:
    """Lines on the steps left to the user."""
    label = entry.content.label
    if entry.kind is EntryKind.GITHUB:
        names = ", ".join(entry.content.secrets)
        secrets = f"; give the repository the secrets {names}" if names else ""
        return [f"commit and push it; it can also be started by hand on GitHub, under Actions{secrets}"]
    if entry.kind is EntryKind.KUBERNETES:
        return [f"replace REGISTRY in it, then: kubectl apply -f {folder / f'{label}.yaml'}"]
    if entry.kind is EntryKind.SYSTEMD and entry.output is not None:
        return [f"copy them to {unit_folder()}, then: systemctl --user enable --now {label}.timer"]
    return []


def _about_secrets(entry: Entry) -> list[str]:
    names = entry.content.secrets
    if entry.kind not in (EntryKind.CRON, EntryKind.SYSTEMD) or not names:
        return []
    return [f"secrets: write {', '.join(f'{name}=...' for name in names)} into {SECRETS_FILE}, and chmod 600 it"]
