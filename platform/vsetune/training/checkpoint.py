"""The files that an attempt writes, `checkpoint.pt` and `best.safetensors`, and when the next is due.

A checkpoint contains its best weights. The file beside it may be older, newer or missing, for example after a process
died between two writes.
"""

from __future__ import annotations

import errno
import io
import logging
import os
import pickle
import re
import stat
import struct
import time
import zipfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import safetensors.torch
import torch
from safetensors import SafetensorError
from torch import Tensor

from vsetune.errors import DamagedCheckpoint, StaleCheckpoint, StorageError, one_line
from vsetune.home.hashes import sha256_hex, sha256_of_file
from vsetune.home.whole_files import (
    free_name,
    move_in_place,
    remove_partials,
    sync_file,
    unreadable,
    write_whole,
)
from vsetune.networks.importing.stored import WeightNotes
from vsetune.records.studies import BEST_FILE
from vsetune.training.executions import ExecutionLog

_BEFORE, _AFTER = b"\nvsetune SHA-256 ", b"\n"
_SEAL = re.compile(re.escape(_BEFORE) + rb"([0-9a-f]{64})" + re.escape(_AFTER))
_LENGTH = len(_BEFORE) + 64 + len(_AFTER)


def seal_of(content: bytes | memoryview) -> bytes:
    """The seal to append to the content: its SHA-256, so that every change to the file is detected.

    torch searches its archive from the end and skips the seal.
    """
    return _BEFORE + sha256_hex(content).encode() + _AFTER


def is_sealed(path: Path) -> bool:
    """Whether the file is unchanged since it was sealed. OSError when it cannot be read."""
    size = path.stat().st_size
    with open(path, "rb") as stream:
        stream.seek(max(0, size - _LENGTH))
        found = _SEAL.fullmatch(stream.read(_LENGTH))
    return found is not None and sha256_of_file(path, first=size - _LENGTH) == found[1].decode()


_log = logging.getLogger(__name__)

FORMAT = 1
CHECKPOINT_FILE = "checkpoint.pt"
EARLIER_BEST_FILE = "checkpoint-best.safetensors"
"""The copy of the best weights beside a checkpoint of earlier versions."""
OF_DAMAGE = (
    RuntimeError, ValueError, TypeError, LookupError, AttributeError, AssertionError, ArithmeticError, EOFError,
    ImportError, MemoryError, struct.error, pickle.UnpicklingError, zipfile.BadZipFile, SafetensorError,
)
"""Exceptions that torch, safetensors and our own code have raised on changed files."""


