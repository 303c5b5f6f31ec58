"""Copies of a study's plugins in its folder, so that the same code always runs.

`plugins/<folder>-<hash>/` in the study's folder is a copy, complete or absent. Workers, a resumed study and later
readers of a trial load that copy, independent of the place and content of the user's own folder.
"""

from __future__ import annotations

import importlib
import os
import shutil
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from pydantic import BaseModel, ValidationError

from vsetune.config.plugin_import import Source, changed_files, read_source, source_of
from vsetune.config.plugins import Plugin, known_plugins, load_module, load_plugin
from vsetune.errors import ConfigError, DataError, Problem, StorageError
from vsetune.storage.home_files import bring_mirrored
from vsetune.storage.whole_files import make_folder, move_in_place, read_json, write_json

PLUGINS_FOLDER = "plugins"
_NOTE = "plugin.json"


@dataclass(frozen=True)
class KeptPlugin:
    """One copy. folder: `plugins/<name>-<hash>`. source: the copied folder in it. module: name under which it is
    imported; None for a plugin folder. keys: the components in it, such as `loss.my_loss`."""

    folder: Path
    source: Path
    module: str | None
    keys: tuple[str, ...]


class _Note(BaseModel):
    """`plugin.json` of a copy. source: path below the copy's folder."""

    module: str | None
    source: str
    keys: list[str]


def keep_plugins(plugins: Iterable[Plugin], study_folder: Path) -> list[Path]:
    """Copies the code of these plugins into a study's folder. Returns the folders of the copies.

    StorageError if they cannot be written. ConfigError if an installed package has changed since it was loaded.
    """
    by_source: dict[Path, list[Plugin]] = {}
    for plugin in plugins:
        by_source.setdefault(plugin.source, []).append(plugin)
    return list(dict.fromkeys(_keep(of_source, study_folder / PLUGINS_FOLDER) for of_source in by_source.values()))


def load_kept(wanted: Mapping[str, str], study_folder: Path, *, where: str) -> None:
    """Loads the plugins of a trial from their copies. wanted: sha256 by key, as in the trial.

    The copies are in the study's folder, or Ray has brought them to this process. Plugins that are loaded already are
    left out, so a process may call this for every trial. StorageError if there is no copy, as when the folder is not
    accessible. ConfigError if the copy has other code, or this process has loaded another version of it.
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
        kept = copies[-1]
        changes = changed_files(read_source(kept.source), _now(plugin))
        more = f" and {len(changes) - 3} more" if len(changes) > 3 else ""
        return Problem.of(
            "VSE-S006", "study {study}: {plugin}: {source}: {changes} since the study began; put the old code back (it "
            "is in {copy}), or give the study another name",
            study=study, plugin=f"{plugin.kind} {plugin.name}", source=plugin.source,
            changes=f"{', '.join(changes[:3])}{more}", copy=kept.source,
        )
    return None


def _keep(plugins: Sequence[Plugin], into: Path) -> Path:
    first, source = plugins[0], _now(plugins[0])
    if source.sha256 != first.sha256:
        raise ConfigError(
            "VSE-S002", "plugins: {source}: changed while the study was made ready; start the command again",
            source=first.source,
        )
    folder = into / f"{first.source.name}-{source.short}"
    inside = _inside(first)
    keys = sorted({plugin.key for plugin in plugins})
    if _is_whole(folder, inside, source, keys):
        return folder
    partial = into / f".{folder.name}.{os.getpid()}.partial"
    make_folder(into)
    try:
        shutil.rmtree(partial, ignore_errors=True)
        for path, content in source.files.items():
            file = partial / inside / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(content)
        module = None if source_of(first.package) is not None else first.package
        write_json(partial / _NOTE, {"module": module, "source": str(inside), "keys": keys}, durable=False)
        shutil.rmtree(folder, ignore_errors=True)
        move_in_place(partial, folder, durable=False)
    except OSError as error:
        shutil.rmtree(partial, ignore_errors=True)
        raise StorageError(
            "VSE-S027", "{path}: cannot be written ({reason}); free space, then repeat the command", path=folder,
            reason=error.strerror,
        ) from error
    return folder


def _is_whole(folder: Path, inside: Path, source: Source, keys: Sequence[str]) -> bool:
    kept = _read(folder)
    return kept is not None and set(keys) <= {*kept.keys} and read_source(folder / inside).sha256 == source.sha256


def _now(plugin: Plugin) -> Source:
    """The files of a plugin as they were loaded; for an installed package, as they are now."""
    return source_of(plugin.package) or read_source(plugin.source)


def _inside(plugin: Plugin) -> Path:
    """Path of the source in its copy. A package is stored under its full name, so that its modules can import each
    other."""
    return Path(plugin.source.name) if source_of(plugin.package) is not None else Path(*plugin.root.split("."))


def _load(kept: KeptPlugin, wanted: Mapping[str, str], where: str) -> tuple[Plugin, ...]:
    if kept.module is None:
        plugins = load_plugin(str(kept.source), base=kept.folder)
    else:
        plugins = _load_module(kept, kept.module)
    found = {plugin.key: plugin.sha256 for plugin in plugins}
    for key, sha256 in wanted.items():
        if found.get(key) != sha256 and kept.module is not None:
            raise ConfigError(
                "VSE-S003", "{where}: {plugin} needs the code in {folder}, and this process has imported other code of "
                "{module}; use one version in a process", where=where, plugin=key, folder=kept.folder,
                module=kept.module,
            )
        if found.get(key) != sha256:
            raise ConfigError(
                "VSE-S004", "{where}: {folder}: differs from what was copied there; bring the files back", where=where,
                folder=kept.folder,
            )
    return plugins


def _load_module(kept: KeptPlugin, module: str) -> tuple[Plugin, ...]:
    """Imports a copy, which is first on `sys.path` meanwhile. A module that is imported already is used instead."""
    sys.path.insert(0, str(kept.folder))
    importlib.invalidate_caches()
    try:
        return load_module(module)
    finally:
        sys.path.remove(str(kept.folder))


def _bring(study_folder: Path) -> None:
    """With a remote home, fetches the copies that the study's driver has sent there."""
    bring_mirrored(study_folder, lambda name: name.startswith(f"{PLUGINS_FOLDER}/"))


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
    return KeptPlugin(folder, source, note.module, tuple(note.keys)) if is_inside else None
