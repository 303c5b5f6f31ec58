"""`vsetune nightly history`, `accept` and `check`, as commands: what they print, and their exit codes."""

from __future__ import annotations

import json
from pathlib import Path

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


def test_nights_are_shown_with_those_that_are_missing(vsetune, sweep, history) -> None:
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


def test_history_is_there_for_machines(vsetune, history) -> None:
    plain = json.loads(vsetune("nightly", "history", "tiny", "--json").out)
    assert [night["state"] for night in plain["nights"]] == ["complete", "complete", "missed", "missed", "complete",
                                                             "complete"]
    assert plain["nights"][-1]["verdicts"] == {"regression": 1, "changed": 1}


@pytest.mark.parametrize(("words", "said"), [
    (["history", "no_such_sweep"], ["no_such_sweep", "tiny"]),
    (["accept", "tiny", "--reason", "  "], ["--reason: "]),
    (["accept", "tiny", "--reason", "x", "--measure", "speed"], ["--measure: ", "speed"]),
    (["accept", "tiny", "--reason", "x", "--cell", "vsepp.lm"], ["vsepp.lmh"]),
    (["accept", "tiny", "--reason", "x", "--date", "2026-11-03"], ["2026-11-03"]),
    (["accept", "tiny", "--reason", "x", "--date", "yesterday"], ["yesterday"]),
    (["accept", "tiny", "--reason", "x", "--measure", "pair_rate"], ["pair_rate"]),
    (["accept", "tiny", "--reason", "x", "--date", "2026-11-05"], ["2026-11-05"]),
])
def test_what_cannot_be_shown_or_accepted_is_refused(vsetune, history, words, said) -> None:
    assert vsetune("nightly", *words).refused(*said)
    assert history.accepted() == []


def test_a_sweep_without_a_history(vsetune, sweep, monkeypatch) -> None:
    assert vsetune("nightly", "history", "tiny").refused("VSE-X051", "tiny")
    assert vsetune("nightly", "accept", str(sweep), "--reason", "x").refused("tiny")
    said = vsetune("nightly", "history", str(sweep))
    assert (said.code, len(said.lines)) == (0, 1)
    assert vsetune("nightly", "history", str(sweep), "--json").code == 0
    monkeypatch.setenv("VSETUNE_HOME", "s3://bucket/home")
    assert vsetune("nightly", "history", "tiny").refused("VSE-X050", "tiny", "s3://bucket/home")


def test_an_accepted_change_and_its_reason_stay_in_the_history(vsetune, history) -> None:
    words = ["nightly", "accept", "tiny", "--reason", "exact attention", "--measure", "epoch_time"]
    said = vsetune(*words)
    assert said.code == 0
    assert "nights before 2026-11-06 no longer count for epoch_time of all cells: exact attention" in said.err
    (accepted,) = history.accepted()
    assert (accepted.date, accepted.measure, accepted.cell, accepted.reason) == (
        "2026-11-06", "epoch_time", None, "exact attention",
    )
    assert "exact attention" in vsetune("nightly", "history", "tiny").out
    assert vsetune(*words).refused("epoch_time", "exact attention")
    assert vsetune(*words[:-1], "first_losses", "--cell", CELL).code == 0


@pytest.mark.parametrize(("words", "code"), [
    ((), "VSE-G540"), (("--measure", "no_such"), "no_such"), (("--cell", "no.such"), "no.such"),
])
def test_a_check_that_cannot_be_made_leaves_with_125_which_git_bisect_skips(vsetune, sweep, history, words, code):
    if code == "VSE-G540":
        for file in (history.folder / "reports").iterdir():
            file.unlink()
    said = vsetune("nightly", "check", str(sweep), *words)
    assert (said.code, said.out.split(": ")[-1]) == (125, "cannot be judged\n")
    assert code in said.err
    assert vsetune("nightly", "check", str(sweep.parent / "none.yaml")).code == 125
