"""Studies that are broken off before, between and after their trials: what is left of them, and how they go on."""

from __future__ import annotations

import os
import re
import time
from pathlib import Path
from typing import Any

import pytest
from plugin_folders import NEGATIVES, write_loss
from refusals import refused
from trials_here import without_ray
from whole_studies import ONE_TRIAL, VSEPP, run, write_study

from vsetune.config.plugins import forget_plugins
from vsetune.errors import StudyConflict, UnusableStore, UsageError
from vsetune.records.studies import Studies
from vsetune.report.board_notes import notes
from vsetune.study.ledger import StudyLedger
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
    assert Studies().state("tiny").status == "killed"


def test_a_study_that_was_begun_and_whose_cluster_cannot_be_reached_is_not_shown_as_running(
    begun: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("vsetune.study.run.ray_cluster", unreachable)
    with pytest.raises(UsageError, match="cannot reach it"):
        run(begun, resume=True)
    assert Studies().state("tiny").status == "killed"
    assert (Path(os.environ["VSETUNE_HOME"]) / "runs" / "tiny" / "study.log").exists()


def test_a_request_to_stop_is_heard_while_ray_starts(begun: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    states, heard = Studies(), []

    def starting(address: str | None, stop: StopRequest, **_: object) -> None:
        assert states.state("tiny").status == "running"
        states.ask_to_stop("tiny", "now by somebody")
        for _look in range(600):
            if stop.is_requested:
                break
            time.sleep(0.05)
        heard.append(stop.reason)
        raise KeyboardInterrupt

    monkeypatch.setattr("vsetune.study.run.ray_cluster", starting)
    with pytest.raises(KeyboardInterrupt):
        run(begun, resume=True)
    assert heard == ["a request in its folder (now by somebody)"]


def test_cells_that_have_not_begun_go_on_with_changed_plugins_where_that_is_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first two of four cells run; then the loss changes, which one of each pair has."""
    loss = write_loss(tmp_path / "half_hinge")
    path = write_study(
        tmp_path, plugins=["half_hinge/"], baseline="lmh", losses=[{"name": "half_hinge"}, {"name": "lmh"}],
        networks=[VSEPP, {"name": "vsepp", "label": "second", "fixed": VSEPP["fixed"] | {"word_size": 10}}],
        search={"configurations": 1},
    )
    ask, asked = StudyLedger.next, []

    def two_trials(ledger: StudyLedger, cells: Any = None) -> Any:
        answer = "done" if len(asked) == 2 else ask(ledger, cells)
        asked.extend([] if isinstance(answer, str) else [answer])
        return answer

    try:
        with monkeypatch.context() as broken_off:
            broken_off.setattr(StudyLedger, "next", two_trials)
            assert dict(run(path)[0].counts) == {"finished": 2}
        first = {each.start.cell: each.start.resolved.get("plugins") for each in Studies().attempts("tiny")}
        assert first.keys() == {"vsepp.half_hinge", "vsepp.lmh"}
        changed = NEGATIVES.replace("-1.0", "-2.0")
        write_loss(loss, negatives=changed)
        forget_plugins()
        with refused("VSE-S006", by=StudyConflict, study="tiny", plugin="loss half_hinge"):
            run(path, resume=True)
        for resumes in range(2):  # the second finds nothing left to do
            outcome, shown = run(path, resume=True, changed_plugins=True)
            assert (outcome.ending, dict(outcome.counts)) == ("finished", {"finished": 3}), resumes
            assert "cell vsepp.half_hinge: has run with loss half_hinge " in shown
        assert len(Studies().attempts("tiny")) == 4
        versions = {each.start.cell: each.start.resolved.get("plugins") for each in Studies().attempts("tiny")}
        assert {cell: versions[cell] for cell in first} == first
        old, new = (versions[f"{name}.half_hinge"]["loss.half_hinge"][:12] for name in ("vsepp", "second"))
        assert old != new
        assert outcome.page is not None
        page = outcome.page.read_text(encoding="utf-8")
        (note,) = (note for note in notes(outcome.board) if note.startswith("Plugin code: 2 versions"))
        for words in (f"loss half_hinge {new} in second half_hinge", f"loss half_hinge {old} in vsepp half_hinge"):
            assert words in note
            assert words in page
        write_loss(loss)
        forget_plugins()
        with refused("VSE-S010", by=StudyConflict, study="tiny") as caught:
            run(path, resume=True)
        assert re.search(rf"cell second.half_hinge: has run .*{new}.*--changed", str(caught.value))
        assert Studies().state("tiny").status != "running"
    finally:
        forget_plugins()
