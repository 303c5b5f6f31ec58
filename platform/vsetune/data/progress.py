"""How far a long piece of work is: a small interface and a silent version. For a terminal: `terminal_progress`."""

from __future__ import annotations

from typing import Protocol


class ProgressSink(Protocol):
    """Told by long work what is being done; one stage at a time."""

    def stage(self, name: str, total: int) -> None:
        """A new stage of so many images (or captions) begins; the one before is over."""

    def advance(self, count: int) -> None:
        """So many more of the stage are done."""


class SilentProgress:
    """Shows nothing."""

    def stage(self, name: str, total: int) -> None:
        pass

    def advance(self, count: int) -> None:
        pass
