"""Of a configuration that several seeds have finished, MLflow has the mean curve as a run above those of its seeds."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from mlflow import MlflowClient
from mlflow.entities import Run
from studied import OPENED, point, start

from vsetune.records.events import AttemptStart, AttemptStatus, Begun, Closed, Ended, Event, Validated, attempt_id
from vsetune.records.log import LogWriter
from vsetune.records.mlflow_client import KIND, PARENT
from vsetune.records.mlflow_descriptions import MEAN, view_key
from vsetune.records.mlflow_export import MlflowExport

pytestmark = pytest.mark.filterwarnings("default")  # MLflow's dependencies warn about themselves


@pytest.fixture
def uri(empty_store: Path, tmp_path: Path) -> str:
    shutil.copy(empty_store, tmp_path / "mlflow.db")
    return f"sqlite:///{tmp_path / 'mlflow.db'}"


@pytest.fixture
def exported(uri: str, tmp_path: Path) -> Callable[..., dict[str, Run]]:
    """Add events to the log, export it, and return all active runs by name."""
    folder = tmp_path / "tiny"
    folder.mkdir()

    def export(*events: Event) -> dict[str, Run]:
        writer = LogWriter(folder)
        for event in events:
            writer.append(event)
        writer.close()
        made = MlflowExport(uri, folder, series="all", file=lambda name: folder / name)
        while made.advance():
            pass
        client = MlflowClient(uri)
        experiment = client.get_experiment_by_name("tiny")
        assert experiment is not None
        return {str(run.info.run_name): run for run in client.search_runs([experiment.experiment_id])}

    return export


def seed_of(seed: int, margin: float = 0.2) -> AttemptStart:
    made = start(f"vsepp.lmh-m{margin:g}-s{seed}")
    return replace(made, seed=seed, configuration={"loss.margin": margin})


def trained(
    start: AttemptStart, m_recalls: dict[int, float], *, status: AttemptStatus = "finished", at: float = 5.0
) -> list[Event]:
    """A training with these M-Recalls by step."""
    name = attempt_id(start)
    points = tuple(point(step, m_recall=value) for step, value in m_recalls.items())
    totals = {"best_m_recall": max(m_recalls.values()), "epochs_to_best": 1.0}
    return [Begun(start, at), Validated(name, points, at + 1), Ended(name, status, totals, (), None, at + 2)]


def series(uri: str, run: Run, name: str) -> dict[int, list[float]]:
    found: dict[int, list[float]] = {}
    for each in MlflowClient(uri).get_metric_history(run.info.run_id, name):
        found.setdefault(each.step, []).append(each.value)
    return found


FIRST, SECOND, THIRD = seed_of(0), seed_of(1), seed_of(2)
TWO = (OPENED, *trained(FIRST, {10: 30.0, 20: 40.0}), *trained(SECOND, {10: 34.0, 20: 50.0, 30: 1.0}, at=9.0))


def test_the_mean_over_seeds_is_a_run_above_them(uri: str, exported: Callable[..., dict[str, Run]]) -> None:
    runs = exported(*TWO, *trained(seed_of(0, margin=0.3), {10: 3.0}), Closed("finished", (), 12.0))
    mean = runs["lmh, mean of 2 seeds of vsepp.lmh"]
    assert series(uri, mean, "m_recall") == {10: [32.0], 20: [45.0]}  # step 30 has one seed alone
    assert series(uri, mean, "epoch") == {10: [1.0], 20: [2.0]}
    assert series(uri, mean, "i2t_r1") == {10: [10.5], 20: [10.5]}
    assert mean.data.metrics["best_m_recall"] == 45.0
    assert mean.data.params["loss.margin"] == "0.2"
    assert {key: mean.data.tags[key] for key in (KIND, "loss", "seeds", "configuration")} == {
        KIND: MEAN, "loss": "lmh", "seeds": "0, 1", "configuration": "loss.margin = 0.2",
    }
    assert mean.data.tags[PARENT] == runs["tiny"].info.run_id
    assert [runs[each.trial].data.tags[PARENT] for each in (FIRST, SECOND)] == [mean.info.run_id] * 2
    assert runs["vsepp.lmh-m0.3-s0"].data.tags[PARENT] == runs["tiny"].info.run_id  # one seed has no mean


def test_a_resumed_study_adds_nothing_to_a_mean_and_a_further_seed_replaces_it(
    uri: str, exported: Callable[..., dict[str, Run]]
) -> None:
    before = exported(*TWO, Closed("killed", (), 12.0))["lmh, mean of 2 seeds of vsepp.lmh"]
    again = exported(replace(OPENED, at=13.0), Closed("finished", (), 14.0))
    assert again["lmh, mean of 2 seeds of vsepp.lmh"].info.run_id == before.info.run_id
    assert series(uri, before, "m_recall") == {10: [32.0], 20: [45.0]}
    more = exported(
        replace(OPENED, at=15.0), *trained(THIRD, {10: 35.0, 20: 60.0}, at=16.0), Closed("finished", (), 20.0)
    )
    assert "lmh, mean of 2 seeds of vsepp.lmh" not in more
    mean = more["lmh, mean of 3 seeds of vsepp.lmh"]
    assert series(uri, mean, "m_recall") == {10: [33.0], 20: [50.0]}
    assert {more[each.trial].data.tags[PARENT] for each in (FIRST, SECOND, THIRD)} == {mean.info.run_id}


@pytest.mark.parametrize("status", ["pruned", "failed", "killed"])
def test_a_seed_that_has_not_finished_is_in_no_mean(
    status: AttemptStatus, exported: Callable[..., dict[str, Run]]
) -> None:
    runs = exported(
        OPENED, *trained(FIRST, {10: 30.0}), *trained(SECOND, {10: 1.0}, status=status), Closed("finished", (), 12.0)
    )
    assert [run for run in runs.values() if run.data.tags[KIND] == MEAN] == []


def test_the_charts_of_a_network_show_its_means_over_epochs(uri: str, exported: Callable[..., dict[str, Run]]) -> None:
    exported(*TWO, Closed("finished", (), 12.0))
    client = MlflowClient(uri)
    experiment = client.get_experiment_by_name("tiny")
    assert experiment is not None
    view = json.loads(experiment.tags[f"mlflow.sharedViewState.{view_key('vsepp')}"])
    found = client.search_runs([experiment.experiment_id], view["searchFilter"])
    assert [run.info.run_name for run in found] == ["lmh, mean of 2 seeds of vsepp.lmh"]
    assert view["globalLineChartConfig"]["selectedXAxisMetricKey"] == "epoch"
