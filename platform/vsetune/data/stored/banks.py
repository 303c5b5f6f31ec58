"""The banks of this node: splits of data sets as plain arrays, made once from their shards and shared by all processes.

They are in the folder `banks` of the node cache's folder:

    KEY.arrays      see `bank_file`; its modification time is a seal, set when its hash was verified
    KEY.json        written last: the shape and the SHA-256 of the arrays
    locks/          one lock per bank, and `room` for making one

A key is made of the data set's fingerprint and the split. Arrays that are missing, damaged, half written or from
another start of the machine are detected, and made again if needed: deleting the folder loses nothing. Decision 0047.
"""

from __future__ import annotations

import logging
import os
import shutil
import threading
import time
from collections import OrderedDict
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import IO, cast

import numpy as np

from vsetune.config.sources.trial_inputs import NetworkReads
from vsetune.data.stored.bank_file import BankShape, SplitBank
from vsetune.data.stored.dataset import Dataset
from vsetune.data.stored.manifest import SplitInfo
from vsetune.data.stored.plain_files import Flaw
from vsetune.data.stored.shards import ImageSample, read_shard
from vsetune.errors import DataError, StorageError
from vsetune.storage.hashes import HashingWriter, fingerprint_of, sha256_of_file
from vsetune.storage.locks import take_lock
from vsetune.storage.node_cache import node_cache, seal_of
from vsetune.storage.whole_files import partials_in, read_json, readable_json, whole_file

_FORMAT = 1
"""Part of the key: raise it when the arrays of an equal split change."""
_WAIT_S = 600.0
"""Limit on the wait for another process that makes the same bank: a stopped process must not block the rest."""
_IDLE_S = 3600.0
"""A bank that was not opened for this long may be removed to make room for another one."""
_SHARE_OF_MEMORY = 0.5
"""Of the machine's or its container's memory: larger banks would be read from disk again every epoch, image by image.
"""
_SHARE_OF_DISK = 0.5
_MOST_OPEN = 12

_log = logging.getLogger(__name__)


class _NoRoom(Exception):
    """The bound, or half of the disk, is taken by banks in use."""


_open: OrderedDict[str, SplitBank] = OrderedDict()
_streamed: set[str] = set()
"""Keys of banks that this process could not get; the reason is logged."""
_lock = threading.Lock()


def bank_of(dataset: Dataset, split: str) -> SplitBank | None:
    """The bank of a split, made first if there is none; None if `dataset.reading` or this node leave it to the shards.
    An obstacle is logged in one line.

    DataError and StorageError of the shards that it is made of.
    """
    if dataset.reading.source == "stream":
        return None
    folder = _folder()
    key = fingerprint_of({"format": _FORMAT, "data": dataset.fingerprint, "split": split})
    place = str(folder / key)
    with _lock:
        opened = _still_sound(place)
        if opened is not None or place in _streamed:
            return opened
        problem = _too_large(dataset, folder) if dataset.reading.source == "auto" else None
        found = None if problem else _found_or_made(dataset, split, folder, key)
        if found is None:
            _say(place, dataset, problem)
            return None
        _open[place] = found
        while len(_open) > _MOST_OPEN:
            _open.popitem(last=False)
        return found


def forget_banks() -> None:
    """Close the banks of this process, and retry those that it could not get."""
    with _lock:
        _open.clear()
        _streamed.clear()


def _folder() -> Path:
    return node_cache().folder / "banks"


def _still_sound(place: str) -> SplitBank | None:
    """The bank, if it is open already and its file was not removed or written to; otherwise drop it, which frees its
    space."""
    bank = _open.get(place)
    if bank is None:
        return None
    if os.fstat(bank.descriptor).st_nlink and bank.is_sealed:
        _open.move_to_end(place)
        _note_use(bank)
        return bank
    del _open[place]
    return None


def _too_large(dataset: Dataset, folder: Path) -> str | None:
    """The reason why `auto` does not make banks of all splits of this data set; None if it does."""
    size = sum(bytes_of(dataset, split) for split in dataset.manifest.splits.values())
    if size > dataset.reading.bank_bytes:
        return f"resources.bank_gib allows {dataset.reading.bank_bytes:,} bytes; raise it"
    memory = int(_SHARE_OF_MEMORY * _memory_bytes())
    if size > memory:
        return f"half of the memory here is {memory:,} bytes; set resources.reading: bank if its disk is a fast one"
    return None


