"""Studies that are broken off before, between and after their trials: what is left of them, and how they go on."""

from __future__ import annotations

import os
import time
from functools import partial
from pathlib import Path

import pytest
from plugin_folders import NEGATIVES, write_loss
from refusals import refused
from trials_here import without_ray
from whole_studies import ONE_TRIAL, run, write_study

from vsetune.config.plugins import forget_plugins
from vsetune.errors import StudyConflict, UnusableStore, UsageError
from vsetune.records.studies import Studies
from vsetune.study.run import stop_watched
from vsetune.study.stopping import StopRequest

pytestmark = pytest.mark.filterwarnings("default")  # Ray and MLflow warn about themselves


@pytest.fixture(autouse=True)
def _without_ray(monkeypatch: pytest.MonkeyPatch) -> None:
    without_ray(monkeypatch)


@pytest.fixture
def begun(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file of a study that has begun, and that trains nothing."""
    monkeypatch.setattr("vsetune.study.run.place_trials", lambda *_, **__: None)
    file = write_study(tmp_path, **ONE_TRIAL)
    run(file)
    return file


def unreachable(*_: object, **__: object) -> None:
    raise UsageError("ray: cannot reach it")


def broken_off(*_: object, **__: object) -> None:
    raise KeyboardInterrupt


def test_a_tracking_store_that_cannot_be_used_leaves_no_study_behind_so_that_the_corrected_file_is_a_new_one(
    tmp_path: Path
) -> None:
    with pytest.raises(UnusableStore):
        run(write_study(tmp_path, tracking={"uri": f"sqlite:///{tmp_path / 'mlflow.db'}?mode=ro"}))
    assert Studies().studies() == []


@pytest.mark.parametrize("place", ["keep_plugins", "ray_cluster", "require_places"])
def test_a_study_that_is_broken_off_before_it_is_begun_leaves_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    monkeypatch.setattr(f"vsetune.study.run.{place}", broken_off)
    with pytest.raises(KeyboardInterrupt):
        run(write_study(tmp_path, **ONE_TRIAL))
    assert Studies().studies() == []


@pytest.mark.parametrize("place", ["keep_plugins", "StudyLedger", "ray_cluster", "write_results"])
def test_a_study_that_is_broken_off_before_trials_run_or_after_is_not_shown_as_running(
    begun: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    monkeypatch.setattr(f"vsetune.study.run.{place}", broken_off)
    with pytest.raises(KeyboardInterrupt):
        run(begun, resume=True)
    assert Studies().status("tiny") == "killed"


def test_a_study_that_was_begun_and_whose_cluster_cannot_be_reached_is_not_shown_as_running(
    begun: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("vsetune.study.run.ray_cluster", unreachable)
    with pytest.raises(UsageError, match="cannot reach it"):
        run(begun, resume=True)
    assert Studies().status("tiny") == "killed"
    assert (Path(os.environ["VSETUNE_HOME"]) / "runs" / "tiny" / "study.log").exists()


def test_a_request_to_stop_is_heard_while_ray_starts(begun: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    states, heard = Studies(), []

    def starting(address: str | None, stop: StopRequest, **_: object) -> None:
        assert states.status("tiny") == "running"
        states.ask_to_stop("tiny", "now by somebody")
        for _look in range(3000):
            if stop.is_requested:
                break
            time.sleep(0.01)
        heard.append(stop.reason)
        raise KeyboardInterrupt

    monkeypatch.setattr("vsetune.study.run.stop_watched", partial(stop_watched, every_s=0.01))
    monkeypatch.setattr("vsetune.study.run.ray_cluster", starting)
    with pytest.raises(KeyboardInterrupt):
        run(begun, resume=True)
    assert heard == ["a request in its folder (now by somebody)"]


def test_a_study_whose_plugin_changed_goes_on_once_the_old_code_is_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("vsetune.study.run.place_trials", lambda *_, **__: None)
    loss = write_loss(tmp_path / "half_hinge")
    plugin = {"plugins": ["half_hinge/"], "losses": [{"name": "lmh"}, {"name": "half_hinge"}]}
    path = write_study(tmp_path, **ONE_TRIAL | plugin)
    try:
        run(path)
        write_loss(loss, negatives=NEGATIVES.replace("-1.0", "-2.0"))
        forget_plugins()
        with refused("VSE-S006", by=StudyConflict, study="tiny", plugin="loss half_hinge"):
            run(path, resume=True)
        write_loss(loss)
        forget_plugins()
        assert run(path, resume=True)[0].was_interrupted
    finally:
        forget_plugins()