class CheckpointFolder:
    """The checkpoint and the best weights of one trial. fingerprint: of the TrialSpec; data: of the data set."""

    def __init__(self, folder: Path, *, fingerprint: str, data: str) -> None:
        self.path = folder / CHECKPOINT_FILE
        self.best_path = folder / BEST_FILE
        self._folder = folder
        self._identity = {"format": FORMAT, "fingerprint": fingerprint, "data": data}
        self._best_sha256: str | None = None
        self._best_is_durable = False

    def load(self) -> dict[str, Any] | None:
        """The state last saved, or None; the best weights that belong to it are in their file again, and partial files
        of a killed process are removed.

        DamagedCheckpoint when it differs from what was saved; StaleCheckpoint when it belongs to another trial or data
        set; StorageError when it cannot be read.
        """
        remove_partials(self._folder)
        if not self.path.exists():
            return None
        try:
            saved = self._read()
        except OSError as error:
            if error.errno in {None, errno.EINVAL}:  # of an archive that sends its reader to impossible places
                raise self._damaged(one_line(error)) from error
            raise unreadable(self.path, error) from error
        self._check_identity(saved)
        state = saved.get("state")
        step = state.get("best_step") if isinstance(state, dict) else "nothing"
        if not isinstance(state, dict) or not (step is None or (type(step) is int and step >= 0)):
            raise self._damaged(f"its best step is {one_line(step)}, need a count")
        self._put_back_best(saved)
        if step is not None:
            self._check_best()
        return state

    def save(self, state: Mapping[str, Any]) -> None:
        """Replace the checkpoint. state: plain data and tensors, with `best_step`, the step of the last `keep_best`.

        StorageError when it cannot be written.
        """
        best = None
        if state["best_step"] is not None:
            if not self._best_is_durable:
                sync_file(self.best_path)
            best = _read_whole(self.best_path)
        buffer, kept = io.BytesIO(), {"best_sha256": self._best_sha256, "best": best}
        torch.save({**self._identity, "sealed": True, **kept, "state": dict(state)}, buffer)
        with buffer.getbuffer() as written:
            seal = seal_of(written)
        buffer.seek(0, io.SEEK_END)
        buffer.write(seal)
        write_whole(self.path, buffer.getbuffer(), durable=True)
        self._best_is_durable = best is not None

    def keep_best(self, weights: Mapping[str, Tensor], *, step: int, notes: WeightNotes | None = None) -> None:
        """Replace the best weights; the next `save` must refer to them. notes: stored in their file.

        StorageError when they cannot be written.
        """
        # one entry, since safetensors writes several in any order and equal weights shall be equal files
        metadata = {"step": str(step)} if notes is None else notes.to_metadata(step=step)
        content = safetensors.torch.save(dict(weights), metadata=metadata)
        write_whole(self.best_path, content, durable=False)
        self._best_is_durable = False
        self._best_sha256 = sha256_hex(content)

    def load_best(self) -> dict[str, Tensor]:
        """The weights of the best validation, on the CPU. DamagedCheckpoint when they are not there or changed."""
        try:
            self._check_best()
            return safetensors.torch.load_file(self.best_path, device="cpu")
        except (OSError, *OF_DAMAGE) as error:
            raise self._damaged_best(one_line(error)) from error

    def misfit(self, reason: str) -> StaleCheckpoint:
        """The error for a loaded state that does not fit the trial; its seal shows that it was written like this."""
        return StaleCheckpoint(
            "VSE-T011", "{file}: does not fit this trial ({reason}), so another version of vsetune wrote it; use that "
            "version, or remove {folder} to start the trial again.", file=self.path, reason=reason, folder=self._folder,
        )

    def set_aside(self, reason: str) -> list[Path]:
        """Move damaged files to `NAME.damaged-N`, so that the trial starts again. Returns where they are now.

        Checkpoint and best weights are moved together. They stay when only the count of executions is damaged; that
        count stays when it is sound. StorageError when a file cannot be moved.
        """
        damaged = ExecutionLog(self._folder).damaged_files()
        if not damaged or not self._is_readable():
            damaged += [self.path, self.best_path]
        moved = []
        for path in damaged:
            if not os.path.lexists(path):
                continue
            target = free_name(path, "damaged")
            try:
                move_in_place(path, target, durable=False)
            except OSError as error:
                raise StorageError(
                    "VSE-T013", "{file}: cannot be set aside ({reason}); move it by hand.", file=path,
                    reason=error.strerror,
                ) from error
            moved.append(target)
        self._best_sha256 = None
        _log.warning("set aside %s (%s)", ", ".join(map(str, moved)) or "nothing", one_line(reason))
        return moved

    def _is_readable(self) -> bool:
        try:
            self._put_back_best(self._read())
            self._check_best()
        except (OSError, DamagedCheckpoint):
            return False
        return True

    def _read(self) -> dict[str, Any]:
        if not stat.S_ISREG(self.path.stat().st_mode):
            raise self._damaged("no regular file")
        if not is_sealed(self.path):
            raise self._damaged("its SHA-256 is not the one at its end")
        try:
            saved = torch.load(self.path, map_location="cpu", weights_only=True)
        except OF_DAMAGE as error:
            raise self._damaged(one_line(str(error).strip().partition("\n")[0] or type(error).__name__)) from error
        if not isinstance(saved, dict):
            raise self._damaged(f"holds a {type(saved).__name__}, need a state")
        return saved

    def _put_back_best(self, saved: Mapping[str, Any]) -> None:
        """Write the best weights that belong to a checkpoint, unless they are in their file."""
        self._best_sha256, copy = saved.get("best_sha256"), saved.get("best")
        earlier = self._folder / EARLIER_BEST_FILE
        try:
            if isinstance(copy, Tensor) and copy.dtype == torch.uint8:
                if not self.best_path.is_file() or sha256_of_file(self.best_path) != self._best_sha256:
                    write_whole(self.best_path, copy.numpy().tobytes(), durable=True)
            elif earlier.is_file() and self._best_sha256 in (None, sha256_of_file(earlier)):
                move_in_place(earlier, self.best_path, durable=False)
            earlier.unlink(missing_ok=True)
        except OSError as error:
            raise StorageError(
                "VSE-T014", "{folder}: cannot be tidied ({reason}); check its rights.", folder=self._folder,
                reason=error.strerror,
            ) from error

    def _check_best(self) -> None:
        try:
            about = self.best_path.stat()
            if not stat.S_ISREG(about.st_mode):
                raise self._damaged_best("no regular file")
            if self._best_sha256 is not None and sha256_of_file(self.best_path) != self._best_sha256:
                raise self._damaged_best("its SHA-256 is not the one in the checkpoint")
        except FileNotFoundError as error:
            raise self._damaged_best("no such file") from error
        except OSError as error:
            raise unreadable(self.best_path, error) from error

    def _check_identity(self, saved: dict[str, Any]) -> None:
        for key, value in self._identity.items():
            found = saved.get(key)
            if type(found) is not type(value):
                raise self._damaged(f"its {_MEANING[key]} is {one_line(found, most=60)}")
            if found != value:
                raise StaleCheckpoint(
                    "VSE-T012", "{file}: its {what} is {got}, this one is {need}; use another folder, or remove this "
                    "one to start the trial again.", file=self.path, what=_MEANING[key], got=one_line(found),
                    need=value,
                )

    def _damaged(self, reason: str) -> DamagedCheckpoint:
        return DamagedCheckpoint(
            "VSE-T010", "{file}: damaged ({reason}); remove {folder} to start the trial again.", file=self.path,
            reason=reason, folder=self._folder,
        )

    def _damaged_best(self, reason: str) -> DamagedCheckpoint:
        return DamagedCheckpoint(
            "VSE-T010", "{file}: damaged ({reason}); remove {folder} to start the trial again.", file=self.best_path,
            reason=reason, folder=self._folder,
        )


