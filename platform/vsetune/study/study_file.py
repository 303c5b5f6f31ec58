"""Reading of a study file: the plugins that it names are loaded first; all problems are reported at once."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Protocol, TypeVar, cast

from vsetune.config.component_specs import LOSSES, NETWORKS
from vsetune.config.plugins import (
    Plugin,
    load_installed,
    load_plugins,
    plugin_of,
    resolved_reference,
)
from vsetune.config.registry import import_sibling
from vsetune.config.spec.base import Spec
from vsetune.config.spec.loading import parse_spec, read_yaml
from vsetune.config.spec.yaml_files import require_kind
from vsetune.config.study.study_entries import LossEntry, NetworkEntry
from vsetune.config.study.study_spec import StudySpec
from vsetune.errors import ConfigError, MissingPlugin, Problem
from vsetune.records.studies import folder_of_study
from vsetune.study.kept_plugins import load_kept_by_name

_log = logging.getLogger(__name__)
SweepT = TypeVar("SweepT", bound=Spec)


class NamesComponents(Protocol):
    """A file that names networks, losses and plugins: a study, or a nightly sweep."""

    @property
    def plugins(self) -> list[str]: ...

    @property
    def networks(self) -> list[NetworkEntry]: ...

    @property
    def losses(self) -> list[LossEntry]: ...


def load_study(path: Path) -> StudySpec:
    """A study from its file, as `load_sweep` reads it."""
    return load_sweep(path, StudySpec)


def load_sweep(path: Path, spec: type[SweepT]) -> SweepT:
    """A spec of networks and losses from its file. The plugins that it names, and installed ones, are loaded first.

    Folders under `plugins` are returned as absolute paths. If a component is gone and the study has begun, the copy in
    the study's folder is used. ConfigError lists every problem with its key; every line begins with the path.
    """
    content = read_yaml(path)
    require_kind(content, spec, where=str(path))
    return parse_sweep(content, spec, where=str(path), base=path.absolute().parent)


def parse_sweep(content: dict[str, Any], spec: type[SweepT], *, where: str, base: Path) -> SweepT:
    """The same from the content of a file. where: opens every message. base: folder of relative `plugins` and models.
    """
    try:
        _load_plugins(content, base)
        sweep = parse_spec(_with_models(content, base), spec, where=where)
        named = cast(NamesComponents, sweep)
        _require_code(named)
    except ConfigError as error:
        problems = [each if isinstance(each, Problem) else Problem(each) for each in error.problems]
        raise ConfigError([each if each.startswith(where) else each.at(where) for each in problems]) from error
    return sweep.model_copy(update={"plugins": [resolved_reference(each, base=base) for each in named.plugins]})


_MODELS = {"model", "text_model", "image_model", "weights", "start_from"}
"""Settings that may name a folder or a file of weights."""


def _with_models(given: Any, base: Path) -> Any:
    """Plain data in which models that lie beside the file, as plugins do, have their full path; others are unchanged: a
    hub's, a package's, those under VSETUNE_HOME."""
    if isinstance(given, list):
        return [_with_models(each, base) for each in given]
    if not isinstance(given, Mapping):
        return given
    return {
        key: str((base / value).resolve()) if key in _MODELS and _is_beside(value, base) else _with_models(value, base)
        for key, value in given.items()
    }


def _is_beside(value: Any, base: Path) -> bool:
    try:
        return isinstance(value, str) and not Path(value).is_absolute() and bool(value) and (base / value).exists()
    except (OSError, ValueError):  # no path: parsing the file reports it
        return False


def used_specs(study: NamesComponents) -> list[tuple[str, type[Any]]]:
    """(name of the module beside the spec, spec) of every network and loss of a study, each once."""
    networks = {entry.name for entry in study.networks}
    losses = {name for entry in study.losses for name in (entry.name, *(part.name for part in entry.loss)) if name}
    return [("network", NETWORKS[name]) for name in sorted(networks)] + [
        ("loss", LOSSES[name]) for name in sorted(losses)
    ]


def used_plugins(study: NamesComponents) -> list[Plugin]:
    """The plugins among the networks and losses of a study."""
    found = (plugin_of(spec) for _, spec in used_specs(study))
    return [plugin for plugin in found if plugin is not None]


def _load_plugins(content: Mapping[str, Any], base: Path) -> None:
    installed, broken = load_installed()
    for name, problem in broken.items():
        if name in set(_names_in(content)):
            raise ConfigError(problem)
        _log.warning("%s; the package is left out", problem)
    references = content.get("plugins")
    if not isinstance(references, list) or not all(isinstance(each, str) for each in references):
        return  # parsing the file reports the problem
    missing: MissingPlugin | None = None
    try:
        load_plugins(references, base=base, beside=installed)
    except MissingPlugin as error:
        missing = error
    folder, unknown = study_folder(content), _unknown_names(content)
    kept = load_kept_by_name(unknown, folder) if unknown and folder is not None else []
    if kept:
        names = ", ".join(sorted(plugin.key for plugin in kept))
        _log.warning("plugins: %s is gone from where the study names it; going on with the copy in %s", names, folder)
    if missing is not None and (not kept or _unknown_names(content)):
        raise missing


def _unknown_names(content: Mapping[str, Any]) -> set[str]:
    return set(_names_in(content)) - {*LOSSES, *NETWORKS}


def _names_in(content: Any) -> Iterator[str]:
    """The names of networks and losses in a file that has not been checked."""
    for key in ("networks", "losses"):
        entries = content.get(key)
        for entry in entries if isinstance(entries, list) else []:
            parts = entry.get("loss") if isinstance(entry, Mapping) else None
            for each in (entry, *(parts if isinstance(parts, list) else [])):
                if isinstance(each, Mapping) and isinstance(each.get("name"), str):
                    yield each["name"]


def study_folder(content: Mapping[str, Any]) -> Path | None:
    """The folder of the study; None if the file has no valid name of a study."""
    name = content.get("study")
    if not isinstance(name, str) or re.fullmatch(r"[\w-]+", name) is None:
        return None
    return folder_of_study(name)


def _require_code(study: NamesComponents) -> None:
    """ConfigError when the code beside the spec of a plugin cannot be imported."""
    for file, spec in used_specs(study):
        if plugin_of(spec) is not None:
            import_sibling(spec, file)
