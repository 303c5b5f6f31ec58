"""What MLflow's own columns, descriptions and charts tell of a study; nothing is left where somebody stands."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from mlflow import MlflowClient

from vsetune.tracking import opening
from vsetune.records.mlflow_views import VIEW_TAG
from vsetune.records.attempts import StudyRecord
from vsetune.records.run_descriptions import charts_link, source_tags


@pytest.fixture
def client(database, mlflow_store, study) -> MlflowClient:
    mlflow_store.open_study(study, resume=False)
    return MlflowClient(f"sqlite:///{database}")


def test_source_revision_and_data_set_stand_in_mlflows_columns(client, mlflow_store, start):
    revision = "0123456789abcdef0123456789abcdef01234567"
    run_id = mlflow_store.start_attempt(start(
        environment={"git_revision": f"{revision}+changes"}, protocol={"data_fingerprint": "d" * 64, "images": 400},
    ))
    run = client.get_run(run_id)
    told = {
        "mlflow.source.name": "vsetune study run nightly", "mlflow.source.git.commit": revision,
        "mlflow.source.git.dirty": "true", "mlflow.source.type": "LOCAL",
    }
    assert told.items() <= run.data.tags.items()
    (given,) = run.inputs.dataset_inputs
    assert (given.dataset.name, given.dataset.digest) == ("scenes", "d" * 36)
    assert json.loads(given.dataset.source) == {"uri": "data/scenes"}
    assert [(tag.key, tag.value) for tag in given.tags] == [("mlflow.data.context", "train")]
    assert json.loads(given.dataset.profile) == {"images": 400}


@pytest.mark.parametrize(("revision", "commit"), [("", None), ("unknown", None), ("abcdef0", "abcdef0")])
def test_a_revision_that_is_no_commit_is_not_shown_as_one(start, revision, commit):
    assert source_tags(start(environment={"git_revision": revision})).get("mlflow.source.git.commit") == commit


def test_descriptions_tell_how_runs_ended_and_link_to_their_pages(client, mlflow_store, start, tmp_path):
    run_id = mlflow_store.start_attempt(start())
    mlflow_store.finish_attempt(run_id, "failed", {"best_m_recall": 61.5, "epochs_to_best": 2.25}, [], "loss is nan")
    page = tmp_path / "page.html"
    page.write_text("<p>")
    for _ in range(2):
        mlflow_store.keep_artifacts(run_id, [page], folder="gallery")
    mlflow_store.finish_study("nightly", "finished", [page])
    run = client.get_run(run_id)
    note, experiment = run.data.tags["mlflow.note.content"], run.info.experiment_id
    link = f"#/experiments/{experiment}/runs/{run_id}/artifacts/gallery/page.html?workflowType=machine_learning"
    assert note.startswith("**vsepp.lmh-c00-s0**: vsepp with lmh, seed 0, failed.\n- best M-Recall 61.50 % after 2.25")
    assert note.count(link) == 1
    assert "loss is nan" in note
    parent = client.get_run(run.data.tags["mlflow.parentRunId"])
    assert f"{parent.info.run_id}/artifacts/page.html" in parent.data.tags["mlflow.note.content"]
    assert charts_link(experiment) in parent.data.tags["mlflow.note.content"]


def test_charts_are_set_up_with_every_chart_in_a_group_that_folds(client, mlflow_store):
    experiment = client.get_experiment_by_name("nightly")
    view = json.loads(experiment.tags[VIEW_TAG])
    groups = {each["uuid"] for each in view["compareRunSections"]}
    assert {each["metricSectionId"] for each in view["compareRunCharts"]} < groups
    generated = [each["metricKey"] for each in view["compareRunCharts"] if each["isGenerated"]]
    assert len(set(generated)) == len(generated)
    assert {each["metricKey"] for each in view["compareRunCharts"]} == set(generated)
    assert charts_link(experiment.experiment_id) in experiment.tags["mlflow.note.content"].split("\n\n")[1]
    assert len({each["uuid"] for each in view["compareRunCharts"]}) == len(view["compareRunCharts"])


@pytest.mark.parametrize(("told", "first"), [
    ({"description": "Scenes, drawn"}, "Scenes, drawn"), ({}, "vsepp, scan with lmh, lseh"),
    ({"description": "# Long\n\nof many paragraphs"}, "Long"), ({"description": " "}, "vsepp, scan with lmh, lseh"),
    ({"losses": [{"name": None, "loss": [{"name": "lmh"}, {"name": "lseh", "label": "semantic"}]}]},
     "vsepp, scan with lmh_semantic"),
])
def test_the_list_of_experiments_tells_studies_apart_in_words_before_any_link(client, mlflow_store, told, first):
    config = {"networks": [{"name": "vsepp"}, {"name": "scan"}], "losses": [{"name": "lmh"}, {"name": "lseh"}]}
    mlflow_store.open_study(StudyRecord("told", "f00d", config | told), resume=False)
    note = client.get_experiment_by_name("told").tags["mlflow.note.content"]
    assert note.split("\n\n")[0] == first
    assert note.split("\n\n")[1].startswith("[Runs of this study](")
    assert told.get("description", "").split("\n\n")[-1].strip() in note


def test_a_study_leaves_nothing_in_the_folder_where_somebody_stands(empty_database, tmp_path):
    (tmp_path / "stands").mkdir()
    script = (
        "import sys; sys.path.insert(0, sys.argv[2])\n"
        "from vsetune.tracking import *\n"
        "store = open_store(sys.argv[1], None)\n"
        "store.open_study(StudyRecord('nightly', 'f00d', {}), resume=False)\n"
        "start = AttemptStart('nightly', 't', 'vsepp.lmh', 'vsepp', 'lmh', 1, 0, 'search', {}, {})\n"
        "store.finish_attempt(store.start_attempt(start), 'finished', {}, [], None)\n"
    )
    root = str(Path(__file__).parents[2] / "platform")
    subprocess.run(
        [sys.executable, "-c", script, f"sqlite:///{tmp_path / 'db' / 'mlflow.db'}", root], check=True,
        cwd=tmp_path / "stands",
    )
    assert list((tmp_path / "stands").iterdir()) == []


def test_a_database_that_has_no_place_for_artifacts_has_them_under_the_home_not_in_mlruns(monkeypatch, tmp_path):
    monkeypatch.setenv("VSETUNE_HOME", str(tmp_path))
    monkeypatch.setattr(opening, "_probe", lambda uri: None)
    assert opening.made_ready("postgresql+psycopg2://me@host/db", None) == (tmp_path / "artifacts").as_uri()
    assert opening.made_ready("postgresql://me@host/db", "s3://bucket/artifacts") == "s3://bucket/artifacts"
    assert opening.made_ready("http://127.0.0.1:5000", None) is None
