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
import sys
import threading
import time
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict
from itertools import chain
from pathlib import Path
from typing import IO, cast

import numpy as np

from vsetune.config.sources.trial_inputs import NetworkReads
from vsetune.data.stored.bank_file import BankShape, SplitBank
from vsetune.data.stored.dataset import Dataset
from vsetune.data.stored.manifest import SplitInfo
from vsetune.data.stored.shards import ImageSample, read_shard
from vsetune.errors import DataError, StorageError
from vsetune.home.hashes import HashingWriter, fingerprint_of
from vsetune.home.node_cache import NoRoom, SealedFiles, node_cache, seal_of
from vsetune.home.whole_files import read_json, readable_json, whole_file

_FORMAT = 1
"""Part of the key: raise it when the arrays of an equal split change."""
_WAIT_S = 600.0
"""Limit on the wait for another process that makes the same bank: a stopped process must not block the rest."""
_IDLE_S = 3600.0
"""A bank that was not opened for this long may be removed to make room for another one."""
_SHARE_OF_MEMORY = 0.5
"""Of the machine's or its container's memory: larger banks would be read from disk again every epoch, image by image.
"""
_MOST_OPEN = 12

_log = logging.getLogger(__name__)


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
        problem = _too_large(dataset) if dataset.reading.source == "auto" else None
        found = None if problem else _found_or_made(dataset, split, folder, key)
        if found is None:
            _log_once(place, dataset, problem)
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
        with suppress(OSError):  # another user's file: its age then counts from that user's last use
            os.utime(bank.descriptor, ns=(time.time_ns(), seal_of(bank.path.stem)))
        return bank
    del _open[place]
    return None


def _too_large(dataset: Dataset) -> str | None:
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
    place, reading = str(folder / key), dataset.reading
    files = SealedFiles(folder, reading.bank_bytes if reading.source == "auto" else sys.maxsize, ".arrays", _IDLE_S)
    try:
        found = _sealed(files, key)
        if found is not None:
            return found
        with files.lock(key, wait_s=_WAIT_S):
            return _sealed(files, key) or _sealed_again(files, key) or _made(dataset, split, files, key)
    except BlockingIOError:
        _log_once(place, dataset, f"another process has not made it in {_WAIT_S:.0f} s; end that one if it hangs")
    except OSError as error:
        _log_once(place, dataset, f"{folder} takes nothing ({error.strerror}); free space there")
    return None


def _sealed(files: SealedFiles, key: str) -> SplitBank | None:
    """The bank, if it has not been written to since its hash was verified."""
    described = _described(files.folder, key)
    descriptor = None if described is None else files.open_sealed(key, described[0].bytes)
    return None if described is None or descriptor is None else SplitBank(files.path(key), descriptor, described[0])


def _sealed_again(files: SealedFiles, key: str) -> SplitBank | None:
    """A bank that lost its seal, as after a restart of the machine, and whose content is still right."""
    described = _described(files.folder, key)
    return None if described is None or not files.seal_again(key, described[1]) else _sealed(files, key)


def _described(folder: Path, key: str) -> tuple[BankShape, str] | None:
    """(shape, SHA-256) from the file beside the arrays; None if there is no usable one."""
    try:
        plain = read_json(folder / f"{key}.json")
        return None if plain is None else (BankShape(**plain["shape"]), str(plain["sha256"]))
    except (DataError, StorageError, KeyError, TypeError):
        return None


def _made(dataset: Dataset, split: str, files: SealedFiles, key: str) -> SplitBank | None:
    """Make the bank. The caller holds its lock."""
    info, arrays, description = dataset.split(split), files.path(key), files.folder / f"{key}.json"
    description.unlink(missing_ok=True)
    begin = time.monotonic()
    try:
        with whole_file(arrays, durable=False) as file:
            if not files.take_room(file, bytes_of(dataset, info)):
                raise NoRoom
            shape, sha256 = write_bank(dataset, info, file)
            file.flush()
            files.seal(key, file.fileno())  # this file, not one that another process has put in its place
    except NoRoom:
        _log_once(str(files.folder / key), dataset, f"{files.folder} is full of arrays in use; free space there")
        return None
    with whole_file(description, durable=False) as file:
        file.write(readable_json({"shape": asdict(shape), "sha256": sha256}))
    _log.info("%s: %s of %s kept in %s, %.2f GB in %.1f s", dataset.path, split, dataset.manifest.name, arrays,
              shape.bytes / 1e9, time.monotonic() - begin)
    return _sealed(files, key)


def _log_once(place: str, dataset: Dataset, problem: str | None) -> None:
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
    with dataset.fetched_ahead(split.shards) as shards:
        images = (read_shard(dataset, shard, reads=NetworkReads(boxes=True), hashed=True) for shard in shards)
        for image in chain.from_iterable(images):
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
