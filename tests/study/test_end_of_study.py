"""What a study leaves: its page, its winners as models, what was asked for beside; and how it goes on elsewhere."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import pytest
from mlflow import MlflowClient
from refusals import refused
from trials_here import without_ray
from whole_studies import ONE_TRIAL, run, write_study
from written_fields import ENVIRONMENT, POINT, PROTOCOL, RESOLVED, SUMMARY

from chaos.logged import export_problems, read_log, twice
from vsetune.board.board_sentences import headline
from vsetune.board.building import build
from vsetune.cli.leaderboard_output import export
from vsetune.cli.tracking import export as export_study
from vsetune.cli.tracking import import_ as import_study
from vsetune.errors import UsageError
from vsetune.records.events import SYSTEM, Drawn, Event
from vsetune.records.log import LOG_FILE, LogWriter, lines_of
from vsetune.records.state import Attempt
from vsetune.records.studies import Studies
from vsetune.study.confirmations import Confirming
from vsetune.study.recorded import examine

pytestmark = pytest.mark.filterwarnings("default")  # Ray and MLflow warn about themselves
PAGE = Path("runs") / "tiny" / "leaderboard.html"


class Finished(NamedTuple):
    """A study that was run to its end: its home, its file, what was shown."""

    home: Path
    file: Path
    shown: str


def attempts() -> list[Attempt]:
    return Studies().attempts("tiny")


@pytest.fixture(scope="module")
def once(tmp_path_factory: pytest.TempPathFactory, empty_store: Path) -> Finished:
    home = tmp_path_factory.mktemp("finished")
    shutil.copy(empty_store, home / "mlflow.db")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("VSETUNE_HOME", str(home))
        patch.delenv("MLFLOW_TRACKING_URI", raising=False)
        without_ray(patch)
        path = write_study(home, tracking={"system_metrics": True})
        return Finished(home, path, run(path)[1])


@pytest.fixture
def finished(once: Finished, monkeypatch: pytest.MonkeyPatch) -> Finished:
    """That study, at home where it was run."""
    monkeypatch.setenv("VSETUNE_HOME", str(once.home))
    monkeypatch.delenv("MLFLOW_TRACKING_URI")
    without_ray(monkeypatch)
    return once


def models_of(home: Path) -> dict[str, str]:
    """Ids of MLflow models by the trial that they are of."""
    client = MlflowClient(f"sqlite:///{home / 'mlflow.db'}")
    experiment = client.get_experiment_by_name("tiny")
    assert experiment is not None
    return {model.tags["trial"]: model.model_id for model in client.search_logged_models([experiment.experiment_id])}


def test_the_winner_of_every_cell_is_an_mlflow_model(finished: Finished) -> None:
    assert "2 winners logged as MLflow models" in finished.shown
    bests: dict[str, tuple[float, str]] = {}
    for each in reversed(attempts()):  # of equals the earlier configuration wins
        known = bests.get(each.start.cell)
        if known is None or each.summary["best_m_recall"] >= known[0]:
            bests[each.start.cell] = (each.summary["best_m_recall"], each.start.trial)
    assert set(models_of(finished.home)) == {trial for _, trial in bests.values()}


def test_a_study_finishes_every_promised_trial_and_fills_the_leaderboard(finished: Finished) -> None:
    recorded = attempts()
    assert len({each.start.trial for each in recorded}) == len(recorded) == 4
    for each in recorded:
        epochs = [epoch for epoch, _ in each.curve]
        assert epochs == sorted(set(epochs))
        assert epochs[-1] == 2.0
    trials = finished.home / "runs" / "tiny" / "trials"
    assert len(list(trials.glob("*/best.safetensors"))) == 4
    rows = build(recorded, baseline="lmh").rows
    assert [(row.loss, len(row.seeds), row.trials) for row in rows] == [("lmh", 1, 2), ("lseh", 1, 2)]
    logged = read_log(finished.home / "runs" / "tiny")
    assert logged.problems + twice(logged) == []
    assert export_problems(f"sqlite:///{finished.home / 'mlflow.db'}", "tiny", logged) == []


def test_a_finished_study_resumes_to_nothing_left_to_do_and_logs_nothing_twice(finished: Finished) -> None:
    before, models = attempts(), models_of(finished.home)
    outcome, shown = run(finished.file, resume=True)
    assert (dict(outcome.counts), outcome.ending) == ({"finished": 4}, "finished")
    assert (attempts(), models_of(finished.home)) == (before, models)
    assert "MLflow models" not in shown
    assert "goes on" not in shown
    assert outcome.experiment == MlflowClient(f"sqlite:///{finished.home / 'mlflow.db'}").get_experiment_by_name(
        "tiny").experiment_id


def test_a_study_that_has_finished_stays_so_when_its_confirming_cannot_reach_a_cluster(
    finished: Finished, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unreachable(*_: object, **__: object) -> None:
        raise UsageError("ray: cannot reach it")

    monkeypatch.setenv("VSETUNE_HOME", shutil.copytree(finished.home, tmp_path / "home").as_posix())
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "none")
    monkeypatch.setattr("vsetune.study.run.ray_cluster", unreachable)
    with pytest.raises(UsageError, match="cannot reach it"):
        run(finished.file, resume=True, confirming=Confirming(2, contenders=True))
    assert Studies().status("tiny") == "finished"


def _other(event: Event) -> Event:
    return replace(event, configuration={"training.learning_rate": 0.5}) if isinstance(event, Drawn) else event


@pytest.mark.parametrize("change", [lambda event: None if isinstance(event, Drawn) else event, _other])
def test_a_study_whose_log_does_not_say_how_its_trials_were_sampled_is_refused_and_stays_as_it_is(
    finished: Finished, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: Callable[[Event], Event | None]
) -> None:
    shutil.copytree(finished.home, tmp_path / "home")
    monkeypatch.setenv("VSETUNE_HOME", str(tmp_path / "home"))
    folder = tmp_path / "home" / "runs" / "tiny"
    (folder / LOG_FILE).unlink()
    log = LogWriter(folder)
    for line in lines_of(finished.home / "runs" / "tiny" / LOG_FILE):
        event = change(line.event())
        if event is not None:
            log.append(event)
    log.close()
    before = (folder / LOG_FILE).read_bytes()
    with refused("VSE-S029", study="tiny", lost=4, all=4, first="vsepp.lmh-c000-s0"):
        run(finished.file, resume=True)
    assert (folder / LOG_FILE).read_bytes() == before


def test_a_study_whose_trials_all_failed_is_recorded_as_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mlflow_here: str
) -> None:
    without_ray(monkeypatch)
    training = {"epochs": 1, "batch_size": 40, "learning_rate": 1e38}
    file = write_study(tmp_path, **ONE_TRIAL, training=training)
    outcome, _ = run(file)
    assert (dict(outcome.counts), outcome.ending) == ({"failed": 1}, "failed")
    assert Studies().status("tiny") == "failed"
    client = MlflowClient(mlflow_here)
    experiment = client.get_experiment_by_name("tiny")
    assert experiment is not None
    statuses = {each.info.run_name: each.info.status for each in client.search_runs([experiment.experiment_id])}
    assert statuses == {"tiny": "FAILED", "vsepp.lmh-c000-s0": "FAILED"}
    assert outcome.board is not None
    assert headline(outcome.board) == ["vsepp on scenes: no result, every trial failed."]
    run(file, resume=True)
    assert Studies().status("tiny") == "failed"


def test_use_of_the_machine_is_drawn_by_mlflow_and_by_no_board(finished: Finished) -> None:
    client = MlflowClient(f"sqlite:///{finished.home / 'mlflow.db'}")
    first = Studies().in_mlflow("tiny")[1][attempts()[0].attempt_id]
    drawn = {name for name in client.get_run(first).data.metrics if name.startswith("system/")}
    assert {"system/process_memory_usage_megabytes", "system/system_memory_usage_megabytes"} < drawn
    history = client.get_metric_history(first, "system/process_memory_usage_megabytes")
    recalls = client.get_metric_history(first, "m_recall")
    assert [each.step for each in history] == [each.step for each in recalls]
    assert all(each.value > 10 for each in history)
    assert "system/" not in (finished.home / PAGE).read_text(encoding="utf-8")


def test_attempts_have_the_fields_that_those_made_by_hand_may_have(finished: Finished) -> None:
    store = Studies()
    for each in store.attempts("tiny"):
        assert set(each.summary) == SUMMARY
        assert set(each.start.protocol) == PROTOCOL
        assert set(each.start.resolved) == RESOLVED
        named = {name for name in each.start.environment if not name.startswith("semantic_")}
        assert named == ENVIRONMENT
        for point in store.points(each.attempt_id):
            assert {name for name in point.metrics if not name.startswith(SYSTEM)} == POINT


def test_the_page_of_a_study_is_the_one_that_can_be_exported_later(finished: Finished, tmp_path: Path) -> None:
    export(["tiny"], html=tmp_path / "board.html")
    page = (finished.home / PAGE).read_text(encoding="utf-8")
    assert page == (tmp_path / "board.html").read_text(encoding="utf-8")
    assert 'id="runs"' in page
    export(["tiny"], html=tmp_path / "linked.html", mlflow="http://127.0.0.1:5000")
    run_id = Studies().in_mlflow("tiny")[1][attempts()[0].attempt_id]
    assert run_id in (tmp_path / "linked.html").read_text(encoding="utf-8"), "links need the ids of MLflow"


@pytest.mark.parametrize("place", ["here", pytest.param("on Ray", marks=[pytest.mark.slow, pytest.mark.timeout(1200)])])
def test_a_study_that_moved_to_another_home_goes_on_there_with_nothing_repeated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, empty_store: Path, place: str
) -> None:
    """Interrupted in its first home, where storage refuses one trial; the search of that cell is not over either."""
    if place == "here":
        without_ray(monkeypatch)
    first, second = (tmp_path / name for name in ("first", "second"))
    path = write_study(tmp_path)
    monkeypatch.setenv("VSETUNE_HOME", str(first))
    blocked = refused_trial(first)
    assert run(path)[0].ending == "interrupted"
    before = {each.start.trial: each for each in attempts()}
    assert {each.status for each in before.values() if each.start.loss == "lmh"} == {"finished"}
    assert blocked.name not in before
    export_study("tiny", tmp_path / "tiny.zip")

    second.mkdir()
    shutil.copy(empty_store, second / "mlflow.db")
    monkeypatch.delenv("MLFLOW_TRACKING_URI")
    monkeypatch.setenv("VSETUNE_HOME", str(second))
    import_study(str(tmp_path / "tiny.zip"), None)
    outcome, shown = run(path, resume=True)
    assert (dict(outcome.counts), outcome.ending) == ({"finished": 4}, "finished")
    after = {each.start.trial: each for each in attempts()}
    assert len(attempts()) == len(after) == 4
    assert len({(each.start.cell, str(each.start.configuration)) for each in after.values()}) == 4
    for trial, was in before.items():
        assert after[trial] == was
        assert not (second / "runs" / "tiny" / "trials" / trial / "progress.json").exists(), "trained again"
    assert "2 winners logged as MLflow models" in shown
    assert "tiny: goes on; 2 of 4 trials have ended" in shown
    logged = read_log(second / "runs" / "tiny")
    assert logged.problems + twice(logged) + export_problems(f"sqlite:///{second / 'mlflow.db'}", "tiny", logged) == []


def refused_trial(home: Path) -> Path:
    """A file stands where one trial wants its folder."""
    blocked = home / "runs" / "tiny" / "trials" / "vsepp.lseh-c000-s0"
    blocked.parent.mkdir(parents=True)
    blocked.write_text("in the way")
    return blocked


@pytest.mark.parametrize("lost", ["trials", "all but the log"])
def test_a_study_whose_files_are_lost_goes_on_from_its_log_and_trains_nothing_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lost: str
) -> None:
    without_ray(monkeypatch)
    monkeypatch.setenv("VSETUNE_HOME", str(tmp_path))
    path, folder = write_study(tmp_path), tmp_path / "runs" / "tiny"
    blocked = refused_trial(tmp_path)
    assert run(path)[0].ending == "interrupted"
    blocked.unlink()
    before = attempts()
    for _ in ("half finished", "finished"):
        for file in [folder / "trials"] if lost == "trials" else [*folder.iterdir()]:
            if file.is_dir():
                shutil.rmtree(file)
            elif file.name != "study.log":
                file.unlink()
        outcome, _shown = run(path, resume=True)
        assert (dict(outcome.counts), outcome.ending) == ({"finished": 4}, "finished")
        assert attempts()[: len(before)] == before
        assert [each.start.number for each in attempts()] == [1] * 4
        assert len({(each.start.cell, str(each.start.configuration)) for each in attempts()}) == 4
    logged = read_log(folder)
    assert logged.problems + twice(logged) == []
    shutil.rmtree(folder / "trials", ignore_errors=True)
    assert len(examine(Studies(), "tiny")) == 4, "the weights of four trials are gone"
