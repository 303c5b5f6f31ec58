"""What a driver writes is what others read, in every home."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from refusals import refused
from s3_server import endpoint, machine, prefix
from studied import OPENED, RECORD, point, start

from vsetune.errors import StorageError, StudyConflict, UsageError
from vsetune.home.paths import remote_place
from vsetune.records.events import Opened
from vsetune.records.log import LogWriter
from vsetune.records.studies import Studies, folder_of_study
from vsetune.records.study_lock import locked_study
from vsetune.records.writer import StudyWriter

__all__ = ["endpoint", "machine", "prefix"]


@pytest.fixture(params=["a folder", "object storage"])
def written(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Callable[[], StudyWriter]]:
    """Opens the log of the study `tiny` in a home of either kind; it is closed at the end, with what was added."""
    if request.param == "object storage":
        request.getfixturevalue("machine")("driver")
    logs: list[LogWriter] = []

    def opened() -> StudyWriter:
        while logs:
            logs.pop().close()
        folder = folder_of_study("tiny")
        logs.append(LogWriter(folder, remote_place(folder)))
        return StudyWriter(logs[-1])

    yield opened
    while logs:
        logs.pop().close()


def read(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Studies:
    """By somebody else: with a home on object storage, on another machine."""
    monkeypatch.setenv("VSETUNE_NODE_FOLDER", str(tmp_path / "reader"))
    return Studies()


def test_attempts_curves_and_numbers_come_back_as_they_were_written(
    written: Callable[[], StudyWriter], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    study = written()
    study.open_study(RECORD, resume=False)
    first, second = study.start_attempt(start()), study.start_attempt(start("vsepp.lseh-c000-s0", loss="lseh"))
    points = [point(step, m_recall=step / 3) for step in range(1, 5)]
    study.record_points(first, points[:2])
    study.record_points(second, [points[0]])
    study.record_points(first, [*points[1:], points[3]])
    study.finish_attempt(first, "finished", summary={"best_m_recall": 1.0}, error=None)
    study.settle()
    found = read(monkeypatch, tmp_path)
    assert found.studies() == [RECORD]
    assert found.attempts("tiny") == study.attempts()
    one, other = found.attempts("tiny")
    assert one.curve == tuple((each.epoch, each.m_recall) for each in points)
    assert one.summary == {"train_seconds": 6.0, "device_seconds": 8.0, "best_m_recall": 1.0}
    assert (other.status, other.summary) == ("running", {"train_seconds": 1.5, "device_seconds": 2.0})
    assert found.points(first) == points
    assert found.metric_curves([first, second], ["i2t_r1", "nothing"])[second] == {"i2t_r1": ((0.1, 10.5),)}


def test_a_resumed_study_goes_on_with_the_attempts_of_a_dead_driver_as_killed_ones(
    written: Callable[[], StudyWriter]
) -> None:
    study = written()
    study.open_study(RECORD, resume=False)
    name = study.start_attempt(start())
    study.record_points(name, [point(1)])
    again = written()
    again.open_study(RECORD, resume=True)
    assert [each.status for each in again.attempts()] == ["killed"]
    assert again.start_attempt(start()) == name
    again.record_points(name, [point(1), point(2)])
    (attempt,) = again.attempts()
    assert (attempt.status, len(attempt.curve)) == ("running", 2)


def test_another_configuration_of_the_same_name_is_refused_with_what_differs(
    written: Callable[[], StudyWriter]
) -> None:
    study = written()
    study.open_study(RECORD, resume=False)
    with refused("VSE-R011", by=StudyConflict):
        study.open_study(RECORD, resume=False)
    other = replace(RECORD, fingerprint="f2", config={**RECORD.config, "baseline": "lseh"})
    with refused("VSE-R012", by=StudyConflict, changes="baseline: lmh -> lseh"):
        study.open_study(other, resume=True)


def test_the_state_says_whether_a_driver_lives_and_how_it_left(
    written: Callable[[], StudyWriter], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    study = written()
    study.open_study(RECORD, resume=False)
    study.settle()
    assert read(monkeypatch, tmp_path).status("tiny") == "killed"
    study.finish_study("failed")
    study.settle()
    assert read(monkeypatch, tmp_path).status("tiny") == "failed"


def test_a_study_whose_driver_lives_is_running(written: Callable[[], StudyWriter]) -> None:
    study = written()
    study.open_study(RECORD, resume=False)
    study.settle()
    with locked_study(folder_of_study("tiny")):
        assert Studies().status("tiny") == "running"
    assert Studies().status("tiny") == "killed"


def test_a_request_to_stop_is_read_wherever_the_driver_runs(
    written: Callable[[], StudyWriter], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    study = written()
    study.open_study(RECORD, resume=False)
    study.settle()
    there = read(monkeypatch, tmp_path)
    assert there.stop_asked("tiny") is None
    there.ask_to_stop("tiny", "by ada at noon")
    assert read(monkeypatch, tmp_path).stop_asked("tiny") == "by ada at noon"


def test_files_that_are_kept_with_an_attempt_are_found_by_everybody(
    written: Callable[[], StudyWriter], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    study = written()
    study.open_study(RECORD, resume=False)
    name = study.start_attempt(start())
    study.settle()
    (tmp_path / "page.html").write_text("a gallery")
    Studies().keep_artifacts(name, [tmp_path / "page.html"], folder="gallery")
    found = read(monkeypatch, tmp_path)
    assert found.artifact_names(name, "gallery") == ["gallery/page.html"]
    page = found.fetch_artifact(name, "gallery/page.html")
    assert page is not None
    assert page.read_text() == "a gallery"
    assert found.fetch_artifact(name, "gallery/other.html") is None


def test_what_is_not_there_is_told_with_what_is(
    written: Callable[[], StudyWriter], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    study = written()
    study.open_study(RECORD, resume=False)
    study.settle()
    found = read(monkeypatch, tmp_path)
    with refused("VSE-R008", by=UsageError, study="tiyn", known="tiny", hint="did you mean tiny? "):
        found.attempts("tiyn")
    with refused("VSE-R009", by=UsageError, attempt="tiny/none/1"):
        found.attempt("tiny/none/1")
    for name in ("../tiny", "", "tiny/../tiny"):
        with pytest.raises(UsageError):
            found.attempts(name)


def test_a_log_of_a_newer_version_is_refused(written: Callable[[], StudyWriter]) -> None:
    study = written()
    with refused("VSE-R002", by=StorageError, got=9, known=1):
        study.state.add(Opened(OPENED.record, 1.0, format=9))


def test_an_empty_home_has_no_studies() -> None:
    assert Studies().studies() == []
