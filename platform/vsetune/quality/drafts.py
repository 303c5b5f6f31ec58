"""Writes the initial folder of a new loss or network: commented code that passes its quality checks."""

from __future__ import annotations

import keyword
import re
from importlib.resources import files
from pathlib import Path
from string import Template
from typing import Any, Literal

from vsetune.config.components.catalogue import Catalogue
from vsetune.errors import UsageError
from vsetune.files.whole_files import make_folder, write_whole
from vsetune.losses.loss_catalogue import LOSSES
from vsetune.networks.network_catalogue import NETWORKS

_KNOWN: dict[str, Catalogue[Any]] = {"loss": LOSSES, "network": NETWORKS}
_LONGEST = 60


def write_draft(kind: Literal["loss", "network"], name: str, parent: Path) -> list[Path]:
    """Write `parent`/`name` with `spec.py`, the code and a test; returns the files written. UsageError for an unusable
    name, or a folder that exists."""
    _require_usable(kind, name)
    folder = parent / name
    if folder.exists():
        raise UsageError(f"{folder}: is there already; choose another name, or another --folder")
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
            f"{kind} {name[:_LONGEST]}: need a name of lower-case letters, digits and _ that starts with a letter, at "
            f"most {_LONGEST} long and no word of Python, such as my_{kind}"
        )
    if name in _KNOWN[kind] or name == "sum":
        raise UsageError(f"{kind} {name}: vsetune has a {kind} of this name; choose another")
