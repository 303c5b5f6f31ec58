"""The time left follows from the trials that ended since this process started; waiting trials are counted apart."""

from __future__ import annotations

import io
from collections.abc import Callable

from driven_ledgers import begin, ledger_of, point
from rich.console import Console
from tiny_studies import tiny_study

from vsetune.records.writer import StudyWriter
from vsetune.study.ledger import StudyLedger
from vsetune.study.study_progress import StudyProgress, resumed_line


def ledger_with(statuses: str, *, promised: int) -> StudyLedger:
    """A study of one cell. statuses: the first letter of each: finished, running, waiting, killed in between."""
    search = {"configurations": promised, "sampler": "random", "at_once": 99}
    ledger = ledger_of(tiny_study(training={"epochs": 2}, seeds=[0], search=search), StudyWriter())
    for status in statuses:
        name = ledger.next().name  # type: ignore[union-attr]
        if status != "w":
            begin(ledger, name)
        if status == "f":
            ledger.close(name, "finished", summary={"epochs": 2.0})
        if status == "k":
            ledger.record_point(name, point(1, 30.0))
            ledger.interrupted(name, "its node left")
    return ledger


def end(ledger: StudyLedger, number: int, error: str | None = None) -> None:
    ledger.close(f"vsepp.lmh-c{number:03d}-s0", "finished", summary={}, error=error)


def seen(ledger: StudyLedger, *, seconds: float, change: Callable[[], None] = lambda: None) -> str:
    """The live view after a change and so much time."""
    now, stream = [100.0], io.StringIO()
    console = Console(file=stream, force_terminal=True, width=160, color_system=None)
    with StudyProgress(ledger, console, clock=lambda: now[0]) as progress:
        change()
        now[0] += seconds
        progress.tick()
    return stream.getvalue()


def test_trials_that_ended_before_a_resume_do_not_count_for_the_pace() -> None:
    ledger = ledger_with("ffffffffrr", promised=12)
    assert "8 of 12 trials, 10.0 min, first trials running" in seen(ledger, seconds=600.0)
    shown = seen(ledger, seconds=600.0, change=lambda: end(ledger, 8))
    assert "9 of 12 trials, 10.0 min, about 30 min left" in shown


def test_what_running_trials_have_trained_counts_too() -> None:
    ledger = ledger_with("rr", promised=4)

    def train() -> None:
        for number in (0, 1):
            ledger.record_point(f"vsepp.lmh-c{number:03d}-s0", point(1, 30.0))  # of two epochs

    assert "about 90 s left" in seen(ledger, seconds=30.0, change=train)


def test_the_first_board_is_shown_once_when_every_cell_has_a_result() -> None:
    ledger, stream = ledger_with("rrr", promised=3), io.StringIO()
    boards = iter(["the first board"])
    progress = StudyProgress(ledger, Console(file=stream, width=80), first_board=lambda: next(boards))
    progress.changed()
    assert "board" not in stream.getvalue()
    end(ledger, 0)
    progress.changed()
    end(ledger, 1)
    progress.changed()
    assert stream.getvalue().count("the first board") == 1


def test_a_study_that_goes_on_behind_its_first_board_shows_none() -> None:
    ledger, stream = ledger_with("frr", promised=3), io.StringIO()
    progress = StudyProgress(ledger, Console(file=stream, width=80), first_board=lambda: "the first board")
    end(ledger, 1)
    progress.changed()
    assert "board" not in stream.getvalue()


def test_each_trial_that_ends_is_one_line_however_long_its_error() -> None:
    ledger, stream = ledger_with("frr", promised=3), io.StringIO()
    progress = StudyProgress(ledger, Console(file=stream, width=80), clock=lambda: 0.0)
    for number, error in ((2, None), (1, "many words " * 12)):
        end(ledger, number, error)
        progress.changed()
        progress.changed()
    first, second = stream.getvalue().splitlines()
    assert "[2/3] finished vsepp.lmh-c002-s0" in first
    assert "[3/3] finished vsepp.lmh-c001-s0" in second


def test_waiting_trials_are_counted_and_the_table_begins_below_the_bar() -> None:
    shown = seen(ledger_with("fwrk", promised=5), seconds=60.0)
    assert "first trials running, 2 waiting" in shown
    headers = [line for line in shown.splitlines() if "best M-Recall" in line]
    assert headers
    assert all(line.startswith("cell ") for line in headers)


def test_a_resumed_study_shows_how_many_trials_have_ended_and_how_many_continue() -> None:
    ledger = ledger_with("fwk", promised=6)
    assert resumed_line(ledger) == "tiny: goes on; 1 of 6 trials has ended, 1 continues from its checkpoint"
    assert resumed_line(ledger_with("", promised=4)) == "tiny: goes on; 0 of 4 trials have ended"


def test_a_warning_of_several_workers_is_one_line() -> None:
    stream = io.StringIO()
    progress = StudyProgress(ledger_with("", promised=1), Console(file=stream, width=40))
    for lines in (["/cache [red]: cannot keep what is read from S3; free space"] * 2, ["/cache: another"], []):
        progress.warned(lines)
        progress.warned(lines)
    assert stream.getvalue().splitlines() == [
        "a worker reports /cache [red]: cannot keep what is read from S3; free space",
        "a worker reports /cache: another",
    ]


def test_without_a_terminal_a_line_opens_the_study_and_one_a_minute_tells_its_state() -> None:
    ledger, now, stream = ledger_with("rr", promised=4), [100.0], io.StringIO()
    with StudyProgress(ledger, Console(file=stream, width=160), clock=lambda: now[0]) as progress:
        for _ in range(13):
            progress.tick()
            now[0] += 10.0
    assert [line.split(",")[1] for line in stream.getvalue().splitlines()] == [" 0.0 min", " 1.2 min"]
