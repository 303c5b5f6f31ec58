"""`vsetune nightly history`, `accept`, `install` and `bisect`, as commands: what they print, and their exit codes."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from vsetune.nightly.history import History, nightly_folder
from vsetune.nightly.night import BY_NAME, CellNight, Night, NightReport, ReportRow, Verdict

CELL = "vsepp.lmh"


@pytest.fixture
def sweep(tmp_path: Path) -> Path:
    file = tmp_path / "nightly.yaml"
    file.write_text(yaml.safe_dump({
        "nightly": "tiny", "data": {"path": "data/tiny", "scenes": {"train": 20, "validation": 8, "test": 8}},
        "networks": [{"name": "vsepp"}], "losses": [{"name": "lmh"}],
    }))
    return file


@pytest.fixture
def history() -> History:
    """Nights of the 1st, 2nd, 5th and 6th; on the 6th the epochs are slower and the losses others."""
    history = History(nightly_folder("tiny"))
    for day, time, losses in ((1, 40.0, (1.0,)), (2, 41.0, (1.0,)), (5, 40.5, (1.0,)), (6, 49.0, (0.5,))):
        date = f"2026-11-0{day}"
        history.keep(Night(
            date, f"{date}T01:00:00+00:00", f"{date}T01:06:30+00:00", "complete", f"{day:040}", {},
            {CELL: CellNight({"epoch_time": time}, losses)},
        ))
        is_last = day == 6
        verdicts: dict[str | None, Verdict] = {
            "epoch_time": "regression" if is_last else "quiet", None: "changed" if is_last else "quiet",
        }
        rows = [
            ReportRow(CELL, BY_NAME[name] if name else None, verdict, (), (), None)
            for name, verdict in verdicts.items()
        ]
        history.keep_report(
            NightReport("tiny", date, "abc", 1 if is_last else 0, "headline", (), rows, "", 7, 7, "", ""), "", ""
        )
    return history


def test_nights_are_shown_with_those_that_are_missing(
    vsetune: Callable[..., Any], sweep: Path, history: History
) -> None:
    for name in ("tiny", str(sweep)):
        said = vsetune("nightly", "history", name)
        assert said.code == 0
        rows = [line for line in said.out.splitlines() if "2026-11-" in line]
        assert [("missed" in row, "complete" in row) for row in rows] == [
            (False, True), (False, True), (True, False), (True, False), (False, True), (False, True),
        ]
        assert "1 regression, 1 changed" in rows[-1]
        assert "6.5" in rows[-1]
    assert len([line for line in vsetune("nightly", "history", "tiny", "--last", "2").out.splitlines()
                if "2026-11-" in line]) == 2


def test_a_measure_is_shown_over_the_nights_with_gaps(vsetune: Callable[..., Any], history: History) -> None:
    said = vsetune("nightly", "history", "tiny", "--measure", "epoch_time")
    assert said.code == 0
    (row,) = [line for line in said.out.splitlines() if CELL in line]
    assert "▁▁  ▁█" in row
    assert "40.75" in row
    assert "49" in row
    assert "version 2" in vsetune("nightly", "history", "tiny", "--measure", "first_losses", "--cell", CELL).out


def test_history_is_there_for_machines(vsetune: Callable[..., Any], history: History) -> None:
    plain = json.loads(vsetune("nightly", "history", "tiny", "--measure", "epoch_time", "--json").out)
    assert [night["state"] for night in plain["nights"]] == ["complete", "complete", "missed", "missed", "complete",
                                                             "complete"]
    assert plain["nights"][-1]["verdicts"] == {"regression": 1, "changed": 1}
    assert plain["streams"][0]["values"]["2026-11-06"] == 49.0


def test_no_night_yet_is_one_line(vsetune: Callable[..., Any], sweep: Path) -> None:
    said = vsetune("nightly", "history", str(sweep))
    assert (said.code, len(said.lines)) == (0, 1)
    assert "nightly tiny: no night yet" in said.err
    assert vsetune("nightly", "history", str(sweep), "--json").code == 0


@pytest.mark.parametrize(("words", "told"), [
    (["history", "no_such_sweep"], "no nightly sweep is called no_such_sweep; need one of tiny"),
    (["history", "tiny", "--measure", "epoch"], "--measure: no measure is called epoch; did you mean"),
    (["history", "tiny", "--measure", "epoch_time", "--cell", "x"], "--cell: no cell is called x"),
    (["accept", "tiny", "--reason", "  "], "--reason: got nothing"),
    (["accept", "tiny", "--reason", "x", "--measure", "speed"], "--measure: no measure is called speed"),
    (["accept", "tiny", "--reason", "x", "--cell", "vsepp.lm"], "did you mean vsepp.lmh"),
    (["accept", "tiny", "--reason", "x", "--date", "2026-11-03"], "no night of 2026-11-03; need one of its nights"),
    (["accept", "tiny", "--reason", "x", "--date", "yesterday"], "need a day as YYYY-MM-DD"),
    (["accept", "tiny", "--reason", "x", "--measure", "pair_rate"], "shows no change in pair_rate of any cell"),
    (["accept", "tiny", "--reason", "x", "--date", "2026-11-05"], "shows no change in any measure of any cell"),
])
def test_what_cannot_be_shown_or_accepted_is_one_line_and_exit_code_2(
    vsetune: Callable[..., Any], history: History, words: list[str], told: str
) -> None:
    said = vsetune("nightly", *words)
    assert (said.code, len(said.lines)) == (2, 1)
    assert told in said.err
    assert history.accepted() == []


def test_an_accepted_change_and_its_reason_stay_in_the_history(vsetune: Callable[..., Any], history: History) -> None:
    words = ["nightly", "accept", "tiny", "--reason", "exact attention", "--measure", "epoch_time"]
    said = vsetune(*words)
    assert said.code == 0
    assert "from 2026-11-06 on a new line for epoch_time of all cells: exact attention" in said.err
    (accepted,) = history.accepted()
    assert (accepted.date, accepted.measure, accepted.cell, accepted.reason) == (
        "2026-11-06", "epoch_time", None, "exact attention",
    )
    assert "exact attention" in vsetune("nightly", "history", "tiny").out
    again = vsetune(*words)
    assert again.code == 2
    assert "is accepted already (epoch_time, all cells: exact attention)" in again.err
    assert vsetune(*words[:-1], "first_losses", "--cell", CELL).code == 0


def test_nothing_to_accept_before_the_first_night_is_told(vsetune: Callable[..., Any], sweep: Path) -> None:
    said = vsetune("nightly", "accept", str(sweep), "--reason", "x")
    assert (said.code, len(said.lines)) == (2, 1)
    assert "has no night yet" in said.err


def test_an_entry_is_printed_and_nothing_is_changed_by_a_dry_run(
    vsetune: Callable[..., Any], sweep: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    said = vsetune("nightly", "install", str(sweep), "--as", "systemd", "--at", "3:15", "--dry-run")
    assert said.code == 0
    assert "OnCalendar=*-*-* 03:15:00 UTC" in said.out
    assert not nightly_folder("tiny").exists()


@pytest.mark.parametrize(("words", "told"), [
    (["--as", "systemd", "--at", "25:00"], "--at: got '25:00'"),
    (["--as", "systemd", "--timezone", "Moon"], "--timezone: got 'Moon'"),
    (["--as", "cron"], "crontab: not found on this machine"),
    (["--as", "github"], "stands in no git repository"),
    (["--as", "systemd", "--home", "s3://key:secret@bucket"], "keys do not belong in the address"),
])
def test_an_entry_that_cannot_be_made_is_one_line_and_exit_code_2(
    vsetune: Callable[..., Any], sweep: Path, words: list[str], told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    said = vsetune("nightly", "install", str(sweep), *words)
    assert (said.code, len(said.lines)) == (2, 1)
    assert told in said.err


def test_a_search_without_a_good_revision_or_history_is_one_line_and_exit_code_2(
    vsetune: Callable[..., Any], sweep: Path
) -> None:
    for words in (["--measure", "no_such"], ["--measure", "epoch_time", "--good", "no such revision", "--bad", "HEAD"]):
        said = vsetune("nightly", "bisect", str(sweep), *words)
        assert (said.code, len(said.lines)) == (2, 1)


@pytest.mark.parametrize(("seeds", "told"), [
    ("50", "less than or equal to 20"), ("21", "less than or equal to 20"), ("2", "greater than or equal to 3"),
])
def test_pairs_of_runs_that_a_search_never_takes_are_refused_in_one_line(
    vsetune: Callable[..., Any], sweep: Path, seeds: str, told: str
) -> None:
    said = vsetune("nightly", "bisect", str(sweep), "--measure", "epoch_time", "--seeds", seeds)
    assert said.code == 2
    assert f"invalid value for '--seeds': Input should be {told}" in said.err
    assert len(said.lines) == 1
