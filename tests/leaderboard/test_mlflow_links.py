"""A board links into MLflow as the descriptions of runs do."""

from __future__ import annotations

from vsetune.leaderboard.building import build
from vsetune.leaderboard.shown_runs import shown_runs
from vsetune.tracking.memory_store import MemoryStore
from vsetune.records.run_descriptions import artifact_link, charts_link, run_link


class Store(MemoryStore):
    """As MLflow's, of whose runs nothing is known but where they are."""

    def experiment_of(self, study):
        return "7"

    def metric_curves(self, attempt_ids, names):
        return {}


def test_links_are_those_of_the_descriptions_of_runs(attempt):
    attempts = [attempt("lmh"), attempt("lseh")]
    board = build(attempts, baseline="lmh")
    runs = shown_runs(Store(), [board], attempts, mlflow_url="http://ui")
    (links,) = runs.to_plain([board])["links"]
    run = attempts[0].attempt_id
    assert links["charts"] == f"http://ui/{charts_link('7')}"
    assert links["run"].replace("{run}", run) == f"http://ui/{run_link('7', run)}"
    file = links["file"].replace("{run}", run).replace("{file}", "gallery/page.html")
    assert file == f"http://ui/{artifact_link('7', run, 'gallery/page.html')}"


def test_without_an_address_of_mlflow_there_are_none(attempt):
    attempts = [attempt("lmh")]
    board = build(attempts, baseline="lmh")
    assert shown_runs(Store(), [board], attempts, mlflow_url=None).to_plain([board])["links"] == [None]
