"""The history of a nightly sweep on disk: stored whole, read with care, written by one process at a time."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from night_files import night_of_day
from night_reports import sample_report
from refusals import refused

from vsetune.errors import DataError, StudyConflict
from vsetune.nightly.history import Accepted, History, is_date
from vsetune.nightly.night import CellNight

NIGHT = night_of_day(2)
ENTRY: dict[str, Any] = {
    "date": "2026-01-03", "measure": None, "cell": None, "reason": "x", "revision": "abc", "at": "",
}


def test_nights_come_back_as_they_were_stored(tmp_path: Path) -> None:
    history = History(tmp_path)
    assert history.nights() == []
    losses = tuple(1 / (3 + step) for step in range(1000))
    many = {f"vsepp.loss_{cell}": CellNight({"best_m_recall": 40.25}, losses) for cell in range(50)}
    nights = [NIGHT, night_of_day(3, cells=many)]
    for night in reversed(nights):
        history.keep(night)
    assert history.nights() == nights


@pytest.mark.parametrize(
    "changed",
    [{"state": "great"}, {"revision": None}, {"cells": {"vsepp.lmh": {"values": {"epoch_time": "fast"}}}},
     {"cells": {"vsepp.lmh": {"values": {}, "first_losses": ["a"]}}}, {"format": 0}, {"date": "2026-01-04"}],
)
def test_a_damaged_night_is_left_out_and_not_replaced(tmp_path: Path, changed: dict[str, object]) -> None:
    history = History(tmp_path)
    history.keep(NIGHT)
    history.keep(night_of_day(3))
    file = tmp_path / "nights" / "2026-01-03.json"
    file.write_text(json.dumps(json.loads(file.read_bytes()) | changed))
    assert history.nights() == [NIGHT]
    (problem,) = history.problems
    assert str(file) in problem
    with pytest.raises(DataError):
        history.require_readable("2026-01-03")


@pytest.mark.parametrize("content", ["{", "[]", "[" * 100_000])
def test_what_is_no_json_of_ours_is_one_line(tmp_path: Path, content: str) -> None:
    history = History(tmp_path)
    for folder in ("nights", "reports"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "2026-01-02.json").write_text(content)
    assert (history.nights(), history.report("2026-01-02")) == ([], None)
    assert len(history.problems) == 2
    assert all("\n" not in problem and len(problem) < 400 for problem in history.problems)


def test_files_of_a_newer_version_stay_and_are_reported(tmp_path: Path) -> None:
    history = History(tmp_path)
    history.keep(NIGHT)
    newer = tmp_path / "nights" / "2026-01-03.json"
    newer.write_text('{"format": 9, "date": "2026-01-03"}')
    assert history.nights() == [NIGHT]
    assert history.problems.pop().startswith(
        f"{newer}: was written by a newer version of vsetune (format 9, this one reads 1)"
    )
    with refused("VSE-G015", file=newer, got=9, need=1):
        history.require_readable("2026-01-03")
    for date in ("2026-01-02", "2026-01-04"):
        history.require_readable(date)
    report = history.report_file("2026-01-02", "json")
    report.parent.mkdir()
    report.write_text('{"format": 9}')
    assert history.report("2026-01-02") is None
    (problem,) = history.problems
    assert problem.startswith(f"{report}: was written by a newer version of vsetune (format 9")


def test_a_report_comes_back_with_its_last_nights_also_without_newer_fields(tmp_path: Path) -> None:
    history, report = History(tmp_path), sample_report()
    assert history.report(report.date) is None
    history.keep_report(report, "<html>", "## text")
    file = history.report_file(report.date, "json")
    plain = json.loads(file.read_bytes())
    for row in plain["rows"]:
        row |= {"found_by": "band", "quiet_nights": 3}  # of versions before
        (row["measure"] or {}).pop("most", None)
    file.write_text(json.dumps(plain))
    found = history.report(report.date)
    assert found is not None
    assert [(row.cell, row.measure_name, row.verdict, row.change, row.since) for row in found.rows] == [
        (row.cell, row.measure_name, row.verdict, row.change, row.since) for row in report.rows
    ]
    assert (found.headline, found.exit_code) == (report.headline, 1)
    file.write_text(json.dumps(plain | {"rows": [{"cell": "a", "verdict": "quiet", "measure": "x"}]}))
    assert history.report(report.date) is None
    assert len(history.problems) == 1


def test_accepted_changes_stay_in_order(tmp_path: Path) -> None:
    history = History(tmp_path)
    first = Accepted("2026-01-03", "epoch_time", "vsepp.lmh", "meant", "abc", "2026-01-03T08:00:00+00:00")
    second = Accepted("2026-01-04", None, None, "new data", "abd", "2026-01-04T08:00:00+00:00")
    history.accept(first)
    history.accept(second)
    assert history.accepted() == [first, second]
    assert first.covers("vsepp.lmh", "epoch_time")
    assert not first.covers("vsepp.lmh", "pair_rate")
    assert second.covers("anything", "first_losses")


@pytest.mark.parametrize("content", [
    {}, [{"date": "2026-01-03"}], [ENTRY | {"date": "tomorrow"}], [ENTRY | {"measure": ["a"]}],
])
def test_damaged_accepted_changes_are_never_guessed(tmp_path: Path, content: Any) -> None:
    (tmp_path / "accepted.json").write_text(json.dumps(content))
    with refused("VSE-G013", file=tmp_path / "accepted.json", by=DataError):
        History(tmp_path).accepted()
    (tmp_path / "accepted.json").write_text("")
    with pytest.raises(DataError, match=r"accepted\.json: .*; fix it or move it away$"):
        History(tmp_path).accepted()


def test_a_second_process_is_refused_while_the_first_has_the_lock(tmp_path: Path) -> None:
    mine, other = History(tmp_path / "mine"), History(tmp_path / "mine")
    with mine.held(), refused("VSE-G010", what="nightly mine", by=StudyConflict), other.held():
        pass
    with other.held():
        pass


@pytest.mark.parametrize("text", ["2026-02-30", "2026-1-2", "today", "20260102", ""])
def test_a_date_is_an_iso_day(text: str) -> None:
    assert is_date("2026-02-28")
    assert not is_date(text)
