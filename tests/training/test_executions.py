from __future__ import annotations

from pathlib import Path

import pytest

from vsetune.training import executions
from vsetune.training.executions import EXECUTIONS_FILE, PROGRESS_FILE, ExecutionLog


def begin(folder: Path, *, pairs: int, seconds: float) -> ExecutionLog:
    log = ExecutionLog(folder)
    log.begin(kept_pairs=pairs, kept_seconds=seconds)
    return log


def test_executions_are_counted_from_one(tmp_path: Path) -> None:
    assert [begin(tmp_path, pairs=0, seconds=0).current.number for _ in range(3)] == [1, 2, 3]


def test_two_processes_that_begin_from_the_same_write_different_files(tmp_path: Path) -> None:
    for name in ("one", "other"):
        (tmp_path / name).mkdir()
        begin(tmp_path / name, pairs=0, seconds=0)
    one, other = ((tmp_path / name / EXECUTIONS_FILE).read_bytes() for name in ("one", "other"))
    assert one != other


def test_a_file_of_an_earlier_version_is_read(tmp_path: Path) -> None:
    (tmp_path / EXECUTIONS_FILE).write_text('{"number": 3, "wasted_pairs": 20, "wasted_seconds": 2.0}')
    assert begin(tmp_path, pairs=0, seconds=0).current.number == 4


def test_a_folder_that_was_lost_does_not_give_a_recorded_number_twice(tmp_path: Path) -> None:
    log = ExecutionLog(tmp_path)
    assert log.begin(kept_pairs=0, kept_seconds=0, recorded=4).number == 5
    assert ExecutionLog(tmp_path).begin(kept_pairs=0, kept_seconds=0, recorded=4).number == 6


def test_work_beyond_the_checkpoint_is_waste_and_adds_up(tmp_path: Path) -> None:
    begin(tmp_path, pairs=0, seconds=0).mark(pairs=70, seconds=7.0, now=True)  # checkpoint at 50, then it died
    second = begin(tmp_path, pairs=50, seconds=5.0)
    assert (second.current.wasted_pairs, second.current.wasted_seconds) == (20, 2.0)
    second.mark(pairs=55, seconds=5.5, now=True)
    third = begin(tmp_path, pairs=50, seconds=5.0)
    assert (third.current.wasted_pairs, third.current.wasted_seconds) == (25, 2.5)


def test_waste_is_not_counted_again_when_the_next_execution_dies_at_once(tmp_path: Path) -> None:
    begin(tmp_path, pairs=0, seconds=0).mark(pairs=70, seconds=7.0, now=True)
    begin(tmp_path, pairs=50, seconds=5.0)  # dies before its first mark
    assert begin(tmp_path, pairs=50, seconds=5.0).current.wasted_pairs == 20


def test_an_end_after_the_checkpoint_wastes_nothing(tmp_path: Path) -> None:
    begin(tmp_path, pairs=0, seconds=0).mark(pairs=50, seconds=5.0, now=True)
    assert begin(tmp_path, pairs=50, seconds=5.1).current.wasted_pairs == 0


def test_marks_are_written_at_intervals(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = begin(tmp_path, pairs=0, seconds=0)
    log.mark(pairs=1, seconds=0, now=False)
    first = (tmp_path / PROGRESS_FILE).read_bytes()
    log.mark(pairs=2, seconds=0, now=False)
    assert (tmp_path / PROGRESS_FILE).read_bytes() == first
    log.mark(pairs=3, seconds=0, now=True)
    assert (tmp_path / PROGRESS_FILE).read_bytes() != first
    assert executions.MARK_EVERY_S >= 1  # a write per step would slow the training
