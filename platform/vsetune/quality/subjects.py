"""The loss or network that a reference names, and the initial folder of a new one."""

from __future__ import annotations

import keyword
import re
from importlib.resources import files
from pathlib import Path
from string import Template
from typing import Any, Literal

from vsetune.config.component_specs import LOSSES, NETWORKS, SUM, LossSpec, NetworkSpec
from vsetune.config.plugins import load_plugin
from vsetune.config.registry import Registry, S
from vsetune.config.spec.base import unknown_name
from vsetune.errors import ConfigError, MissingPlugin, UsageError
from vsetune.home.whole_files import make_folder, write_whole


def loss_at(reference: str | Path) -> type[LossSpec]:
    """The loss of this name, or of this folder (relative to the current one).

    UsageError for an unknown name, ConfigError for a folder that has no component or not exactly one loss.
    """
    return _component_at(str(reference), LOSSES)


def network_at(reference: str | Path) -> type[NetworkSpec]:
    """The network of a reference, as `loss_at`."""
    return _component_at(str(reference), NETWORKS)


def _component_at(reference: str, known: Registry[S]) -> type[S]:
    if reference in known:
        return known[reference]
    try:
        plugins = load_plugin(reference, base=Path.cwd())
    except MissingPlugin as error:
        if reference.isidentifier():
            problem = unknown_name(reference, sorted(known), known.kind)
            raise UsageError(problem.worded(f"{problem}, or a folder")) from error
        raise
    names = [plugin.name for plugin in plugins if plugin.kind == known.kind]
    if len(names) != 1:
        found = ", ".join(f"{plugin.kind} {plugin.name} in {plugin.folder}" for plugin in plugins)
        raise ConfigError(
            "VSE-Q001", "{reference}: need the folder of one {kind}, got {found}; name its folder", reference=reference,
            kind=known.kind, found=found,
        )
    return known[names[0]]


_KNOWN: dict[str, Registry[Any]] = {"loss": LOSSES, "network": NETWORKS}
_LONGEST = 60


def write_draft(kind: Literal["loss", "network"], name: str, parent: Path) -> list[Path]:
    """Write `parent`/`name` with `spec.py`, the code and a test; returns the files written. UsageError for an unusable
    name, or a folder that exists."""
    _require_usable(kind, name)
    folder = parent / name
    if folder.exists():
        raise UsageError(
            "VSE-Q002", "{folder}: is there already; choose another name, or another --folder", folder=folder
        )
    words = {"name": name, "Name": "".join(word.capitalize() for word in name.split("_"))}
    templates = files("vsetune.quality") / "templates" / kind
    make_folder(folder)
    written = []
    for template, file in (("spec", "spec.py"), (kind, f"{kind}.py"), ("test", f"test_{name}.py")):
        text = (templates / f"{template}.py.template").read_text(encoding="utf-8")
        written.append(folder / file)
        write_whole(folder / file, Template(text).substitute(words).encode(), durable=False)
    return written


def _require_usable(kind: str, name: str) -> None:
    if not re.fullmatch(r"[a-z][a-z0-9_]*", name) or len(name) > _LONGEST or keyword.iskeyword(name):
        raise UsageError(
            "VSE-Q003", "{kind} {name}: need a name of lower-case letters, digits and _ that starts with a letter, at "
            "most {most} long and no word of Python, such as my_{kind}", kind=kind, name=name[:_LONGEST], most=_LONGEST,
        )
    if name in _KNOWN[kind] or name == SUM:
        raise UsageError(
            "VSE-Q004", "{kind} {name}: vsetune has a {kind} of this name; choose another", kind=kind, name=name
        )
