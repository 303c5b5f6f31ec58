"""The files that records of a journal name: brought here for their delivery, forgotten after it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from vsetune.tracking.journal import Entry
from vsetune.tracking.outbox import Outbox


class EntryFiles:
    """Of one journal. A file named without a folder is below the journal's.

    bring: called for every file of a record before it is delivered, to fetch what is on another machine; it returns
    where the file is now. What it fetched is removed afterwards. None: all are here.
    """

    def __init__(self, folder: Path, outbox: Outbox, bring: Callable[[Path], Path] | None) -> None:
        self._folder, self._outbox, self._bring = folder, outbox, bring
        self._brought: list[Path] = []

    def here(self, entry: Entry) -> Entry:
        """The record with its files named as they are found on this machine."""
        files = self._of(entry)
        if not files:
            return entry
        if self._bring is not None:
            named, files = files, [self._bring(file) for file in files]
            self._brought += [file for file in files if file not in named]
        return entry._replace(body={**entry.body, "artifacts": [str(file) for file in files]})

    def forget(self, delivered: Sequence[Entry]) -> None:
        """Their files are kept by the store now."""
        self._outbox.remove([file for entry in delivered for file in self._of(entry)])
        while self._brought:
            self._brought.pop().unlink(missing_ok=True)

    def _of(self, entry: Entry) -> list[Path]:
        return [self._folder / name for name in entry.body.get("artifacts", [])]
