"""Progress of long work: a small interface and a silent version. For a terminal: `terminal_progress`."""

from __future__ import annotations

from typing import Protocol


class ProgressSink(Protocol):
    """Receives the progress of long work; one stage at a time."""

    def stage(self, name: str, total: int) -> None:
        """A new stage of `total` images (or captions) begins; the one before is over."""

    def advance(self, count: int) -> None:
        """`count` more of the stage are done."""


class SilentProgress:
    """Shows nothing."""

    def stage(self, name: str, total: int) -> None:
        pass

    def advance(self, count: int) -> None:
        pass
