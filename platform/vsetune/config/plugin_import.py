"""Import of plugin folders, by the very bytes that were hashed."""

from __future__ import annotations

import errno
import importlib
import importlib.abc
import importlib.machinery
import os
import re
import stat
import sys
import traceback
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import spec_from_file_location
from pathlib import Path
from types import CodeType, ModuleType

from vsetune.errors import ConfigError, Problem, VsetuneError, one_line
from vsetune.home.hashes import sha256_of_pieces

SPEC_FILE = "spec"
MOST_BYTES = 64 * 2**20
MOST_FILES = 2000

_LEFT_OUT_FOLDERS = ("__pycache__", "tests")
_LEFT_OUT_ENDINGS = (".pyc", ".md", "_test.py", "~", ".partial")
_LEFT_OUT_FILES = ("conftest.py",)


@dataclass(frozen=True)
class Source:
    """files: content by path relative to `folder`, with slashes, in order. sha256: of the paths and the contents."""

    folder: Path
    files: Mapping[str, bytes]
    sha256: str

    @property
    def short(self) -> str:
        """The part of the hash in folder and package names."""
        return self.sha256[:12]


def read_source(folder: Path) -> Source:
    """Every file of `folder` that counts. ConfigError when one cannot be read, or they are too many or too large."""
    paths = sorted(path.relative_to(folder).as_posix() for path in _files(folder))
    if len(paths) > MOST_FILES:
        raise ConfigError(
            "VSE-C106", "plugins: {folder}: {files:,} files, need at most {most:,}; name the folder of the component "
            "alone, and keep data elsewhere", folder=folder, files=len(paths), most=MOST_FILES,
        )
    files: dict[str, bytes] = {}
    total = 0
    for path in paths:
        files[path] = _content(folder / path, most=MOST_BYTES - total + 1)
        total += len(files[path])
        if total > MOST_BYTES:
            raise ConfigError(
                "VSE-C107", "plugins: {folder}: more than {most} MiB of files (with {file}), which would travel with "
                "every trial; keep weights and data elsewhere and give their path as a setting", folder=folder,
                most=MOST_BYTES >> 20, file=path,
            )
    pieces = (piece for path in files for piece in (f"{path}\0{len(files[path])}\0".encode(), files[path]))
    return Source(folder, files, sha256_of_pieces(pieces))


def _files(folder: Path) -> Iterator[Path]:
    for parent, names, files in os.walk(folder):
        names[:] = sorted(name for name in names if not name.startswith(".") and name not in _LEFT_OUT_FOLDERS)
        for name in names:
            if (Path(parent) / name).is_symlink():
                raise ConfigError(
                    "VSE-C108", "plugins: {path}: is a link to a folder, which would not travel; copy the folder here",
                    path=Path(parent) / name,
                )
        yield from (Path(parent) / name for name in files if _counts(name))


def _counts(name: str) -> bool:
    if name.startswith(".") or name.endswith(_LEFT_OUT_ENDINGS) or name in _LEFT_OUT_FILES:
        return False
    return not (name.startswith("test_") and name.endswith(".py"))


def _content(path: Path, *, most: int) -> bytes:
    """The first bytes of a file. Never waits for the writer of a FIFO."""
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            raise OSError(errno.EINVAL, "no regular file")
        with path.open("rb") as stream:
            return stream.read(most)
    except OSError as error:
        raise ConfigError(
            "VSE-C109", "plugins: {path}: cannot be read ({reason}); need a regular, readable file", path=path,
            reason=error.strerror,
        ) from error


PACKAGE = "vsetune_plugins"

_sources: dict[str, Source] = {}


