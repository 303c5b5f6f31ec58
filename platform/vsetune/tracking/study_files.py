"""Files that a study keeps in its folder, beside what is in the store: its journal, its search."""

from __future__ import annotations

import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from vsetune.errors import StorageError
from vsetune.files.locks import take_lock
from vsetune.files.room import MAKE_ROOM, free_in
from vsetune.files.whole_files import make_folder, move_if_absent
from vsetune.object_storage.home_files import bring_mirrored
from vsetune.tracking.entries import NEED_NO_DELIVERY
from vsetune.tracking.exported_content import SEARCH_FILE
from vsetune.tracking.journal import CURSOR_FILE, JOURNAL_FILE, Journal
from vsetune.tracking.study_lock import LOCK_FILE, is_led

_DAMAGED = {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB}


def waiting_records(folder: Path) -> int | None:
    """How many records of the study's journal the store has not been given; None while another process runs it.

    With a home on object storage of the journal that stands there, whichever machine wrote it. StorageError.
    """
    with tempfile.TemporaryDirectory() as name:
        there = Path(name)
        bring_mirrored(folder, lambda file: file in (JOURNAL_FILE, CURSOR_FILE), into=there)
        if (there / JOURNAL_FILE).is_file():
            return None if is_led(folder) else _undelivered(there)
    if not (folder / JOURNAL_FILE).is_file():
        return 0
    with _lock_of(folder) as is_held:
        return _undelivered(folder) if is_held else None


def _undelivered(folder: Path) -> int:
    journal = Journal(folder)
    try:
        delivered = journal.cursor.read(journal.identity)
        return sum(entry.number > delivered and entry.kind not in NEED_NO_DELIVERY for entry in journal.entries())
    finally:
        journal.close()


@contextmanager
def _lock_of(folder: Path) -> Iterator[bool]:
    try:
        lock = take_lock(folder / LOCK_FILE, wait_s=0)
    except BlockingIOError:
        yield False
        return
    except OSError as error:
        raise StorageError(f"{folder}: cannot be locked ({error.strerror}); mend its rights") from error
    with lock:
        yield True


def copied_search(folder: Path, into: Path) -> Path | None:
    """A copy of the study's search as it is at a moment, also while it is written; None where there is none.

    into: a temporary folder. StorageError when it cannot be read, or copied there.
    """
    source = folder / SEARCH_FILE
    if not source.is_file():
        return None
    target = into / SEARCH_FILE
    try:
        with closing(sqlite3.connect(f"file:{source}?mode=ro", uri=True)) as old, \
                closing(sqlite3.connect(target)) as new:
            old.backup(new)
            new.execute("PRAGMA journal_mode=DELETE")
    except sqlite3.Error as error:
        if getattr(error, "sqlite_errorcode", 0) & 0xFF in _DAMAGED:
            raise StorageError(f"{source}: cannot be read ({error}); mend or move it away, then repeat") from error
        raise StorageError(
            f"{source}: cannot be copied to {into} ({error}; {free_in(into)}); see that it can be read; "
            f"{MAKE_ROOM}, then repeat"
        ) from error
    return target


def place_search(file: Path, folder: Path) -> bool:
    """Give a study the search that came with it; False where it has one already, which stays. StorageError."""
    make_folder(folder)
    if (folder / SEARCH_FILE).exists():
        return False
    try:
        arriving = folder / f"{SEARCH_FILE}.partial"
        arriving.write_bytes(file.read_bytes())
        move_if_absent(arriving, folder / SEARCH_FILE)
        arriving.unlink(missing_ok=True)
    except OSError as error:
        raise StorageError(f"{folder / SEARCH_FILE}: cannot be written ({error.strerror}); mend it, repeat") from error
    return True