def set_aside(folder: Path, reason: str) -> list[Path]:
    """`CheckpointFolder.set_aside` of the folder of any trial."""
    return CheckpointFolder(folder, fingerprint="", data="").set_aside(reason)


def _read_whole(path: Path) -> Tensor:
    """The bytes of a file, as a tensor that a checkpoint can contain. StorageError when it cannot be read."""
    try:
        return torch.frombuffer(bytearray(path.read_bytes()), dtype=torch.uint8)
    except OSError as error:
        raise unreadable(path, error) from error


_MEANING = {"format": "format", "fingerprint": "trial fingerprint", "data": "data fingerprint"}


class CheckpointPace:
    """share: of the time of a trial that checkpoints may take, above 0, at most 1; with 1 a checkpoint is always due.

    After one that took s seconds none is due for s (1 / share - 1) seconds. The first is due immediately, so a
    continued trial saves its work at its first validation. clock: in seconds.
    """

    def __init__(self, share: float, *, clock: Callable[[], float] = time.perf_counter) -> None:
        self._pause_per_second = 1 / share - 1
        self._clock = clock
        self._not_before = float("-inf")

    def is_due(self) -> bool:
        """Whether a checkpoint should be written now."""
        return self._clock() >= self._not_before

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Context around the writing of a checkpoint, which measures its time."""
        begin = self._clock()
        yield
        end = self._clock()
        self._not_before = end + (end - begin) * self._pause_per_second
