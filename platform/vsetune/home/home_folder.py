"""A folder of this machine whose files are also under the home on object storage, sent by a thread of its own.

Every file is one object under its own name, and a put is whole. Writers never wait for the network: the thread sends
what has changed, and while the server is away it tries again, with growing pauses. A file may be replaced while it is
sent, but not changed in place.
"""

from __future__ import annotations

import logging
import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

from vsetune.errors import DataError, Overtaken, StorageError
from vsetune.home.addresses import join
from vsetune.home.background import Repeated
from vsetune.home.earlier_layout import convert
from vsetune.home.hashes import sha256_of_file
from vsetune.home.locks import take_lock
from vsetune.home.s3 import NothingThere, delete, download, drop_unfinished, look, upload, versions_below
from vsetune.home.whole_files import make_folder, read_json, write_json

_log = logging.getLogger(__name__)
_NOTE = ".versions.json"
_LOCK_WAIT_S = 60.0
Signature = tuple[int, ...]
"""Inode, bytes, time of the last change: equal for a file that was not written since."""


class HomeFolder:
    """One folder and its objects, for one process at a time; call `fetch` first.

    is_sent: whether a file or folder with this name, directly in the folder, is sent with all that it contains.
    every_s: the thread looks for changes so often, beside each `send`. check: called before anything is sent, with the
    versions that were fetched or sent last; Overtaken ends the sending.
    """

    def __init__(
        self, folder: Path, url: str, is_sent: Callable[[str], bool], *, every_s: float,
        check: Callable[[Mapping[str, str]], None],
    ) -> None:
        self.url = url
        self.was_brought = False
        """Whether `fetch` brought files from the server rather than finding them here."""
        self._folder, self._is_sent, self._check = folder, is_sent, check
        self._versions: dict[str, str] = {}
        self._sent: dict[str, Signature] = {}
        self._asked = self._done = 0
        self._steps = Repeated(self._step, name="home-folder", what=folder.name, every_s=every_s, final=Overtaken)
        self._lock: ExitStack | None = None

    def fetch(self) -> None:
        """Make the folder equal to its objects. Files that continue what was sent last from here stay.

        StorageError; DamagedObject when a file cannot be had whole. Nothing is sent yet. Waits for another process of
        this machine that still has the folder locked.
        """
        make_folder(self._folder.parent)
        self._lock = self._lock or self._locked()
        make_folder(self._folder)
        with suppress(StorageError):
            drop_unfinished(f"{self.url}/")
        convert(self.url)
        there = {name: _bare(etag) for name, etag in versions_below(self.url, self._is_sent).items()}
        if there != self._noted():
            self.forget()  # a process that dies here leaves a mixture
            self._versions, self._sent = {}, {}
            for name in self._names():
                if name not in there:
                    (self._folder / name).unlink(missing_ok=True)
            for name in there:
                self._versions[name] = self._bring(name)
                self._sent[name] = _signature(self._folder / name)
            self.was_brought = bool(there)
        self._note()

    def forget(self) -> None:
        """Mark the local files as untrusted: the next `fetch` brings everything anew."""
        with suppress(OSError):
            (self._folder / _NOTE).unlink(missing_ok=True)

    def send(self) -> None:
        """Send what has changed, in the background."""
        self._asked += 1
        self._steps.start()
        self._steps.ask()

    def settle(self, within_s: float) -> None:
        """Wait until all is sent. StorageError when it is not within `within_s`, Overtaken when it never will be."""
        asked = self._asked
        self._steps.wait_for(lambda: self._done >= asked, within_s)
        self.check()
        if self._done < asked:
            raise self._steps.outage or StorageError(
                "VSE-O039", "{url}: not sent within {within_s:g} s; check the network, then resume.", url=self.url,
                within_s=within_s,
            )

    def check(self) -> None:
        """Overtaken when another process goes on with this folder, so that work done here would not count."""
        if self._steps.refusal is not None:
            raise self._steps.refusal

    def close(self, within_s: float, *, clear: bool = False) -> None:
        """Send the rest within `within_s` seconds, and end the thread.

        clear: then remove the folder, unless it has content that is stored nowhere else.
        """
        with suppress(StorageError):
            self.settle(within_s)
        self._steps.close(within_s)
        is_free = self._done >= self._asked or self._steps.refusal is not None
        if clear and self._lock is not None and is_free:
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

    def _bring(self, name: str) -> str:
        """Download a file, unless it is here already. Returns its version."""
        path, url = self._folder / name, join(self.url, name)
        state = look(url) if path.is_file() else None
        if state is not None and state.sha256 == sha256_of_file(path):
            return _bare(state.etag)
        try:
            return _bare(download(url, path))
        except NothingThere as error:
            raise StorageError("VSE-O034", "{url}: was changed while it was read; start again.", url=url) from error

    def _names(self) -> Iterator[str]:
        """Files of the folder that are sent, in alphabetical order."""
        for top in sorted(self._folder.iterdir()):
            if self._is_sent(top.name):
                for path in [top] if top.is_file() else sorted(top.rglob("*")):
                    if path.is_file():
                        yield path.relative_to(self._folder).as_posix()

    def _noted(self) -> dict[str, str] | None:
        """The versions that the local files go on from; None when nothing is known."""
        try:
            plain: Any = read_json(self._folder / _NOTE)
            self._versions = {name: version for name, (version, _) in plain.items()}
            self._sent = {name: tuple(signature) for name, (_, signature) in plain.items()}
        except (DataError, StorageError, AttributeError, TypeError, ValueError):
            return None
        return self._versions

    def _note(self) -> None:
        plain = {name: [version, self._sent.get(name, ())] for name, version in self._versions.items()}
        with suppress(StorageError):  # without a note `fetch` brings everything anew
            write_json(self._folder / _NOTE, plain, durable=False)

    def _step(self) -> bool:
        asked = self._asked
        here: dict[str, Signature] = {}
        for name in self._names():
            with suppress(FileNotFoundError):  # removed meanwhile
                here[name] = _signature(self._folder / name)
        changed = [name for name, signature in here.items() if self._sent.get(name) != signature]
        gone = [name for name in self._versions if name not in here]
        if changed or gone:
            self._check(self._versions)
        for name in changed:
            with suppress(FileNotFoundError):
                self._versions[name] = _bare(upload(self._folder / name, join(self.url, name)))
                self._sent[name] = here[name]
                self._note()
        for name in gone:
            delete([join(self.url, name)])
            del self._versions[name]
            self._note()
        self._done = max(self._done, asked)
        return self._asked > asked


def last_writer_of(url: str) -> Callable[[Mapping[str, str]], None]:
    """A `check` for a folder in which each process that begins writes the file at `url`. Overtaken once another process
    has written it."""
    name = url.rpartition("/")[2]

    def check(known: Mapping[str, str]) -> None:
        there = look(url)
        if (None if there is None else _bare(there.etag)) != known.get(name):
            raise Overtaken("VSE-O040", "{url}: another process goes on with it; this process stops.", url=url)

    return check


def _bare(etag: str) -> str:
    """An ETag without its quotes, which some servers leave out in lists."""
    return etag.strip('"')


def _signature(path: Path) -> Signature:
    about = os.stat(path)
    return about.st_ino, about.st_size, about.st_mtime_ns
