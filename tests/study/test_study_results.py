"""What a study leaves at its end, and what it says where there is nothing to leave."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from vsetune.config.study.study_spec import TrackingSpec
from vsetune.records.events import AttemptStart, StudyRecord, ValidationPoint
from vsetune.records.log import LogWriter
from vsetune.records.state import Attempt
from vsetune.records.studies import folder_of_study
from vsetune.records.writer import StudyWriter
from vsetune.study import results
from vsetune.study.results import write_results

START = AttemptStart(
    "demo", "vsepp.lmh-c000-s0", "vsepp.lmh", "vsepp", "lmh", 1, 0, "search", {}, {"data": {"path": "data/scenes"}},
    protocol={"images": 400, "validate_every_steps": 50},
)
RECORD = StudyRecord("demo", "ab", {})


def recorded() -> list[Attempt]:
    """The attempts of a study with one trial, in the home."""
    log = LogWriter(folder_of_study("demo"))
    writer = StudyWriter(log)
    writer.open_study(RECORD, resume=False)
    name = writer.start_attempt(START)
    writer.record_points(name, [ValidationPoint(50, 0.5, 400, 20.0, 1.0), ValidationPoint(100, 1.0, 800, 40.0, 2.0)])
    writer.finish_attempt(name, "finished", summary={}, error=None)
    log.close()
    return writer.attempts()


def prepared_in(folder: Path) -> Any:
    spec = SimpleNamespace(baseline="lmh", study="demo", tracking=TrackingSpec())
    return SimpleNamespace(spec=spec, folder=folder, record=lambda: RECORD)


def test_a_study_without_a_validation_says_once_that_it_is_about_the_leaderboard() -> None:
    prepared: Any = SimpleNamespace(spec=SimpleNamespace(baseline="lmh"))
    found = write_results(prepared, [], is_over=True)
    assert found.board is None
    assert found.remark


def test_a_page_that_cannot_be_drawn_is_told_and_fails_neither_the_study_nor_other_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object, **__: object) -> str:
        raise AttributeError("module 'vl_convert' has no attribute\n'javascript_bundle'")

    monkeypatch.setattr(results, "to_html", broken)
    found = write_results(prepared_in(tmp_path), recorded(), is_over=True)
    assert found.board is not None
    assert [(row.network, row.loss) for row in found.board.rows] == [("vsepp", "lmh")]
    assert found.page is None
    assert [file.name for file in found.files] == ["leaderboard.csv", "curves.csv", "leaderboard.tex"]
    assert all(file.is_file() for file in found.files)
    assert found.remark.startswith("leaderboard.html cannot be made (AttributeError: module 'vl_convert' has no ")
    assert "vsetune leaderboard export demo --html" in found.remark


def test_a_folder_that_takes_nothing_is_told_once(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    found = write_results(prepared_in(tmp_path / "file"), recorded(), is_over=True)
    assert found.files == []
    assert found.remark.startswith(str(tmp_path / "file" / "leaderboard.html"))
