"""Imports a plugin component from the very bytes that were hashed, and reports its errors in one line.

A folder becomes the package `vsetune_plugins.<folder>_<hash>`. The same code has the same package in every process,
wherever the folder is; changed code has another one, so that old and new never mix. Modules are compiled from the bytes
read when the folder was hashed, not from the files at the time of the import.
"""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.machinery
import re
import sys
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import CodeType, ModuleType

from vsetune.config.components.plugin_source import Source
from vsetune.errors import ConfigError, VsetuneError

PACKAGE = "vsetune_plugins"

_LONGEST = 200
_sources: dict[str, Source] = {}


def import_folder(source: Source) -> str:
    """Import a folder as a package; returns its name. Only its `__init__.py` has run by then.

    ConfigError in one line when a file of it is not valid Python, or `__init__.py` raises.
    """
    package = f"{PACKAGE}.{_identifier(source.folder.name)}_{source.short}"
    if package in _sources:
        return package
    for path, content in source.files.items():
        if path.endswith(".py"):
            with told_in_one_line(source.folder):
                compile(content, str(source.folder / path), "exec")
    _sources[package] = source
    if _FINDER not in sys.meta_path:
        sys.meta_path.insert(0, _FINDER)
    sys.modules.setdefault(PACKAGE, _root())
    try:
        with told_in_one_line(source.folder):
            importlib.import_module(package)
    except BaseException:
        forget(package)
        raise
    return package


def source_of(package: str) -> Source | None:
    """The files of an imported folder."""
    return _sources.get(package)


def forget(package: str) -> None:
    """Drop a folder's modules; objects that refer to its classes keep them alive."""
    _sources.pop(package, None)
    for name in [name for name in sys.modules if name == package or name.startswith(f"{package}.")]:
        del sys.modules[name]


@contextmanager
def told_in_one_line(folder: Path) -> Iterator[None]:
    """Turn exceptions from the code in `folder` into a ConfigError in one line: file, line, reason, fix."""
    try:
        yield
    except VsetuneError:
        raise
    except (Exception, SystemExit) as error:
        raise ConfigError(f"plugins: {told(error, folder)}") from error


def told(error: BaseException, folder: Path) -> str:
    """`my_loss/loss.py:12: NameError: ...; mend this line`: where in `folder` the error arose, and how to fix it."""
    text = " ".join(str(error).split())
    if isinstance(error, SyntaxError) and error.filename:
        return f"{error.filename}:{error.lineno}: {type(error).__name__}: {error.msg}; mend this line"
    text = re.sub(rf"{PACKAGE}\.\w+?_[0-9a-f]{{12}}(?=\.)", "", text)
    text = text if len(text) <= _LONGEST else text[:_LONGEST] + "..."
    reason = f"{type(error).__name__}: {text}" if text else type(error).__name__
    return f"{_place(error, folder)}: {reason}; {_fix(error, folder)}"


def place_of(error: BaseException, folder: Path) -> str | None:
    """`file:line` of the innermost line in `folder` that an exception passed through; None if it passed through none.
    """
    frames = [
        frame for frame in traceback.extract_tb(error.__traceback__) if Path(frame.filename).is_relative_to(folder)
    ]
    return f"{frames[-1].filename}:{frames[-1].lineno}" if frames else None


def _place(error: BaseException, folder: Path) -> str:
    return place_of(error, folder) or str(folder)


def _fix(error: BaseException, folder: Path) -> str:
    if isinstance(error, ModuleNotFoundError) and error.name:
        name = error.name.partition(".")[0]
        if (folder / f"{name}.py").is_file() or (folder / name).is_dir():
            return f"write `from .{error.name} import ...`, with the dot: the folder is a package of its own"
        if name != PACKAGE:
            return f"install {name} where trials run, or put the module into the folder and import it with a dot"
        if ".".join(error.name.split(".")[:2]) not in _sources:
            return "a component sees its own folder only; copy the module into it"
    return "mend this line"


def _identifier(name: str) -> str:
    return re.sub(r"\W", "_", name) or "plugin"


def _root() -> ModuleType:
    module = ModuleType(PACKAGE, "Components of other people, each under its folder's name and hash.")
    module.__path__ = []
    return module


class _ReadSource(importlib.machinery.SourceFileLoader):
    """A module compiled from the bytes read with its folder. Writes no bytecode: it could be older than the source."""

    def __init__(self, name: str, path: Path, content: bytes) -> None:
        super().__init__(name, str(path))
        self._read = content

    def get_data(self, path: str) -> bytes:
        return self._read if str(path) == self.path else Path(path).read_bytes()

    def get_code(self, fullname: str) -> CodeType:
        return self.source_to_code(self._read, self.path)


class _Finder(importlib.abc.MetaPathFinder):
    """Finds the modules of the folders in `_sources`, and nothing else."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        words = fullname.split(".")
        source = _sources.get(".".join(words[:2]))
        if words[0] != PACKAGE or source is None:
            return None
        inside = "/".join(words[2:])
        folder = source.folder / inside
        file = f"{inside}/__init__.py".lstrip("/")
        is_package = not inside or any(each.startswith(f"{inside}/") for each in source.files)
        if not is_package:
            file = f"{inside}.py"
            if file not in source.files:
                return None
        loader = _ReadSource(fullname, source.folder / file, source.files.get(file, b""))
        spec = importlib.machinery.ModuleSpec(fullname, loader, origin=loader.path, is_package=is_package)
        spec.has_location = True
        if is_package:
            spec.submodule_search_locations = [str(folder)]
        return spec


_FINDER = _Finder()
