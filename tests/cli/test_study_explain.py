"""`vsetune study explain` from a database: the page is written and kept, mistakes are one line."""

from __future__ import annotations

from pathlib import Path

import pytest
from mlflow import MlflowClient

from vsetune.config.study.study_spec import StudySpec, TrackingSpec
from vsetune.jobs.preparation import tracking_store, tracking_uri
from vsetune.records.attempts import AttemptStart, StudyRecord, ValidationPoint

pytestmark = pytest.mark.filterwarnings("default")  # MLflow warns about itself


def test_the_page_of_a_study_is_written_and_kept_with_its_run(vsetune, home, tmp_path) -> None:
    config = {"study": "tiny", "data": {"path": "data"}, "networks": [{"name": "vsepp"}], "losses": [{"name": "lmh"}]}
    store = tracking_store(TrackingSpec())
    store.open_study(StudyRecord("tiny", "beef", StudySpec.model_validate(config).to_plain()), resume=False)

    said = vsetune("study", "explain", "tiny")
    assert (said.code, len(said.lines)) == (2, 1)
    assert "study tiny: has no trials yet" in said.lines[0]
    said = vsetune("study", "explain", "tinny")
    assert (said.code, len(said.lines)) == (2, 1)
    assert "study tinny: not in this store, which has: tiny" in said.lines[0]

    run = store.start_attempt(AttemptStart(
        "tiny", "vsepp.lmh-c000-s0", "vsepp.lmh", "vsepp", "lmh", 1, 0, "search", {"loss.margin": 0.2}, {},
    ))
    store.record_points(run, [ValidationPoint(10, 1.0, 100, 41.5, 1.0)])
    said = vsetune("study", "explain", "tiny")
    assert said.code == 0, said.err
    page = home / "searches" / "tiny.html"
    assert said.out.strip() == str(page)
    assert "41.5" in page.read_text()
    assert "kept with the run of study tiny as search.html" in said.err

    client = MlflowClient(tracking_uri(TrackingSpec()))
    experiment = client.get_experiment_by_name("tiny")
    (parent,) = client.search_runs([experiment.experiment_id], "tags.`vsetune.kind` = 'study'")
    kept = client.download_artifacts(parent.info.run_id, "search.html", str(tmp_path))
    assert Path(kept).read_text() == page.read_text()
