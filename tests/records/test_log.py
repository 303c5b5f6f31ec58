from __future__ import annotations

import errno
import os
import resource
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from refusals import refused
from studied import BEGUN, OPENED, POINTS, attempt_of, point

from vsetune.errors import DataError, StorageError
from vsetune.records import log as logs
from vsetune.records.events import Closed, Drawn, Ended, Validated, from_texts, to_texts
from vsetune.records.log import LOG_FILE, LogWriter, lines_of

EVENTS = [
    OPENED,
    Drawn("vsepp.lmh", 0, "running", {"loss.margin": 0.2}, {"loss.margin": "{}"}, {"drawn by": "sobol"}, 2.0),
    BEGUN,
    Validated(attempt_of(BEGUN), POINTS, 4.0),
    Ended(attempt_of(BEGUN), "pruned", {"best_m_recall": 40.0}, ("trials/t/best.safetensors",), "asha: 1 < 2", 5.0),
    Closed("killed", ("leaderboard.html",), 6.0),
]


def written(folder: Path) -> list[object]:
    return [line.event() for line in lines_of(folder / LOG_FILE, number=0, strict=True)]


@pytest.mark.parametrize("event", EVENTS, ids=lambda event: type(event).__name__)
def test_an_event_is_read_as_it_was_written(event: object) -> None:
    assert from_texts(*to_texts(event)) == event  # type: ignore[arg-type]


def write(folder: Path, events: Sequence[object]) -> Path:
    """Add events to a log; its file."""
    writer = LogWriter(folder)
    for event in events:
        writer.append(event)  # type: ignore[arg-type]
    writer.close()
    return writer.path


def test_a_log_that_is_opened_again_goes_on_where_it_ended(tmp_path: Path) -> None:
    for part in (EVENTS[:2], EVENTS[2:]):
        path = write(tmp_path, part)
    assert written(tmp_path) == EVENTS
    assert [line.number for line in lines_of(path)] == list(range(6))


@given(cut=st.integers(0, 10_000))
@settings(max_examples=60, deadline=None)
def test_wherever_a_kill_cut_the_last_line_the_others_count_and_the_next_writer_goes_on(
    tmp_path_factory: pytest.TempPathFactory, cut: int
) -> None:
    folder = tmp_path_factory.mktemp("cut")
    path = write(folder, EVENTS)
    ends = [0, *(line.end for line in lines_of(path))]
    size = cut % (ends[-1] + 1)
    os.truncate(path, size)
    whole = sum(end <= size for end in ends) - 1
    assert written(folder) == EVENTS[:whole]
    write(folder, EVENTS[-1:])
    assert written(folder) == [*EVENTS[:whole], EVENTS[-1]]


def test_a_damaged_line_is_left_out_by_readers_and_refused_by_the_writer(tmp_path: Path) -> None:
    path = write(tmp_path, EVENTS)
    raw = bytearray(path.read_bytes())
    raw[list(lines_of(path))[1].end + 30] ^= 1
    path.write_bytes(raw)
    assert [line.event() for line in lines_of(path)] == [event for event in EVENTS if event is not EVENTS[2]]
    with refused("VSE-R001", by=DataError, log=path):
        LogWriter(tmp_path)


@pytest.mark.parametrize("lost", [1, 40, 400])
def test_zeros_in_place_of_the_end_are_damage_and_nothing_is_cut_off(tmp_path: Path, lost: int) -> None:
    path = write(tmp_path, EVENTS)
    path.write_bytes(spoiled := path.read_bytes()[:-lost] + bytes(lost))
    with refused("VSE-R001", by=DataError, log=path):
        LogWriter(tmp_path)
    assert path.read_bytes() == spoiled


def test_a_disk_that_refuses_the_log_for_long_ends_its_driver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    heard: list[str] = []
    writer = LogWriter(tmp_path, on_overtaken=heard.append)
    writer.append(EVENTS[0])
    limit = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, ((tmp_path / LOG_FILE).stat().st_size + 10, limit[1]))
    try:
        writer.append(EVENTS[1])
        assert heard == []
        monkeypatch.setattr(logs, "_PATIENCE_S", 0.0)
        writer.append(EVENTS[2])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limit)
    assert [str(writer.path) in why for why in heard] == [True]
    writer.close()
    assert written(tmp_path) == EVENTS[:3]


def test_a_line_that_is_missing_between_two_others_is_damage(tmp_path: Path) -> None:
    path = write(tmp_path, EVENTS)
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(lines[:2] + lines[3:]))
    with refused("VSE-R001", by=DataError):
        written(tmp_path)


def test_what_a_full_disk_does_not_take_waits_in_memory_in_order(tmp_path: Path) -> None:
    writer = LogWriter(tmp_path)
    writer.append(EVENTS[0])
    limit = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, ((tmp_path / LOG_FILE).stat().st_size + 10, limit[1]))
    try:
        for event in EVENTS[1:3]:
            writer.append(event)
        with refused("VSE-R007", by=StorageError, reason=os.strerror(errno.EFBIG)):
            writer.settle()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limit)
    assert written(tmp_path) == EVENTS[:1]
    writer.append(EVENTS[3])
    writer.close()
    assert written(tmp_path) == EVENTS[:4]


def test_numbers_that_are_not_finite_and_signs_of_any_language_come_back(tmp_path: Path) -> None:
    odd = replace(point(1), metrics={"größe\t✓\n": float("inf"), "loss": 1e-300})
    event = Validated(attempt_of(BEGUN), (odd,), 0.1 + 0.2)
    write(tmp_path, [event])
    assert written(tmp_path) == [event]
