"""The time left follows from what ended since this process started; trials that wait are counted apart."""

from __future__ import annotations

import io
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console

from vsetune.study.study_progress import StudyProgress, resumed_line
from vsetune.study.study_tally import StudyTally


class Ledger:
    """What the progress view reads of a ledger."""

    def __init__(self, statuses: list[str], promised: int) -> None:
        self.study, self.cells = SimpleNamespace(study="tiny"), {"vsepp.lmh": None}
        self.tally = StudyTally(self.cells)
        self.trials = {f"vsepp.lmh-c{number:03d}": trial(status, number) for number, status in enumerate(statuses)}
        for each in self.trials.values():
            self.tally.changed(each)
        self._promised = promised

    def promised(self) -> int:
        return self._promised

    def end(self, number: int) -> None:
        self.trials[f"vsepp.lmh-c{number:03d}"] = trial("finished", number)
        self.tally.changed(self.trials[f"vsepp.lmh-c{number:03d}"])


def trial(status: str, number: int) -> Any:
    spec = SimpleNamespace(cell="vsepp.lmh", trial=f"vsepp.lmh-c{number:03d}")
    return SimpleNamespace(
        status=status, is_closed=status in ("finished", "pruned", "failed"), assignment=SimpleNamespace(trial=spec),
        best_m_recall=None, epoch=0.0, error=None, is_left_open=False, attempts=tuple,
    )


@pytest.fixture
def seen() -> Any:
    """seen(ledger, change, seconds): the live view after `change` happened and so much time went by."""

    def view(ledger: Any, change: Any, seconds: float) -> str:
        now = [100.0]
        stream = io.StringIO()
        progress = StudyProgress(
            ledger, Console(file=stream, force_terminal=True, width=160, color_system=None), clock=lambda: now[0],
        )
        with progress:
            change()
            now[0] += seconds
            progress.tick()
        return stream.getvalue()

    return view


def test_trials_that_ended_before_a_resume_do_not_count_for_the_pace(seen: Any) -> None:
    ledger = Ledger(["finished"] * 8 + ["running", "running"], promised=12)
    shown = seen(ledger, lambda: ledger.end(8), 600.0)
    assert "9 of 12 trials, 10.0 min, about 30 min left" in shown


def test_without_a_trial_that_ended_here_no_time_is_promised(seen: Any) -> None:
    ledger = Ledger(["finished"] * 8 + ["running"], promised=12)
    assert "8 of 12 trials, 10.0 min, first trials running" in seen(ledger, lambda: None, 600.0)


def test_each_trial_that_ends_is_announced_once_with_how_many_have() -> None:
    ledger, stream = Ledger(["finished", "running", "running"], promised=3), io.StringIO()
    progress = StudyProgress(ledger, Console(file=stream, width=160), clock=lambda: 0.0)  # type: ignore[arg-type]
    for number in (2, 1):
        ledger.end(number)
        progress.changed()
        progress.changed()
    lines = [line.split("] ")[0][-4:] + line.split()[-1] for line in stream.getvalue().splitlines()]
    assert lines == ["[2/3vsepp.lmh-c002", "[3/3vsepp.lmh-c001"]


def test_trials_that_wait_are_counted_by_what_the_ledger_calls_them(seen: Any) -> None:
    ledger = Ledger(["finished", "waiting", "running", "waiting", "open"], promised=5)
    assert "first trials running, 1 open, 2 waiting" in seen(ledger, lambda: None, 60.0)


def test_the_table_begins_below_the_bar(seen: Any) -> None:
    shown = seen(Ledger(["finished", "running"], promised=3), lambda: None, 60.0)
    headers = [line for line in shown.splitlines() if "best M-Recall" in line]
    assert headers
    assert all(line.startswith("cell ") for line in headers)


def test_a_trial_that_ended_is_one_line_of_a_log_however_long_its_error() -> None:
    ledger, stream = Ledger(["running"], promised=1), io.StringIO()
    progress = StudyProgress(ledger, Console(file=stream, width=80), clock=lambda: 0.0)  # type: ignore[arg-type]
    ledger.end(0)
    ledger.trials["vsepp.lmh-c000"].error = "many words " * 12
    progress.changed()
    assert len(stream.getvalue().splitlines()) == 1


def test_a_study_that_goes_on_tells_what_has_ended_and_what_has_begun() -> None:
    ledger: Any = Ledger(["finished", "killed", "killed", "waiting"], promised=6)
    ledger.trials["vsepp.lmh-c001"].epoch = 1.5
    assert resumed_line(ledger) == "tiny: goes on; 1 of 6 trials has ended, 1 continues from its checkpoint"
    ledger.trials["vsepp.lmh-c002"].epoch = 0.5
    assert resumed_line(ledger) == "tiny: goes on; 1 of 6 trials has ended, 2 continue from their checkpoints"
    assert resumed_line(Ledger([], promised=4)) == "tiny: goes on; 0 of 4 trials have ended"  # type: ignore[arg-type]


def test_what_workers_warn_of_is_a_line_told_once() -> None:
    stream = io.StringIO()
    progress = StudyProgress(Ledger([], promised=1), Console(file=stream, width=40))  # type: ignore[arg-type]
    for lines in (["/cache [red]: cannot keep what is read from S3; free space"] * 2, ["/cache: another"], []):
        progress.warned(lines)
        progress.warned(lines)
    assert stream.getvalue().splitlines() == [
        "a worker reports /cache [red]: cannot keep what is read from S3; free space",
        "a worker reports /cache: another",
    ]
