"""Copies of a study's plugins in its folder, so that the same code always runs.

`plugins/<folder>-<hash>/` in the study's folder is a copy, complete or absent. Workers, a resumed study and later
readers of a trial load that copy, independent of the place and content of the user's own folder.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from pydantic import BaseModel, ValidationError

from vsetune.config.plugin_import import Source, read_source, source_of
from vsetune.config.plugins import Plugin, known_plugins, load_plugin
from vsetune.errors import ConfigError, DataError, Problem, StorageError
from vsetune.home.home_files import find_folder_in_home
from vsetune.home.whole_files import make_folder, move_in_place, read_json, write_json

PLUGINS_FOLDER = "plugins"
_NOTE = "plugin.json"


@dataclass(frozen=True)
class KeptPlugin:
    """One copy. folder: `plugins/<name>-<hash>`. source: the copied folder in it. keys: the components in it, such as
    `loss.my_loss`."""

    folder: Path
    source: Path
    keys: tuple[str, ...]


class _Note(BaseModel):
    """`plugin.json` of a copy. source: path below the copy's folder."""

    source: str
    keys: list[str]


def keep_plugins(plugins: Iterable[Plugin], study_folder: Path) -> list[Path]:
    """Copies the code of these plugins into a study's folder. Returns the folders of the copies.

    StorageError if they cannot be written.
    """
    keys: dict[str, set[str]] = {}
    for plugin in plugins:
        keys.setdefault(plugin.package, set()).add(plugin.key)
    return [_keep(source_of(package), sorted(keys[package]), study_folder / PLUGINS_FOLDER) for package in keys]


def load_kept(wanted: Mapping[str, str], study_folder: Path, *, where: str) -> None:
    """Loads the plugins of a trial from their copies. wanted: sha256 by key, as in the trial.

    The copies are in the study's folder, or Ray has brought them to this process. Plugins that are loaded already are
    left out, so a process may call this for every trial. StorageError if there is no copy, as when the folder is not
    accessible. ConfigError if the copy has other code.
    """
    known = {plugin.key: plugin.sha256 for plugin in known_plugins()}
    for key, sha256 in wanted.items():
        if known.get(key) == sha256:
            continue
        _load(_require_copy(key, sha256, study_folder, where), {key: sha256}, where)


def carry_plugins(wanted: Mapping[str, str], study_folder: Path, into: Path, *, where: str) -> None:
    """Copies the plugins that `load_kept` would load into another folder, from which it can load them too. StorageError
    if there is no copy."""
    for key, sha256 in wanted.items():
        kept = _require_copy(key, sha256, study_folder, where)
        shutil.copytree(kept.folder, into / PLUGINS_FOLDER / kept.folder.name, dirs_exist_ok=True)


def load_kept_by_name(names: Collection[str], study_folder: Path) -> list[Plugin]:
    """Loads components by name from the copies of a study. ConfigError if it has two versions of one."""
    found: dict[str, KeptPlugin] = {}
    _bring(study_folder)
    for kept in _all(study_folder):
        for key in kept.keys:
            if key.partition(".")[2] not in names:
                continue
            if key in found:
                raise ConfigError(
                    "VSE-S001", "plugins: {plugin} is in {first} and in {second}; bring the plugin's own folder back",
                    plugin=key, first=found[key].folder, second=kept.folder,
                )
            found[key] = kept
    copies = {kept.folder: kept for kept in found.values()}
    return [plugin for kept in copies.values() for plugin in _load(kept, {}, str(kept.folder))]


def study_folder_of(trial_folder: Path) -> Path:
    """The study's folder, which contains `trials/<trial>`."""
    return trial_folder.parents[1]


def changed_since(study: str, study_folder: Path, plugins: Iterable[Plugin]) -> Problem | None:
    """The first plugin whose code differs from the study's copy; None if none differs."""
    for plugin in plugins:
        copies = [kept for kept in _all(study_folder) if plugin.key in kept.keys]
        if not copies or any(kept.folder.name.endswith(f"-{plugin.sha256[:12]}") for kept in copies):
            continue
        return Problem.of(
            "VSE-S006", "study {study}: {plugin}: {source} changed since the study began (diff -r {copy} {source}); "
            "put the old code back, or give the study another name", study=study,
            plugin=f"{plugin.kind} {plugin.name}", source=plugin.folder, copy=copies[-1].source,
        )
    return None


