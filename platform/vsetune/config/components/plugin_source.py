"""The files of a plugin component: which files count, their hash, and their content when they were read.

A file counts unless it is a test, documentation, hidden, or made by Python. The hashed files are the files that are
copied.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from vsetune.errors import ConfigError
from vsetune.files.hashes import sha256_of_pieces

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
            f"plugins: {folder}: {len(paths):,} files, need at most {MOST_FILES:,}; name the folder of the component "
            "alone, and keep data elsewhere"
        )
    files: dict[str, bytes] = {}
    total = 0
    for path in paths:
        files[path] = _content(folder / path, most=MOST_BYTES - total + 1)
        total += len(files[path])
        if total > MOST_BYTES:
            raise ConfigError(
                f"plugins: {folder}: more than {MOST_BYTES >> 20} MiB of files (with {path}), which would travel with "
                "every trial; keep weights and data elsewhere and give their path as a setting"
            )
    return Source(folder, files, digest_of(files))


def digest_of(files: Mapping[str, bytes]) -> str:
    """SHA-256 of paths and contents, independent of the order of the files."""
    return sha256_of_pieces(
        piece for path in sorted(files) for piece in (f"{path}\0{len(files[path])}\0".encode(), files[path])
    )


def changed_files(before: Source, now: Source) -> list[str]:
    """Differences, for people: `loss.py changed`, `helper.py is new`, `helper.py is gone`."""
    found = []
    for path in sorted({*before.files, *now.files}):
        if path not in now.files:
            found.append(f"{path} is gone")
        elif path not in before.files:
            found.append(f"{path} is new")
        elif before.files[path] != now.files[path]:
            found.append(f"{path} changed")
    return found


def _files(folder: Path) -> Iterator[Path]:
    for parent, names, files in os.walk(folder):
        names[:] = sorted(name for name in names if not name.startswith(".") and name not in _LEFT_OUT_FOLDERS)
        for name in names:
            if (Path(parent) / name).is_symlink():
                raise ConfigError(
                    f"plugins: {Path(parent) / name}: is a link to a folder, which would not travel; copy the folder "
                    "here"
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
            raise ConfigError(f"plugins: {path}: need a regular file; remove it, or put the file itself there")
        with path.open("rb") as stream:
            return stream.read(most)
    except OSError as error:
        raise ConfigError(f"plugins: {path}: cannot be read ({error.strerror}); mend its rights") from error
