"""A board links into MLflow as the descriptions of runs do."""

from __future__ import annotations

from vsetune.board.building import build
from vsetune.board.shown_runs import shown_runs
from vsetune.records.mlflow_descriptions import charts_link, run_link
from vsetune.records.studies import Studies


class Exported(Studies):
    """Of whose attempts nothing is known but where they are in MLflow."""

    def in_mlflow(self, study):
        return "7", {"demo/first/1": "abc"}

    def metric_curves(self, names, metrics):
        return {}

    def artifact_names(self, name, folder):
        return []


def test_links_are_those_of_the_descriptions_of_runs_and_need_an_address(attempt):
    attempts = [attempt("lmh"), attempt("lseh")]
    board = build(attempts, baseline="lmh")
    runs = shown_runs(Exported(), [board], attempts, mlflow_url="http://ui")
    (links,) = runs.to_plain([board])["links"]
    assert links["charts"] == f"http://ui/{charts_link('7')}"
    assert links["run"].replace("{run}", "abc") == f"http://ui/{run_link('7', 'abc')}"
    assert links["means"] == {}
    assert runs.runs == {"demo/first/1": "abc"}
    assert shown_runs(Exported(), [board], attempts, mlflow_url=None).to_plain([board])["links"] == [None]


def test_a_network_with_several_seeds_has_a_link_to_its_mean_curves(attempt):
    attempts = [attempt("lmh", seed=seed) for seed in (0, 1)]
    board = build(attempts, baseline="lmh")
    (links,) = shown_runs(Exported(), [board], attempts, mlflow_url="http://ui").to_plain([board])["links"]
    assert links["means"] == {"vsepp": f"http://ui/{charts_link('7', 'vsepp')}"}
