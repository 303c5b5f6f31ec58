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


def test_a_night_of_many_cells_and_first_losses_comes_back(tmp_path: Path) -> None:
    history = History(tmp_path)
    cells = {f"vsepp.loss_{cell}": CellNight({}, tuple(1 / (3 + step) for step in range(1000))) for cell in range(50)}
    history.keep(_night("2026-01-02", cells=cells))
    assert history.night("2026-01-02") == _night("2026-01-02", cells=cells)


@pytest.mark.parametrize(
    "changed",
    [{"state": "great"}, {"revision": None}, {"conditions": None}, {"started": None}, {"problems": [1]},
     {"cells": {"vsepp.lmh": {"values": None}}}, {"cells": {"vsepp.lmh": {"values": {"epoch_time": "fast"}}}},
     {"cells": {"vsepp.lmh": {"values": {}, "first_losses": ["a"]}}}],
)
def test_a_night_with_a_value_that_is_none_is_told_with_its_key(tmp_path: Path, changed: dict[str, object]) -> None:
    history = History(tmp_path)
    history.keep(_night("2026-01-02"))
    file = tmp_path / "nights" / "2026-01-02.json"
    file.write_text(json.dumps(json.loads(file.read_bytes()) | changed))
    assert history.nights() == []
    (problem,) = history.problems
    assert f"{file}: is no night ({next(iter(changed))}" in problem
    assert "\n" not in problem


@pytest.mark.parametrize(
    "content",
    ['[]', '{"format": 2, "rows": []}', '{"format": 1, "rows": null}', '{"format": 1, "rows": [{}]}', "[" * 100_000,
     '{"format": 1, "headline": 7}', '{"format": 1, "rows": [{"cell": "a", "verdict": "quiet", "measure": "x"}]}'],
)
def test_a_damaged_report_counts_as_none_and_is_told_in_one_line(tmp_path: Path, content: str) -> None:
    history = History(tmp_path)
    file = history.report_file("2026-01-02", "json")
    file.parent.mkdir()
    file.write_text(content)
    assert history.report_plain("2026-01-02") is None
    (problem,) = history.problems
    assert problem.startswith(f"{file}: ")
    assert len(problem) < 400


@pytest.mark.parametrize(
    "content",
    ["", "{}", "3", '[{"date": "tomorrow"}]', '[{"date": "2026-01-03"}]',
     '[{"date": null, "measure": null, "cell": null, "reason": "x", "revision": "abc", "at": ""}]',
     '[{"date": "tomorrow", "measure": null, "cell": null, "reason": "x", "revision": "abc", "at": ""}]',
     '[{"date": "2026-01-03", "measure": ["a"], "cell": null, "reason": "x", "revision": "abc", "at": ""}]'],
)
def test_what_was_accepted_is_refused_with_advice_when_it_cannot_be_read(tmp_path: Path, content: str) -> None:
    (tmp_path / "accepted.json").write_text(content)
    with pytest.raises(DataError, match=r"accepted\.json: cannot read .*; fix it or move it away$"):
        History(tmp_path).accepted()


@pytest.mark.parametrize(
    ("content", "told"),
    [(b"{", "cannot read"), (b"[]", "format"), (b'{"format": 0}', "format"), (b'{"format": 1}', "is no night")],
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


def test_a_night_of_a_newer_version_stays_and_is_told_as_such(tmp_path: Path) -> None:
    history = History(tmp_path)
    history.keep(_night("2026-01-02"))
    file = tmp_path / "nights" / "2026-01-03.json"
    file.write_text('{"format": 9, "date": "2026-01-03"}')
    newer = "was written by a newer version of vsetune (format 9, this one reads 1); update vsetune to read it"
    assert [night.date for night in history.nights()] == ["2026-01-02"]
    assert history.problems == [f"{file}: {newer}"]
    assert history.set_aside_damaged() == [f"{file}: {newer}; until then it counts for nothing"]
    assert file.exists()
    with pytest.raises(DataError, match="by a newer version"):
        history.require_readable("2026-01-03")
    history.require_readable("2026-01-02")
    history.require_readable("2026-01-04")


def test_a_report_of_a_newer_version_is_told_as_such(tmp_path: Path) -> None:
    history = History(tmp_path)
    file = history.report_file("2026-01-02", "json")
    file.parent.mkdir()
    file.write_text('{"format": 9}')
    assert history.report_plain("2026-01-02") is None
    assert "by a newer version of vsetune (format 9" in history.problems[0]


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
