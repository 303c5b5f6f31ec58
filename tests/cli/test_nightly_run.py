"""`vsetune nightly run` as a command: its exit codes and what it prints."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from night_files import PLAIN, night_of_day

from vsetune.cli.nightly import show_report
from vsetune.nightly.history import History, nightly_folder
from vsetune.nightly.night import BY_NAME, NightReport, ReportRow


@pytest.fixture
def sweep(tmp_path: Path) -> Path:
    file = tmp_path / "nightly.yaml"
    file.write_text(yaml.safe_dump(PLAIN | {"data": {"path": "nowhere"}}))
    return file


def test_a_night_that_cannot_run_says_why_in_one_line_and_leaves_with_2(vsetune, sweep) -> None:
    said = vsetune("nightly", "run", str(sweep), "--date", "2026-01-02")
    assert (said.code, len(said.out.splitlines())) == (2, 1)
    assert said.out.startswith("tiny 2026-01-02: could not run: ")
    assert "nowhere" in said.out


def test_a_complete_night_is_judged_once_and_then_refused_in_one_line(vsetune, sweep) -> None:
    History(nightly_folder("tiny")).keep(night_of_day(2))
    said = vsetune("nightly", "run", str(sweep), "--date", "2026-01-02")
    assert (said.code, said.out) == (0, "tiny 2026-01-02: baseline night 1 of 7: 12 measures not judged yet\n")
    assert vsetune("nightly", "run", str(sweep), "--date", "2026-01-02").refused("2026-01-02", "--again")


@pytest.mark.parametrize("date", ["2026-02-30", "yesterday", "2026-1-1"])
def test_a_date_that_is_none_is_refused(vsetune, sweep, date) -> None:
    assert vsetune("nightly", "run", str(sweep), "--date", date).refused("VSE-X002", "--date: ", date)


def test_what_is_not_quiet_is_shown_and_the_rest_on_demand(capsys) -> None:
    row = ReportRow(
        "vsepp.lmh", BY_NAME["epoch_time"], "regression", ("2026-01-02",), (140.0,), 140.0, 100.0, 95.0, 105.0, 0.4,
        "2026-01-02", ("abc1234 a slower step",), "time per epoch: +40 % worse",
    )
    quiet = replace(row, verdict="quiet", text="as usual", suspects=())
    report = NightReport(
        "tiny", "2026-01-02", "abc", 1, "1 regression", ("a note",), (row, quiet), "", 7, 7, "begin", "end"
    )
    show_report(report, show_all=False)
    said = capsys.readouterr()
    assert "abc1234" in said.out
    assert "as usual" not in said.out
    assert said.out.splitlines()[-1] == "tiny 2026-01-02: 1 regression"
    assert said.err.strip() == "note: a note"
    show_report(report, show_all=True)
    assert "as usual" in capsys.readouterr().out
