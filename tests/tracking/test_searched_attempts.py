"""What is read through MLflow's search is read again only where it may have changed, and is what all of it would be."""

from __future__ import annotations

import json
import shutil
import urllib.request
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler

import pytest
from local_http import answering
from mlflow import MlflowClient
from short_folders import place

from chaos.processes import Processes
from chaos.servers import tracking_server
from vsetune.tracking import open_store
from vsetune.tracking.mlflow_searching import SearchedAttempts

__all__ = ["place"]


class Clock:
    """seconds: set by the test."""

    seconds = 0.0

    def __call__(self) -> float:
        return self.seconds


class Searches:
    """MLflow's client, which counts. runs: that its searches have given so far."""

    def __init__(self, client: MlflowClient) -> None:
        self._client, self.count, self.runs = client, 0, 0

    def search_runs(self, *args: object, **named: object) -> object:
        page = self._client.search_runs(*args, **named)
        self.count, self.runs = self.count + 1, self.runs + len(page)
        return page


@pytest.fixture
def client(database) -> MlflowClient:
    return MlflowClient(f"sqlite:///{database}")


@pytest.fixture
def read(mlflow_store, study, client) -> Callable[[SearchedAttempts], list]:
    """Reads, and compares with what a reader gives that has read nothing before."""
    mlflow_store.open_study(study, resume=False)
    experiment = client.get_experiment_by_name("nightly").experiment_id

    def reading(attempts: SearchedAttempts) -> list:
        found = attempts.of(experiment)
        assert found == SearchedAttempts(client).of(experiment)
        return found

    return reading


def end_long_ago(client: MlflowClient, run_id: str, minutes: int) -> None:
    """An end before the time for which ends are asked for again."""
    run = client.get_run(run_id)
    client.set_terminated(run_id, run.info.status, end_time=run.info.end_time - 60_000 * minutes)


def test_attempts_that_were_over_long_ago_are_not_read_again(mlflow_store, client, read, start, points):
    ids = [mlflow_store.start_attempt(start(trial=f"t{number}")) for number in range(8)]
    for number, run_id in enumerate(ids[:6]):
        mlflow_store.record_points(run_id, points(1, 3))
        mlflow_store.finish_attempt(run_id, "finished", {"epochs": 1.0}, [], None)
        end_long_ago(client, run_id, minutes=20 - 2 * number)
    searches = Searches(client)
    attempts = SearchedAttempts(searches)
    before = read(attempts)
    assert (searches.count, searches.runs) == (3, 1 + 8)
    after = read(attempts)
    assert (searches.count, searches.runs) == (3 + 3, 9 + 3), "two run, and one is the newest that ended"
    assert all(one is other for one, other in zip(before, after, strict=True))


def test_whatever_happens_to_an_attempt_is_seen(mlflow_store, client, read, start, points):
    ids = {name: mlflow_store.start_attempt(start(trial=name)) for name in ("ends", "shows", "late", "fails", "back")}
    for name in ("late", "back"):
        mlflow_store.finish_attempt(ids[name], "killed", {}, [], None)
        end_long_ago(client, ids[name], minutes=90)
    attempts = SearchedAttempts(client)
    assert {each.start.trial: each.status for each in read(attempts)} == {
        "ends": "running", "shows": "running", "late": "killed", "fails": "running", "back": "killed",
    }
    mlflow_store.finish_attempt(ids["ends"], "finished", {"epochs": 2.0}, [], None)
    mlflow_store.record_points(ids["shows"], points(1, 2))
    mlflow_store.record_points(ids["late"], points(1, 4))
    mlflow_store.finish_attempt(ids["fails"], "failed", {}, [], "loss is nan")
    end_long_ago(client, ids["fails"], minutes=200)  # by a clock that is wrong
    mlflow_store.start_attempt(start(trial="back"))
    new = mlflow_store.start_attempt(start(trial="new"))
    mlflow_store.finish_attempt(new, "pruned", {}, [], None)
    found = {each.start.trial: each for each in read(attempts)}
    assert {name: each.status for name, each in found.items()} == {
        "ends": "finished", "shows": "running", "late": "killed", "fails": "failed", "back": "running", "new": "pruned",
    }
    assert [len(found[name].curve) for name in ("shows", "late")] == [2, 4]
    mlflow_store.finish_attempt(ids["fails"], "failed", {}, [], "loss is infinite")
    assert {each.error for each in read(attempts)} == {None, "loss is infinite"}


