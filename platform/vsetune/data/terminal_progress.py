"""Progress of long work, as a bar on the terminal."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, ProgressColumn, Task, TextColumn, TimeRemainingColumn
from rich.text import Text

from vsetune.data.progress import ProgressSink


class _RateColumn(ProgressColumn):
    """Images, or captions, per second."""

    def render(self, task: Task) -> Text:
        speed = task.finished_speed or task.speed
        return Text(f"{speed:,.0f}/s" if speed else "")


class _TerminalProgress:
    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._task = progress.add_task("", total=None, visible=False)

    def stage(self, name: str, total: int) -> None:
        self._progress.start()
        self._progress.remove_task(self._task)
        self._task = self._progress.add_task(name, total=total)

    def advance(self, count: int) -> None:
        self._progress.advance(self._task, count)


@contextmanager
def terminal_progress(console: Console) -> Iterator[ProgressSink]:
    """A bar with count, rate and time left; pass the console of stderr."""
    columns = (
        TextColumn("{task.description}", markup=False), BarColumn(), MofNCompleteColumn(), _RateColumn(),
        TimeRemainingColumn(),
    )
    progress = Progress(*columns, console=console)
    try:
        yield _TerminalProgress(progress)
    finally:
        if progress.live.is_started:  # a stop without a start would leave an empty line
            progress.stop()
