"""A local folder mirrored under an `s3://` prefix, whole and consistent, sent by a thread of its own.

`send` takes a snapshot of the files as hard links, since all our files are replaced whole, so writers never wait for
the network. The thread sends the newest version; an older one that was not sent yet is dropped. While the server is
away it retries without end, with pauses growing from 1 s to 60 s; `settle` waits until all is sent.
"""

from __future__ import annotations

import itertools
import logging
import os
import shutil
import stat
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path

from vsetune.errors import DataError, StorageError
from vsetune.storage.locks import take_lock
from vsetune.storage.mirror_contents import Contents, MirrorWriter, Signature, Taken, TakenOver, fetch, read_contents
from vsetune.storage.whole_files import free_name, make_folder, move_in_place, read_json, write_json

_log = logging.getLogger(__name__)
FIRST_PAUSE_S, LONGEST_PAUSE_S = 1.0, 60.0
MIRROR_FOLDER = ".mirror"
_NOTE = "note.json"
_LOCK_WAIT_S = 60.0
SET_ASIDE = "superseded"
_COMPARED_BYTES = 1 << 20
_INLINE_BYTES = 4096
"""Smaller files are stored in the list itself."""


@dataclass(frozen=True)
class MirroredFiles:
    """Which files of a folder are mirrored.

    names: of the files of a folder, relative, in the order in which they are read. refreshed: whether the thread sends
    this file by itself every `refresh_s` seconds. growing: logs that are only appended to. kept_aside: files whose
    local version is renamed, not removed, on a fetch if it is not the beginning of the version under the prefix.
    """

    names: Callable[[Path], Iterable[str]]
    refreshed: Callable[[str], bool]
    refresh_s: float
    growing: frozenset[str] = frozenset()
    kept_aside: frozenset[str] = frozenset()


@dataclass(frozen=True)
class _Snapshot:
    files: Mapping[str, Taken]
    in_part: bool
    folder: Path | None = None