def import_folder(source: Source) -> str:
    """Import a folder as a package; returns its name. Only its `__init__.py` has run by then.

    ConfigError in one line when a file of it is not valid Python, or `__init__.py` raises.
    """
    name = re.sub(r"\W", "_", source.folder.name) or "plugin"
    package = f"{PACKAGE}.{name}_{source.short}"
    if package in _sources:
        return package
    for path, content in source.files.items():
        if path.endswith(".py"):
            with reported_in_one_line(source.folder):
                compile(content, str(source.folder / path), "exec")
    _sources[package] = source
    if _FINDER not in sys.meta_path:
        sys.meta_path.insert(0, _FINDER)
    root = sys.modules.setdefault(PACKAGE, ModuleType(PACKAGE, "Components of other people, by folder and hash."))
    root.__path__ = []
    try:
        with reported_in_one_line(source.folder):
            importlib.import_module(package)
    except BaseException:
        forget(package)
        raise
    return package


def source_of(package: str) -> Source:
    """The files of an imported folder."""
    return _sources[package]


def code_of(spec: type) -> str | None:
    """The hash of the plugin code beside a spec; None for a built-in spec."""
    source = _sources.get(spec.__module__.rpartition(".")[0])
    return None if source is None else source.sha256


def forget(package: str) -> None:
    """Drop a folder's modules; objects that refer to its classes keep them alive."""
    _sources.pop(package, None)
    for name in [name for name in sys.modules if name == package or name.startswith(f"{package}.")]:
        del sys.modules[name]


@contextmanager
def reported_in_one_line(folder: Path) -> Iterator[None]:
    """Turn exceptions from the code in `folder` into a ConfigError in one line: file, line, reason, fix."""
    try:
        yield
    except VsetuneError:
        raise
    except (Exception, SystemExit) as error:
        raise ConfigError(raised_in(error, folder)) from error


def raised_in(error: BaseException, folder: Path) -> Problem:
    """The place in `folder` where the error arose, the error, and how to fix it: `my_loss/loss.py:12: NameError: ...`
    """
    place, text, fix = place_of(error, folder) or folder, str(error), _fix(error, folder)
    if isinstance(error, SyntaxError) and error.filename:
        place, text, fix = f"{error.filename}:{error.lineno}", error.msg, _FIX
    text = one_line(re.sub(rf"{PACKAGE}\.\w+?_[0-9a-f]{{12}}(?=\.)", "", text)) if text.strip() else ""
    name = type(error).__name__
    return Problem.of(
        "VSE-C111", "plugins: {place}: {reason}; {fix}", place=place, reason=f"{name}: {text}" if text else name,
        fix=fix,
    )


def place_of(error: BaseException, folder: Path) -> str | None:
    """`file:line` of the innermost line in `folder` that an exception passed through; None if it passed through none.
    """
    frames = [
        frame for frame in traceback.extract_tb(error.__traceback__) if Path(frame.filename).is_relative_to(folder)
    ]
    return f"{frames[-1].filename}:{frames[-1].lineno}" if frames else None


_FIX = "fix this line"


def _fix(error: BaseException, folder: Path) -> str:
    if isinstance(error, ModuleNotFoundError) and error.name:
        name = error.name.partition(".")[0]
        if (folder / f"{name}.py").is_file() or (folder / name).is_dir():
            return f"write `from .{error.name} import ...`, with the dot: the folder is a package of its own"
        if name == "vsetune":
            return "this version has no such module; see the imports of a new draft: vsetune losses new NAME"
        if name != PACKAGE:
            return f"install {name} where trials run, or put the module into the folder and import it with a dot"
        if ".".join(error.name.split(".")[:2]) not in _sources:
            return "a component sees its own folder only; copy the module into it"
    return _FIX


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
        if source is None:
            return None
        inside = "/".join(words[2:])
        is_package = not inside or any(each.startswith(f"{inside}/") for each in source.files)
        file = f"{inside}/__init__.py".lstrip("/") if is_package else f"{inside}.py"
        if not is_package and file not in source.files:
            return None
        path_of_file = source.folder / file
        loader = _ReadSource(fullname, path_of_file, source.files.get(file, b""))
        inner = [str(path_of_file.parent)] if is_package else None
        return spec_from_file_location(fullname, path_of_file, loader=loader, submodule_search_locations=inner)


_FINDER = _Finder()
