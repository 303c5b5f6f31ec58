"""Whole nights on a real local Ray and a real MLflow; and nights that cannot run, of which a report remains."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import ray
from full_disk import largest_file
from night_files import night_of_day, tiny_spec
from refusals import refused
from rich.console import Console
from trials_here import without_ray

from vsetune.errors import DataError, StudyConflict
from vsetune.nightly.history import History, nightly_folder
from vsetune.nightly.night import MEASURES, Night, NightReport
from vsetune.nightly.tonight import run_night

pytestmark = [
    pytest.mark.filterwarnings("default"),  # Ray and its dependencies warn about themselves
    pytest.mark.usefixtures("mlflow_here"),
]


@pytest.fixture(scope="module")
def cluster() -> Iterator[None]:
    """One Ray for all tests of this file that train."""
    ray.init(address="local", num_cpus=1, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
    yield
    ray.shutdown()


def run(date: str, *, again: bool = False, **changes: Any) -> NightReport:
    return run_night(
        tiny_spec(**changes), date=date, where="nightly.yaml", again=again, address=None, console=Console(quiet=True)
    )


def history() -> History:
    return History(nightly_folder("tiny"))


def night_of(date: str) -> Night:
    (found,) = (night for night in history().nights() if night.date == date)
    return found


@pytest.mark.usefixtures("cluster")
def test_nights_are_run_kept_and_held_against_each_other() -> None:
    found = run("2026-01-01")
    assert (found.exit_code, found.headline) == (0, "baseline night 1 of 7: 12 measures not judged yet"), found.notes
    first = night_of("2026-01-01")
    assert (first.state, first.problems) == ("complete", ())
    assert first.cells["vsepp.lmh"].values.keys() == {measure.name for measure in MEASURES}
    assert len(first.cells["vsepp.lmh"].first_losses) == 12  # two epochs of six steps
    assert {"data", "processor", "threads", "python", "package_torch", "settings.training"} <= first.conditions.keys()
    assert "git_revision" not in first.conditions

    with refused("VSE-G012", name="tiny", date="2026-01-01", by=StudyConflict):
        run("2026-01-01")

    history().keep(replace(first, date="2026-01-03", ended="", state="partial", cells={}, conditions={}, study=(
        "nightly-tiny-2026-01-03")))  # begun, and its process killed at once
    found = run("2026-01-03")
    second = night_of("2026-01-03")
    assert (second.state, second.started) == ("complete", first.started)
    assert second.seeds != first.seeds
    assert second.cells["vsepp.lmh"].first_losses == first.cells["vsepp.lmh"].first_losses
    assert found.notes == ("not complete before tonight: 2026-01-02 missed",)
    assert found.headline == "baseline night 2 of 7: 11 measures not judged yet, 1 quiet"

    assert history().report_file("2026-01-03", "html").stat().st_size > 1000

    back = run("2026-01-02")
    assert back.exit_code == 2
    assert "the clock went back: the history has a night of 2026-01-03" in back.headline
    assert history().report_file("2026-01-02", "json").exists()
    assert [night.date for night in history().nights()] == ["2026-01-01", "2026-01-03"]


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"data": {"path": "nowhere"}}, "nowhere"),
        ({"tracking": {"uri": "sqlite:////proc/nowhere/mlflow.db"}}, "/proc/nowhere"),
        ({"training": {"epochs": 1, "batch_size": 100_000}}, "batch_size: got 100000"),
    ],
)
def test_a_night_that_cannot_run_leaves_a_report_and_is_never_complete(changes: dict[str, Any], told: str) -> None:
    history().keep(night_of_day(1))
    found = run("2026-01-02", **changes)
    assert (found.exit_code, found.rows) == (2, ())
    assert found.headline.startswith("could not run: ")
    assert told in found.headline
    assert "\n" not in found.headline
    assert history().report_file("2026-01-02", "md").exists()
    night = night_of("2026-01-02")
    assert (night.state, bool(night.ended)) == ("failed", True)


def test_a_night_whose_records_wait_is_not_complete_the_same_command_delivers_them_and_again_is_another_study(
    monkeypatch: pytest.MonkeyPatch
) -> None:
    without_ray(monkeypatch)
    with monkeypatch.context() as away:
        away.setattr("vsetune.study.run.DELIVER_WITHIN_S", 0.0)
        away.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:1")  # where nothing listens
        found = run("2026-01-02")
    assert found.exit_code == 2, found.headline
    assert found.headline.startswith("the night is not complete; ")
    assert any("cannot reach 127.0.0.1:1" in note and "tracking flush" in note for note in found.notes), found.notes
    found = run("2026-01-02")
    assert (found.exit_code, found.headline) == (0, "baseline night 1 of 7: 12 measures not judged yet"), found.notes
    again = run("2026-01-02", again=True)
    assert (again.study, again.baseline_nights) == ("nightly-tiny-2026-01-02-2", 0)


def test_a_night_that_was_measured_and_not_judged_is_judged_by_the_same_command() -> None:
    history().keep(night_of_day(1))
    history().keep(night_of_day(2))
    accepted = nightly_folder("tiny") / "accepted.json"
    accepted.write_text("{")
    found = run("2026-01-02")
    assert (found.exit_code, found.rows) == (2, ())
    assert found.headline.startswith(f"tonight cannot be judged: {accepted}: cannot read")
    assert found.headline.endswith("the same command with --date 2026-01-02 then judges what was measured")
    accepted.unlink()
    found = run("2026-01-02")
    assert (found.exit_code, found.headline) == (0, "baseline night 2 of 7: 11 measures not judged yet, 1 quiet")
    assert night_of("2026-01-02") == night_of_day(2)  # nothing was trained again
    for date in ("2026-01-02", "2026-01-01"):  # the report of the first night would be of the past
        with refused("VSE-G012", date=date, by=StudyConflict):
            run(date)


@pytest.mark.parametrize("again", [False, True])
def test_a_night_of_a_newer_version_is_not_replaced_and_a_damaged_one_is_a_note(again: bool) -> None:
    history().keep(night_of_day(1))
    file = nightly_folder("tiny") / "nights" / "2026-01-02.json"
    file.write_text('{"format": 2}')
    with refused("VSE-G015", got=2, by=DataError):
        run("2026-01-02", again=again)
    (file.parent / "2026-01-01.json").write_text("{")
    found = run("2026-01-03", data={"path": "nowhere"})
    assert any("by a newer version of vsetune" in note for note in found.notes)
    assert any("2026-01-01.json: cannot read" in note for note in found.notes)
    assert file.read_text() == '{"format": 2}'


def test_a_full_disk_is_told_in_the_report_that_comes_back() -> None:
    with history().held():
        pass
    with largest_file(0):
        found = run("2026-01-02", data={"path": "nowhere"})
    assert found.exit_code == 2
    assert "cannot write" in found.headline
    assert any(note.startswith("the report could not be stored: ") for note in found.notes)
    assert not list(Path(os.environ["VSETUNE_HOME"]).rglob("2026-01-02.*"))