def test_a_late_point_leaves_an_attempt_over_and_one_begun_again_running(mlflow_store, client, study, start, points):
    mlflow_store.open_study(study, resume=False)
    run_id = mlflow_store.start_attempt(start())
    mlflow_store.finish_attempt(run_id, "killed", {}, [], None)
    mlflow_store.record_points(run_id, points(1, 1))
    assert client.get_run(run_id).info.status == "KILLED"
    assert mlflow_store.start_attempt(start()) == run_id
    mlflow_store.record_points(run_id, points(2, 2))
    assert client.get_run(run_id).info.status == "RUNNING"


def test_runs_that_are_deleted_or_brought_back_are_seen(mlflow_store, client, read, start):
    ids = [mlflow_store.start_attempt(start(trial=f"t{number}")) for number in range(3)]
    for run_id in ids:
        mlflow_store.finish_attempt(run_id, "finished", {}, [], None)
        end_long_ago(client, run_id, minutes=10)
    attempts = SearchedAttempts(client)
    assert len(read(attempts)) == 3
    client.delete_run(ids[1])
    assert [each.attempt_id for each in read(attempts)] == [ids[0], ids[2]]
    client.restore_run(ids[1])
    assert len(read(attempts)) == 3


def test_what_was_changed_by_hand_is_seen_within_an_hour(mlflow_store, client, study, start):
    mlflow_store.open_study(study, resume=False)
    experiment = client.get_experiment_by_name("nightly").experiment_id
    ids = [mlflow_store.start_attempt(start(trial=f"t{number}")) for number in range(2)]
    for run_id in ids:
        mlflow_store.finish_attempt(run_id, "finished", {}, [], None)
    end_long_ago(client, ids[0], minutes=10)
    clock = Clock()
    attempts = SearchedAttempts(client, clock=clock)
    attempts.of(experiment)
    client.set_tag(ids[0], "status", "failed")
    assert [each.status for each in attempts.of(experiment)] == ["finished", "finished"]
    clock.seconds = 3600.0
    assert [each.status for each in attempts.of(experiment)] == ["failed", "finished"]


def counting(behind: str, asked: list[tuple[str, int]]) -> type[BaseHTTPRequestHandler]:
    """Passes requests on. asked: path of each, and how many runs were in the answer."""

    class Counting(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            headers = {"Content-Type": self.headers.get("Content-Type") or "application/json"}
            request = urllib.request.Request(behind + self.path, body or None, headers, method=self.command)
            with urllib.request.urlopen(request, timeout=60) as reply:
                answer, kind = reply.read(), reply.headers.get("Content-Type", "")
            told = json.loads(answer) if "json" in kind else {}
            asked.append((self.path.partition("?")[0].partition("/mlflow/")[2], len(told.get("runs", []))))
            self.send_response(200)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def do_POST(self) -> None:
            self.do_GET()

        def log_message(self, *args: object) -> None:
            """Says nothing."""

    return Counting


@pytest.mark.slow
def test_a_server_is_asked_three_questions_and_gives_what_may_have_changed(database, study, start, points, place):
    server, behind, served = tracking_server(place, Processes())
    shutil.copy(database, served)
    asked: list[tuple[str, int]] = []
    with server.running(), answering(counting(behind, asked)) as address:
        driver = open_store(f"sqlite:///{served}", None, curve_plots=False)
        driver.open_study(study, resume=False)
        ids = [driver.start_attempt(start(trial=f"t{number}")) for number in range(30)]
        client = MlflowClient(f"sqlite:///{served}")
        for number, run_id in enumerate(ids[:28]):
            driver.record_points(run_id, points(1, 5))
            driver.finish_attempt(run_id, "finished", {"epochs": 1.0}, [], None)
            end_long_ago(client, run_id, minutes=80 - 2 * number)
        reading = open_store(address, None)
        assert reading.attempts("nightly") == driver.attempts("nightly")
        asked.clear()
        assert len(reading.attempts("nightly")) == 30
        assert asked == [("runs/search", 0), ("runs/search", 2), ("runs/search", 1)], "deleted, running, ended"
        driver.finish_attempt(ids[28], "failed", {}, [], "loss is nan")
        driver.record_points(ids[3], points(6, 6))
        asked.clear()
        assert reading.attempts("nightly") == driver.attempts("nightly")
        assert asked == [("runs/search", 0), ("runs/search", 1), ("runs/search", 3)]