def _found_or_made(dataset: Dataset, split: str, folder: Path, key: str) -> SplitBank | None:
    """The bank; None if folder or disk refuse, which is logged."""
    place = str(folder / key)
    try:
        found = _sealed(folder, key)
        if found is not None:
            return found
        (folder / "locks").mkdir(parents=True, exist_ok=True)
        with take_lock(folder / "locks" / f"{key}.lock", wait_s=_WAIT_S):
            return _sealed(folder, key) or _sealed_again(folder, key) or _made(dataset, split, folder, key)
    except BlockingIOError:
        _say(place, dataset, f"another process has not made it in {_WAIT_S:.0f} s; end that one if it hangs")
    except OSError as error:
        _say(place, dataset, f"{folder} takes nothing ({error.strerror}); free space there")
    return None


def _sealed(folder: Path, key: str) -> SplitBank | None:
    """The bank, if it has not been written to since its hash was verified."""
    shape = _described(folder, key)
    arrays = folder / f"{key}.arrays"
    if shape is None:
        return None
    try:
        descriptor = os.open(arrays, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    except FileNotFoundError:
        return None
    try:
        bank = SplitBank(arrays, descriptor, shape[0])
    except Flaw:
        return None
    if not bank.is_sealed:
        return None
    _note_use(bank)
    return bank


def _sealed_again(folder: Path, key: str) -> SplitBank | None:
    """A bank that lost its seal, as after a restart of the machine, and whose content is still right."""
    described, arrays = _described(folder, key), folder / f"{key}.arrays"
    if described is None or not arrays.is_file():
        return None
    if sha256_of_file(arrays) != described[1]:
        _log.warning("%s: damaged since it was made; making it again", arrays)
        return None
    _seal(arrays, key)
    return _sealed(folder, key)


def _described(folder: Path, key: str) -> tuple[BankShape, str] | None:
    """(shape, SHA-256) from the file beside the arrays; None if there is no usable one."""
    try:
        plain = read_json(folder / f"{key}.json")
        return None if plain is None else (BankShape(**plain["shape"]), str(plain["sha256"]))
    except (DataError, StorageError, KeyError, TypeError):
        return None


def _made(dataset: Dataset, split: str, folder: Path, key: str) -> SplitBank | None:
    """Make the bank. The caller holds its lock."""
    info, arrays = dataset.split(split), folder / f"{key}.arrays"
    with suppress(FileNotFoundError):
        (folder / f"{key}.json").unlink()
    begin = time.monotonic()
    try:
        with whole_file(arrays, durable=False) as file:
            with take_lock(folder / "locks" / "room.lock", wait_s=_WAIT_S):
                _take_room(file, bytes_of(dataset, info), folder, dataset)
            shape, sha256 = write_bank(dataset, info, file)
            file.flush()
            _seal(file.fileno(), key)  # this file, not one that another process has put in its place
    except _NoRoom as error:
        _say(str(folder / key), dataset, str(error))
        return None
    with whole_file(folder / f"{key}.json", durable=False) as file:
        file.write(readable_json({"shape": asdict(shape), "sha256": sha256}))
    _log.info("%s: %s of %s kept in %s, %.2f GB in %.1f s", dataset.path, split, dataset.manifest.name, arrays,
              shape.bytes / 1e9, time.monotonic() - begin)
    return _sealed(folder, key)


def _take_room(file: IO[bytes], size: int, folder: Path, dataset: Dataset) -> None:
    """Allocate disk space for a new file of this folder, after removing banks that were not opened lately. _NoRoom."""
    _remove_abandoned(folder)
    kept = sorted(_uses(folder.glob("*.arrays")))
    used = sum(bytes_ for _, bytes_, _ in [*kept, *_uses(partials_in(folder))])
    most = int(_SHARE_OF_DISK * (shutil.disk_usage(folder).free + used))
    if dataset.reading.source == "auto":
        most = min(most, dataset.reading.bank_bytes)
    for opened, bytes_, path in kept:
        if used + size <= most or time.time() - opened < _IDLE_S:
            break
        path.unlink(missing_ok=True)
        path.with_suffix(".json").unlink(missing_ok=True)
        used -= bytes_
    if used + size > most:
        raise _NoRoom(f"{folder} holds {used:,} bytes and may hold {most:,}, this takes {size:,}; free space there")
    os.posix_fallocate(file.fileno(), 0, size)


def _uses(paths: Iterable[Path]) -> Iterator[tuple[float, int, Path]]:
    """(last use, bytes, path) of those paths that still exist."""
    for path in paths:
        with suppress(FileNotFoundError):
            about = path.stat()
            yield about.st_atime, about.st_size, path


def _remove_abandoned(folder: Path) -> None:
    """Remove files that killed processes left half written."""
    for partial in partials_in(folder):
        key = partial.name.partition(".")[0]
        with suppress(OSError), take_lock(folder / "locks" / f"{key}.lock", wait_s=0):
            partial.unlink(missing_ok=True)


def _seal(arrays: Path | int, key: str) -> None:
    os.utime(arrays, ns=(time.time_ns(), seal_of(key)))


def _note_use(bank: SplitBank) -> None:
    with suppress(OSError):  # another user's file: its age then counts from that user's last use
        _seal(bank.descriptor, bank.path.stem)


def _say(place: str, dataset: Dataset, problem: str | None) -> None:
    """Log the problem, once in this process."""
    if place not in _streamed and problem is not None:
        _log.warning("%s: read from its shards, not from arrays on this node: %s", dataset.path, problem)
    _streamed.add(place)


def _memory_bytes() -> int:
    """Memory of the machine, or of its container if that has less."""
    found = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    with suppress(OSError, ValueError):
        found = min(found, int(Path("/sys/fs/cgroup/memory.max").read_text()))
    return found


def _forget_in_child() -> None:
    """Replace the lock, which may be held by a thread that a forked process does not have."""
    global _lock
    _lock = threading.Lock()


os.register_at_fork(after_in_child=_forget_in_child)


_BYTES_OF_A_CAPTION = 128
"""Approximate bytes of a caption: sixteen ids, and its place."""


def bytes_of(dataset: Dataset, split: SplitInfo) -> int:
    """Approximate bytes of the bank of a split, from the manifest only."""
    features = dataset.manifest.features
    an_image = dataset.regions * (dataset.width * 2 + (16 if features.boxes else 0)) + 16
    return split.images * an_image + split.captions * _BYTES_OF_A_CAPTION


def write_bank(dataset: Dataset, split: SplitInfo, file: IO[bytes]) -> tuple[BankShape, str]:
    """Write a bank into an empty file; space allocated beyond its end is freed. Returns (shape, SHA-256).

    DataError for a missing or damaged shard, StorageError if it cannot be reached, OSError of the file.
    """
    writer = HashingWriter(file)
    sink = cast(IO[bytes], writer)
    tails = _Tails(split, dataset.regions, has_boxes=dataset.manifest.features.boxes)
    for image in _images(dataset, split):
        padded = np.zeros((dataset.regions, dataset.width), "<f2")
        padded[: len(image.features)] = image.features
        sink.write(padded.tobytes())
        tails.add(image)
    shape = tails.shape(dataset.width)
    sink.write(bytes(shape.tail - writer.written))
    for array in tails.arrays(shape):
        sink.write(array.tobytes())
    file.truncate(shape.bytes)
    return shape, writer.sha256


def _images(dataset: Dataset, split: SplitInfo) -> Iterator[ImageSample]:
    with dataset.fetched_ahead(split.shards) as shards:
        for shard in shards:
            yield from read_shard(dataset, shard, reads=NetworkReads(boxes=True), hashed=True)


class _Tails:
    """The arrays behind the features, collected image by image."""

    def __init__(self, split: SplitInfo, regions: int, *, has_boxes: bool) -> None:
        self._split, self._regions, self._has_boxes = split, regions, has_boxes
        self._counts: list[int] = []
        self._first_captions = [0]
        self._ids: list[np.ndarray] = []
        self._boxes: list[np.ndarray] = []

    def add(self, image: ImageSample) -> None:
        self._counts.append(len(image.features))
        self._first_captions.append(self._first_captions[-1] + len(image.tokens))
        self._ids += [ids.astype("<i4") for ids in image.tokens]
        if image.boxes is not None:
            padded = np.zeros((self._regions, 4), "<f4")
            padded[: len(image.boxes)] = image.boxes
            self._boxes.append(padded)

    def shape(self, width: int) -> BankShape:
        words = sum(map(len, self._ids))
        return BankShape(self._split.images, self._split.captions, self._regions, width, words, self._has_boxes)

    def arrays(self, shape: BankShape) -> Iterator[np.ndarray]:
        """The arrays in file order."""
        lengths = np.array([0, *map(len, self._ids)], "<i8")
        made = {
            "region_counts": self._counts, "first_captions": self._first_captions, "starts": lengths.cumsum(),
            "boxes": self._boxes, "ids": np.concatenate(self._ids) if self._ids else [],
        }
        for name, (kind, sides) in shape.arrays().items():
            yield np.ascontiguousarray(np.asarray(made[name], kind).reshape(sides))