def _keep(source: Source, keys: list[str], into: Path) -> Path:
    name = source.folder.name
    folder = into / f"{name}-{source.short}"
    kept = _read(folder)
    if kept is not None and set(keys) <= {*kept.keys} and read_source(kept.source).sha256 == source.sha256:
        return folder
    partial = into / f".{folder.name}.{os.getpid()}.partial"
    make_folder(into)
    try:
        shutil.rmtree(partial, ignore_errors=True)
        for path, content in source.files.items():
            file = partial / name / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(content)
        write_json(partial / _NOTE, {"source": name, "keys": keys}, durable=False)
        shutil.rmtree(folder, ignore_errors=True)
        move_in_place(partial, folder, durable=False)
    except OSError as error:
        shutil.rmtree(partial, ignore_errors=True)
        raise StorageError(
            "VSE-S027", "{path}: cannot be written ({reason}); free space, then repeat the command", path=folder,
            reason=error.strerror,
        ) from error
    return folder


def _load(kept: KeptPlugin, wanted: Mapping[str, str], where: str) -> tuple[Plugin, ...]:
    plugins = load_plugin(str(kept.source), base=kept.folder)
    found = {plugin.key: plugin.sha256 for plugin in plugins}
    if any(found.get(key) != sha256 for key, sha256 in wanted.items()):
        raise ConfigError(
            "VSE-S004", "{where}: {folder}: differs from what was copied there; bring the files back", where=where,
            folder=kept.folder,
        )
    return plugins


def _bring(study_folder: Path) -> None:
    """With a remote home, fetches the copies that the study's driver has sent there."""
    find_folder_in_home(study_folder / PLUGINS_FOLDER)


def _require_copy(key: str, sha256: str, study_folder: Path, where: str) -> KeptPlugin:
    kept = _copy_of(key, sha256, study_folder)
    if kept is None:
        _bring(study_folder)
        kept = _copy_of(key, sha256, study_folder)
    if kept is None:
        kind, _, name = key.partition(".")
        raise StorageError(
            "VSE-S005", "{where}: {kind} {name} is a plugin, and no copy of its code {sha256} is in {folder}; bring "
            "that folder back", where=where, kind=kind, name=name, sha256=sha256[:12],
            folder=study_folder / PLUGINS_FOLDER,
        )
    return kept


def _copy_of(key: str, sha256: str, study_folder: Path) -> KeptPlugin | None:
    return next((kept for kept in _copies(sha256, study_folder) if key in kept.keys), None)


def _copies(sha256: str, study_folder: Path) -> Iterator[KeptPlugin]:
    for place in (study_folder / PLUGINS_FOLDER, *map(Path, sys.path)):
        for note in sorted(place.glob(f"*-{sha256[:12]}/{_NOTE}")):
            kept = _read(note.parent)
            if kept is not None:
                yield kept


def _all(study_folder: Path) -> list[KeptPlugin]:
    """All copies of a study, the oldest first."""
    notes = sorted(
        (study_folder / PLUGINS_FOLDER).glob(f"[!.]*/{_NOTE}"), key=lambda note: (note.stat().st_mtime_ns, note)
    )
    return [kept for note in notes if (kept := _read(note.parent)) is not None]


def _read(folder: Path) -> KeptPlugin | None:
    """The copy in a folder; None if its note is not in the form that `_keep` writes, or names a path outside."""
    try:
        note = _Note.model_validate(read_json(folder / _NOTE))
    except (DataError, ValidationError):
        return None
    source = folder / note.source
    is_inside = "\0" not in note.source and source.resolve().is_relative_to(folder.resolve())
    return KeptPlugin(folder, source, tuple(note.keys)) if is_inside else None
