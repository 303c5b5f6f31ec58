"""What is kept of a long log says what the log says."""

from __future__ import annotations

from pathlib import Path

import pytest
from studied import BEGUN, OPENED, attempt_of, point, start

from vsetune.records.events import Begun, Closed, Drawn, Ended, Event, Validated
from vsetune.records.log import LOG_FILE, LogWriter, lines_of
from vsetune.records.state import SNAPSHOT_FILE, KnownLog, StudyState, read_snapshot, write_snapshot

SECOND = Begun(start("vsepp.lmh-c001-s0"), 6.0)
EVENTS: tuple[Event, ...] = (
    OPENED, Drawn("vsepp.lmh", 0, "running", {"loss.margin": 0.1}, {"loss.margin": "{}"}, {"drawn by": "random"}, 2.0),
    BEGUN, Validated(attempt_of(BEGUN), (point(5, m_recall=100 / 3), point(10)), 4.0),
    Ended(attempt_of(BEGUN), "finished", {"steps": 10.0}, ("trials/t/best.safetensors",), None, 5.0),
    SECOND, Validated(attempt_of(SECOND), (point(5, metrics={}),), 7.0), Closed("killed", ("board.html",), 8.0),
)


def read(folder: Path) -> KnownLog:
    known = KnownLog(StudyState(), 0, "name")
    for line in lines_of(folder / LOG_FILE):
        known.state.read(line)
        known.end = line.end
    return known


@pytest.fixture
def known(tmp_path: Path) -> KnownLog:
    log = LogWriter(tmp_path)
    for event in EVENTS:
        log.append(event)
    log.close()
    return read(tmp_path)


def test_what_is_read_back_is_what_the_log_says_to_the_last_bit(known: KnownLog, tmp_path: Path) -> None:
    write_snapshot(tmp_path, known)
    again = read_snapshot(tmp_path)
    assert again is not None
    assert (again.end, again.log) == (known.end, known.log)
    assert vars(again.state) == vars(known.state)
    attempts = list(again.state.attempts.values())
    assert attempts[0].curve == ((0.5, 100 / 3), (1.0, 40.0))
    assert attempts[1].summary == {"train_seconds": 7.5}


def test_what_is_equal_in_many_attempts_is_there_once(known: KnownLog, tmp_path: Path) -> None:
    write_snapshot(tmp_path, known)
    assert (tmp_path / SNAPSHOT_FILE).read_text().count("data/scenes") == 1


@pytest.mark.parametrize("content", ["", "{}", '{"format": 1}', "[]", '{"format": 2, "record": null}'])
def test_one_that_is_not_whole_or_of_another_version_counts_for_nothing(content: str, tmp_path: Path) -> None:
    (tmp_path / SNAPSHOT_FILE).write_text(content)
    assert read_snapshot(tmp_path) is None
