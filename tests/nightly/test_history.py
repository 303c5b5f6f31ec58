"""The history of a nightly sweep on disk: kept whole, read with care, held by one process."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from vsetune.errors import DataError, StudyConflict
from vsetune.nightly.history import Accepted, History, is_date
from vsetune.nightly.night import CellNight, Night


def _night(date: str, **changed: object) -> Night:
    plain: dict[str, object] = {
        "date": date, "started": f"{date}T01:00:00+00:00", "ended": f"{date}T01:04:00+00:00", "state": "complete",
        "revision": "abc", "conditions": {"threads": "1"}, "seeds": (3,),
        "cells": {"vsepp.lmh": CellNight({"best_m_recall": 40.25}, (0.1, 1 / 3))}, "calibration_seconds": 0.0125,
    }
    return Night(**(plain | changed))  # type: ignore[arg-type]


def test_a_night_comes_back_as_it_was_kept(tmp_path: Path) -> None:
    history = History(tmp_path)
    assert history.nights() == []
    assert history.night("2026-01-02") is None
    history.keep(_night("2026-01-03"))
    history.keep(_night("2026-01-02", state="partial", problems=("one",)))
    assert [night.date for night in history.nights()] == ["2026-01-02", "2026-01-03"]
    kept = history.night("2026-01-03")
    assert kept is not None
    assert list(kept.cells["vsepp.lmh"].first_losses) == [0.1, 1 / 3]
    assert kept == _night("2026-01-03")


@pytest.mark.parametrize(
    ("content", "told"),
    [(b"{", "cannot read"), (b"[]", "format"), (b'{"format": 9}', "format"), (b'{"format": 1}', "is no night")],
)
def test_a_damaged_night_is_told_in_one_line_and_set_aside(tmp_path: Path, content: bytes, told: str) -> None:
    history = History(tmp_path)
    history.keep(_night("2026-01-02"))
    (tmp_path / "nights" / "2026-01-03.json").write_bytes(content)
    assert [night.date for night in history.nights()] == ["2026-01-02"]
    assert len(history.problems) == 1
    assert told in history.problems[0]
    lines = history.set_aside_damaged()
    assert len(lines) == 1
    assert "\n" not in lines[0]
    assert "set aside as 2026-01-03.json.damaged-1" in lines[0]
    assert len(history.nights()) == 1
    assert history.problems == []


def test_two_nights_with_one_date_are_told(tmp_path: Path) -> None:
    history = History(tmp_path)
    history.keep(_night("2026-01-02"))
    nights = tmp_path / "nights"
    (nights / "2026-01-04.json").write_bytes((nights / "2026-01-02.json").read_bytes())
    assert [night.date for night in history.nights()] == ["2026-01-02"]
    assert "two nights have one date" in history.problems[0]


def test_what_was_accepted_is_kept_in_order_and_never_guessed(tmp_path: Path) -> None:
    history = History(tmp_path)
    first = Accepted("2026-01-03", "epoch_time", "vsepp.lmh", "meant", "abc", "2026-01-03T08:00:00+00:00")
    second = Accepted("2026-01-04", None, None, "new data", "abd", "2026-01-04T08:00:00+00:00")
    history.accept(first)
    history.accept(second)
    assert history.accepted() == [first, second]
    assert first.covers("vsepp.lmh", "epoch_time")
    assert not first.covers("vsepp.lmh", "pair_rate")
    assert second.covers("anything", "first_losses")
    (tmp_path / "accepted.json").write_text(json.dumps([{"date": "2026-01-03"}]))
    with pytest.raises(DataError, match=r"accepted\.json: cannot read"):
        history.accepted()


def test_a_second_process_is_refused_while_the_first_holds_the_history(tmp_path: Path) -> None:
    mine, other = History(tmp_path / "mine"), History(tmp_path / "mine")
    with mine.held(), pytest.raises(StudyConflict, match="nightly mine: another process"), other.held():
        pass
    with other.held():
        pass


@pytest.mark.parametrize("text", ["2026-02-30", "2026-1-2", "today", "20260102", ""])
def test_a_date_is_an_iso_day(text: str) -> None:
    assert is_date("2026-02-28")
    assert not is_date(text)