class Mirror:
    """The mirror of one folder, used by one process at a time; call `fetch` first.

    A second process makes the first one's next version fail (TakenOver); the first then leaves the prefix alone.
    """

    def __init__(self, folder: Path, url: str, files: MirroredFiles) -> None:
        self.url = url
        self.was_brought = False
        """Whether `fetch` brought the files from the server rather than finding them here."""
        self._folder, self._files = folder, files
        self._place = folder / MIRROR_FOLDER
        self._writer: MirrorWriter | None = None
        self._changed = threading.Condition()
        self._newest: _Snapshot | None = None
        self._taken = self._sent = 0
        self._numbers = itertools.count()
        self._trouble: StorageError | None = None
        self._is_closing = False
        self._thread: threading.Thread | None = None
        self._lock: ExitStack | None = None

    def fetch(self) -> None:
        """Make the folder equal to the prefix. Local files that continue the version under the prefix stay.

        StorageError; DamagedObject when a file cannot be had whole. Nothing is sent yet. Waits for another process of
        this machine that still has the folder locked.
        """
        make_folder(self._folder.parent)
        self._lock = self._lock or self._locked()
        make_folder(self._place)
        for left in self._place.glob("snapshot-*"):
            shutil.rmtree(left, ignore_errors=True)
        contents = read_contents(self.url)
        if contents.version not in self._noted():
            contents = self._bring()
        self._writer = MirrorWriter(self.url, contents, before_put=self._note)

    def forget(self) -> None:
        """Mark the local files as untrusted: the next `fetch` brings everything anew."""
        with suppress(OSError):
            (self._place / _NOTE).unlink(missing_ok=True)

    def send(self) -> None:
        """Take a snapshot of the files, to be sent by the thread. StorageError when this disk refuses."""
        snapshot = self._take(lambda name: True, in_part=False)
        with self._changed:
            self._drop(self._newest)
            self._newest = snapshot
            self._taken += 1
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="mirror", daemon=True)
                self._thread.start()
            self._changed.notify_all()

    def settle(self, within_s: float) -> None:
        """Wait until the last version is sent. StorageError when it is not within `within_s`, or never will be."""
        with self._changed:
            self._changed.wait_for(lambda: self._sent >= self._taken or self._is_lost(), within_s)
            if self._sent < self._taken:
                raise self._trouble or StorageError(
                    "VSE-O039", "{url}: not sent within {within_s:g} s; check the network, then resume.", url=self.url,
                    within_s=within_s,
                )

    def check(self) -> None:
        """TakenOver when another process has taken over this folder, so that work done here would not count."""
        if isinstance(self._trouble, TakenOver):
            raise self._trouble

    def close(self, within_s: float, *, clear: bool = False) -> None:
        """Send the rest within `within_s` seconds, and end the thread.

        clear: then remove the folder, unless it has content that is stored nowhere else.
        """
        with suppress(StorageError):
            self.settle(within_s)
        with self._changed:
            self._is_closing = True
            self._changed.notify_all()
        if self._thread is not None:
            self._thread.join(max(0.5, within_s))
        self._drop(self._newest)
        is_sent = self._writer is not None and self._sent >= self._taken
        if clear and self._lock is not None and (is_sent or self._is_lost()):
            shutil.rmtree(self._folder, ignore_errors=True)
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    def _locked(self) -> ExitStack:
        """The lock of the process that works in the folder; its file is beside the folder, which may be removed."""
        try:
            return take_lock(self._folder.parent / f".{self._folder.name}.lock", wait_s=_LOCK_WAIT_S)
        except OSError as error:
            raise StorageError(
                "VSE-O021", "{folder}: another process of this machine works in it ({reason}); repeat when it has "
                "ended", folder=self._folder, reason=error.strerror,
            ) from error

    def _is_lost(self) -> bool:
        return isinstance(self._trouble, TakenOver)

    def _bring(self) -> Contents:
        self.forget()  # a process that dies here leaves a mixture of versions
        aside: dict[Path, Path] = {}
        for name in list(self._files.names(self._folder)):
            path = self._folder / name
            with suppress(FileNotFoundError):
                if name in self._files.kept_aside and path.stat().st_size > 0:
                    aside[path] = free_name(path, SET_ASIDE)
                    move_in_place(path, aside[path], durable=False)
                else:
                    path.unlink()
        contents = fetch(self.url, self._folder, lambda name: not is_set_aside(name))
        for path, kept in aside.items():
            if _begins_with(path, kept):
                kept.unlink()
        self.was_brought = contents.etag is not None
        self._note(contents)
        return contents

    def _noted(self) -> list[str]:
        """The versions that the local files may continue; empty when nothing is known."""
        try:
            note = read_json(self._place / _NOTE)
        except (DataError, StorageError):
            return []
        return note if isinstance(note, list) else []

    def _note(self, *versions: Contents) -> None:
        with suppress(StorageError):  # without a note `fetch` brings everything anew
            write_json(self._place / _NOTE, [each.version for each in versions], durable=False)

    def _take(self, wanted: Callable[[str], bool], *, in_part: bool) -> _Snapshot:
        assert self._writer is not None, "fetch comes first"
        folder = self._place / f"snapshot-{next(self._numbers)}"
        files: dict[str, Taken] = {}
        try:
            for name in filter(wanted, self._files.names(self._folder)):
                with suppress(FileNotFoundError):  # it was removed meanwhile
                    files[name] = self._taken_file(name, folder / str(len(files)))
        except OSError as error:
            shutil.rmtree(folder, ignore_errors=True)
            raise StorageError(
                "VSE-O023", "{file}: cannot be written ({reason}); free space, or set VSETUNE_NODE_FOLDER", file=folder,
                reason=error.strerror,
            ) from error
        return _Snapshot(files, in_part, folder if folder.exists() else None)

    def _taken_file(self, name: str, link: Path) -> Taken:
        assert self._writer is not None
        path = self._folder / name
        about = path.stat()
        signature: Signature = (about.st_ino, about.st_size, about.st_mtime_ns)
        if not stat.S_ISREG(about.st_mode):
            raise FileNotFoundError(path)
        is_growing = name in self._files.growing
        if about.st_size <= _INLINE_BYTES and not is_growing:
            return Taken(signature, content=path.read_bytes())
        if self._writer.knows(name, signature):
            return Taken(signature)
        link.parent.mkdir(exist_ok=True)
        try:
            os.link(path, link)
        except FileNotFoundError:
            raise
        except OSError:  # a file system without hard links
            shutil.copyfile(path, link)
        return Taken(signature, path=link, is_growing=is_growing)

    def _run(self) -> None:
        pause = FIRST_PAUSE_S
        while True:
            snapshot, number = self._next()
            if snapshot is None:
                return
            try:
                self._write(snapshot)
                self._note_sent(number)
                pause = FIRST_PAUSE_S
            except Exception as error:  # whatever the error, the snapshot must still be sent
                trouble = error if isinstance(error, StorageError) else StorageError(f"{self.url}: {error!r}")
                if self._note_trouble(trouble, snapshot, pause):
                    return
                pause = min(2 * pause, LONGEST_PAUSE_S)

    def _next(self) -> tuple[_Snapshot | None, int]:
        """Wait for the next snapshot. Returns it, or None at the end, with the number that is sent once it is written.
        """
        with self._changed:
            self._changed.wait_for(lambda: self._newest is not None or self._is_closing, self._files.refresh_s)
            snapshot, self._newest = self._newest, None
            if snapshot is not None or self._is_closing:
                return snapshot, self._taken
            number = self._sent
        with suppress(StorageError):
            return self._take(self._files.refreshed, in_part=True), number
        return _Snapshot({}, in_part=True), number

    def _write(self, snapshot: _Snapshot) -> None:
        assert self._writer is not None
        begin = time.monotonic()
        before = self._writer.contents.number
        self._writer.write(snapshot.files, in_part=snapshot.in_part)
        if self._writer.contents.number != before:
            self._note(self._writer.contents)
            _log.info("%s: version %d sent in %.2f s", self.url, before + 1, time.monotonic() - begin)
        self._drop(snapshot)

    def _note_sent(self, number: int) -> None:
        with self._changed:
            self._sent = max(self._sent, number)
            was_away, self._trouble = self._trouble is not None, None
            self._changed.notify_all()
        if was_away:
            _log.warning("%s: answers again, everything is sent", self.url)

    def _note_trouble(self, trouble: StorageError, snapshot: _Snapshot, pause_s: float) -> bool:
        """Remember the trouble, keep the snapshot unless there is a newer one, and wait. Returns whether to stop."""
        with self._changed:
            is_new, self._trouble = self._trouble is None, trouble
            if self._newest is None and not snapshot.in_part:
                self._newest = snapshot
            else:
                self._drop(snapshot)
            self._changed.notify_all()
        if is_new and not self._is_lost():
            _log.warning("%s is not sent for now, training goes on: %s", self._folder.name, trouble)
        if self._is_lost():
            return True
        with self._changed:
            return self._changed.wait_for(lambda: self._is_closing, pause_s)

    def _drop(self, snapshot: _Snapshot | None) -> None:
        if snapshot is not None and snapshot.folder is not None:
            shutil.rmtree(snapshot.folder, ignore_errors=True)


def is_set_aside(name: str) -> bool:
    """Whether `Mirror.fetch` has renamed this file: it then belongs to this machine alone."""
    return f".{SET_ASIDE}-" in name


def _begins_with(path: Path, beginning: Path) -> bool:
    """Whether the second file is the beginning of the first, so that removing it loses nothing."""
    with suppress(FileNotFoundError), open(path, "rb") as whole, open(beginning, "rb") as part:
        while read := part.read(_COMPARED_BYTES):
            if whole.read(len(read)) != read:
                return False
        return True
    return False
