"""Arrays computed from a data set, stored as .npy files beside it.

Several trials may request one at once: one computes it, the others wait. A file appears whole or not at all, and its
hash is stored beside it, so that an array that was damaged or exchanged is made again.
"""

from __future__ import annotations

import logging
import os
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import numpy as np

from vsetune.data.stored.plain_files import Flaw, mapped_array
from vsetune.data.stored.storage import OTHER_HASH
from vsetune.errors import DataError, Problem, StorageError
from vsetune.home.addresses import is_remote
from vsetune.home.hashes import sha256_of_file
from vsetune.home.home_files import find_in_home, keep_in_home
from vsetune.home.locks import take_lock
from vsetune.home.paths import home
from vsetune.home.whole_files import whole_file

_SEAL = ".sha256"
"""Suffix of the file with an array's hash. Arrays from before there were hashes, and those that a data set lists with a
hash of its own, have no such file."""
_ROWS_AT_ONCE = 4096
_MOST_OPEN = 16

_log = logging.getLogger(__name__)
_open: OrderedDict[Path, tuple[tuple[int, ...], np.ndarray]] = OrderedDict()
"""Arrays that this process has verified, for its next trial, with the identity of their files: mappings, which take no
memory."""


def cached_array(
    data_path: str, name: str, *, rows: int, make: Callable[[], np.ndarray], dtype: str = "float32", sealed: bool = True
) -> np.ndarray:
    """The array stored under this name, memory-mapped read-only; made and stored first if there is none.

    Stored in the data folder; if that is remote or cannot be written, in the `cache` folder of vsetune's home; if
    neither can be, the array is only returned. With a remote home it is stored there too, for other machines. name must
    contain everything that the content depends on. rows, dtype: of a sound array, which has two axes. sealed: a hash is
    stored beside it; not used if the data set will list the file with its hash.
    """
    folders = [_cache_folder()] if is_remote(data_path) else [Path(data_path), _cache_folder()]
    # Whether it must be made is checked again below, with a warning.
    kept = _first_sound(folders, name, rows, dtype, level=logging.DEBUG)
    if kept is not None:
        return kept
    with _one_at_a_time(name):
        kept = _first_sound(folders, name, rows, dtype)
        kept = _from_home(name, rows, dtype) if kept is None else kept
        if kept is not None:
            return kept
        made = make()
        made.setflags(write=False)
        for folder in folders:
            if _keep(folder / name, made, sealed=sealed):
                _to_home(folder / name)
                kept = _first_sound([folder], name, rows, dtype)  # mapped, so that trials on a node share its memory
                return made if kept is None else kept
        _log.warning("%s is computed again by every trial, cannot write to: %s", name, ", ".join(map(str, folders)))
        return made


def damaged_arrays(folder: Path) -> Iterator[Problem]:
    """A problem for each array in this folder that differs from its stored hash."""
    for seal in sorted(folder.glob(f"*.npy{_SEAL}")):
        path = seal.with_suffix("")
        if path.exists() and not _is_as_kept(path):
            yield OTHER_HASH(file=path, listed=seal.name, fix="delete it, it is computed again.")


def forget_arrays() -> None:
    """Drop the arrays that this process caches for its next trial."""
    _open.clear()


def _cache_folder() -> Path:
    """The folder for files that can be made again and have no place beside their data."""
    return home() / "cache"


def _from_home(name: str, rows: int, dtype: str) -> np.ndarray | None:
    """The array that another machine has made and stored under the remote home."""
    try:
        is_here = find_in_home(_cache_folder() / name)
    except StorageError as error:
        _log.warning("%s cannot be fetched (%s); computing it again", name, error)
        return None
    if is_here:
        _seal(_cache_folder() / name)
    return _first_sound([_cache_folder()], name, rows, dtype) if is_here else None


def _to_home(path: Path) -> None:
    try:
        keep_in_home(path)
    except StorageError as error:
        _log.warning("%s: other machines compute it again: %s", path.name, error)


def _first_sound(
    folders: list[Path], name: str, rows: int, dtype: str, *, level: int = logging.WARNING
) -> np.ndarray | None:
    for folder in folders:
        try:
            known = _still_open(folder / name)
            array = mapped_array(folder / name) if known is None else known
        except FileNotFoundError:
            continue
        except (Flaw, DataError, StorageError, OSError) as error:
            _log.log(level, "%s cannot be used (%s); computing it again", folder / name, error)
            continue
        if array is not known and not _is_as_kept(folder / name):
            _log.log(level, "%s is not what was kept, by its SHA-256; computing it again", folder / name)
            continue
        fits = array.ndim == 2 and len(array) == rows and array.dtype == np.dtype(dtype)
        if fits and (array is known or _are_finite(array)):
            _keep_open(folder / name, array)
            return array
        found = f"{array.shape} {array.dtype}"  # or contains numbers that are not finite
        _log.log(
            level, "%s is %s, need %d rows of finite %s; computing it again", folder / name, found, rows, dtype
        )
    return None


def _still_open(path: Path) -> np.ndarray | None:
    """An array of this process, if its file has not been replaced or written to."""
    found = _open.get(path)
    return found[1] if found is not None and found[0] == _identity(path) else None


def _keep_open(path: Path, array: np.ndarray) -> None:
    with suppress(OSError):
        _open[path] = _identity(path), array
        _open.move_to_end(path)
    while len(_open) > _MOST_OPEN:
        _open.popitem(last=False)


def _identity(path: Path) -> tuple[int, ...]:
    about = os.stat(path)
    return about.st_dev, about.st_ino, about.st_size, about.st_mtime_ns


def _are_finite(array: np.ndarray) -> bool:
    return array.dtype.kind != "f" or all(
        np.isfinite(array[start : start + _ROWS_AT_ONCE]).all() for start in range(0, len(array), _ROWS_AT_ONCE)
    )


def _keep(path: Path, array: np.ndarray, *, sealed: bool) -> bool:
    """Write the file in one step; False when the folder refuses."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with whole_file(path, durable=False, by_many=True) as stream:
            np.save(stream, array, allow_pickle=False)
        if sealed:
            _seal(path)
    except OSError as error:
        _log.info("%s cannot be written (%s)", path, error.strerror)
        return False
    return True


def _seal(path: Path) -> None:
    """Store the hash of an array beside it. OSError."""
    with whole_file(_seal_of(path), durable=False, by_many=True) as stream:
        stream.write(sha256_of_file(path).encode())


def _is_as_kept(path: Path) -> bool:
    """Whether an array matches the hash beside it, if there is one. False when either cannot be read."""
    try:
        return sha256_of_file(path) == _seal_of(path).read_text().strip()
    except FileNotFoundError:
        return path.exists()
    except (OSError, UnicodeDecodeError):
        return False


def _seal_of(path: Path) -> Path:
    return path.with_name(path.name + _SEAL)


@contextmanager
def _one_at_a_time(name: str) -> Iterator[None]:
    """Hold the lock of this name; without working locks, every process computes."""
    with ExitStack() as stack:
        try:
            folder = _cache_folder() / "locks"
            folder.mkdir(parents=True, exist_ok=True)
            stack.enter_context(take_lock(folder / f"{name}.lock", wait_s=None))
        except OSError as error:
            _log.info("no lock for %s (%s)", name, error)
        yield
