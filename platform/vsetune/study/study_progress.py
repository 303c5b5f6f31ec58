"""Progress display of a running study: a live table on a terminal, and one line per trial that has ended."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from types import TracebackType

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from vsetune.study.cell_numbers import CellNumbers
from vsetune.study.ledger import StudyLedger
from vsetune.study.trials import PlannedTrial

_REDRAW_S = 0.5
_SAY_EVERY_S = 60.0
"""Without a terminal the state is a line at the start, and one as often as this."""
_MINUTES_FROM_S = 100.0
_STYLES = {"finished": "green", "pruned": "yellow", "failed": "red"}


def resumed_line(ledger: StudyLedger) -> str:
    """One line on the state of a resumed study. A trial without a validation has no checkpoint to continue from."""
    ended = sum(each.is_closed for each in ledger.trials.values())
    begun = sum(not each.is_closed and each.epoch > 0 for each in ledger.trials.values())
    state = f"{ended} of {ledger.promised()} trials {'has' if ended == 1 else 'have'} ended"
    then = f", {begun} {'continues from its checkpoint' if begun == 1 else 'continue from their checkpoints'}"
    return f"{ledger.study.study}: goes on; {state}{then if begun else ''}"


class StudyProgress:
    """Shows a ledger. A context manager; call `changed` after each report, and `tick` at any rate."""

    def __init__(
        self, ledger: StudyLedger, console: Console, *, clock: Callable[[], float] = time.monotonic,
        first_board: Callable[[], RenderableType | None] = lambda: None,
    ) -> None:
        """clock: seconds from any start, for elapsed and remaining time. first_board: the leaderboard, printed once
        when every cell has a trial that has ended; None where there is nothing to show."""
        self._ledger, self._console, self._clock = ledger, console, clock
        self._started, self._drawn = clock(), 0.0
        self._warned: set[str] = set()
        self._shown = set(self._ended())
        self._trained_before = self._trained()
        self._first_board: Callable[[], RenderableType | None] | None = first_board
        if self._is_first_round_over():
            self._first_board = None
        self._live = Live(console=console, auto_refresh=False, transient=True) if console.is_terminal else None

    def __enter__(self) -> StudyProgress:
        if self._live is not None:
            self._live.__enter__()
        else:
            self._say_state()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live is not None:
            self._live.__exit__(kind, value, trace)

    def changed(self) -> None:
        """Prints trials that ended since the last call."""
        new = [trial for trial in self._ended() if trial not in self._shown]
        for trial in sorted(new, key=lambda each: each.attempts[-1].seen):
            self._shown.add(trial)
            self._console.print(self._line(trial), highlight=False, soft_wrap=True)
        if self._first_board is not None and self._is_first_round_over():
            show, self._first_board = self._first_board, None
            board = show() if len(self._shown) < self._ledger.promised() else None
            if board is not None:
                self._console.print("", "first results; they change as more trials end", board, "", sep="\n")

    def _is_first_round_over(self) -> bool:
        return {trial.cell for trial in self._ended()} >= self._ledger.cells.keys()

    def _ended(self) -> list[PlannedTrial]:
        return [trial for trial in self._ledger.trials.values() if trial.is_closed]

    def paused(self, name: str, reason: str, pause_s: float | None) -> None:
        """Prints that a trial was interrupted. pause_s: seconds until it continues; None leaves it to `--resume`."""
        then = "left open for --resume" if pause_s is None else f"goes on from its checkpoint in {pause_s:g} s"
        self._console.print(
            Text("interrupted ", style="yellow").append(name, style="bold").append(f": {reason[:300]}; {then}"),
            highlight=False, soft_wrap=True,
        )

    def warned(self, lines: Sequence[str]) -> None:
        """Prints warnings of workers; a warning that several workers give is printed once."""
        for line in lines:
            if line not in self._warned:
                self._warned.add(line)
                report = Text("a worker reports ", style="yellow").append(line, style="none")
                self._console.print(report, highlight=False, soft_wrap=True)

    def say(self, line: str) -> None:
        """Prints a line in addition to the table."""
        self._console.print(Text(line, style="yellow"), highlight=False, soft_wrap=True)

    def tick(self) -> None:
        """Redraws the live table, at most every _REDRAW_S; without a terminal prints a line, at most every
        _SAY_EVERY_S."""
        now = self._clock()
        if self._live is not None and now - self._drawn > _REDRAW_S:
            self._drawn = now
            self._live.update(self._view(), refresh=True)
        elif self._live is None and now - self._drawn > _SAY_EVERY_S:
            self._say_state()

    def _say_state(self) -> None:
        self._drawn = self._clock()
        self._console.print(self._head(), highlight=False, soft_wrap=True)

    def _line(self, trial: PlannedTrial) -> Text:
        done, promised = len(self._shown), self._ledger.promised()
        text = Text(f"{self._clock() - self._started:6.0f} s  [{done}/{promised}] ", style="dim")
        style = _STYLES.get(trial.status, "none")
        text.append(f"{trial.status:8} ", style=style).append(trial.name, style="bold")
        if trial.best_m_recall is not None:
            text.append(f"  best M-Recall {trial.best_m_recall:.1f} % in {trial.epoch:.4g} epochs", style="none")
        if trial.error:
            text.append(f"  {trial.error[:160]}", style="red" if trial.status == "failed" else "dim")
        return text

    def _trained(self) -> float:
        """Trials that have ended, and of each that runs the share of its epochs that it has trained."""
        return sum(
            1.0 if trial.is_closed else min(1.0, trial.epoch / (trial.spec.training.epochs or 1.0))
            for trial in self._ledger.trials.values() if trial.is_closed or trial.status == "running"
        )

    def _left(self, promised: int, elapsed_s: float) -> str:
        """Estimate of the remaining time, from the pace of this process. What was trained before a resume is left out,
        because it took none of its time."""
        trained = self._trained()
        here = trained - self._trained_before
        if here <= 0:
            return "first trials running"
        left_s = elapsed_s / here * max(0.0, promised - trained)
        return f"about {left_s / 60:.0f} min left" if left_s >= _MINUTES_FROM_S else f"about {left_s:.0f} s left"

    def _others(self) -> str:
        """The number of trials that neither run nor have ended: `, 2 waiting`."""
        count = sum(not trial.is_closed and trial.status == "waiting" for trial in self._ledger.trials.values())
        return f", {count} waiting" if count else ""

    def _head(self) -> Text:
        """`quickstart: 3 of 15 trials, 2.0 min, about 5 min left`"""
        done, promised = len(self._ended()), self._ledger.promised()
        elapsed = self._clock() - self._started
        return Text(
            f"{self._ledger.study.study}: {done} of {promised} trials, {elapsed / 60:.1f} min, "
            f"{self._left(promised, elapsed)}{self._others()}"
        )

    def _view(self) -> Group:
        done, promised = len(self._ended()), self._ledger.promised()
        table = Table(box=None, padding=(0, 2, 0, 0))
        for column in ("cell", "ended", "running now", "best M-Recall"):
            table.add_column(column, justify="left" if column in ("cell", "running now") else "right")
        for name, cell in self._ledger.cells.items():
            numbers = CellNumbers.of(cell.trials)
            table.add_row(
                name, str(numbers.ended),
                ", ".join(
                    f"{trial.name.removeprefix(name + '-')} at epoch {trial.epoch:.2f}"
                    for trial in numbers.running
                ),
                f"{numbers.best:.1f} %" if numbers.best else "",
            )
        bar = ProgressBar(total=max(promised, 1), completed=done, width=60)
        return Group(self._head(), bar, Text(), table)  # a bar does not end its line, the empty text does
