"""Points reach the store in batches, in order, once each; who reports waits only for a store that falls far behind."""

import logging
import math
import random
import resource
import threading

import pytest
from mlflow import MlflowClient
from real_servers import postgres
from short_folders import place

from chaos.processes import Processes
from chaos.servers import tracking_server
from vsetune.errors import StorageError
from vsetune.tracking import JournaledStore, ValidationPoint, backlog, delivery, open_store
from vsetune.tracking.journal import JOURNAL_FILE, Journal, Place
from vsetune.tracking.memory_store import MemoryStore
from vsetune.tracking.mlflow_searching import SearchedAttempts

__all__ = ["place"]


class Listening(MemoryStore):
    """Tells in `calls` what it heard; does not answer while `is_away`, and not before `is_free` is set."""

    def __init__(self):
        super().__init__()
        self.calls, self.is_away, self.is_free = [], False, threading.Event()
        self.is_free.set()

    def start_attempt(self, start):
        self._heard("start", start.trial)
        return super().start_attempt(start)

    def record_points(self, attempt_id, points):
        self._heard("points", attempt_id.split("/")[1], [point.step for point in points])
        super().record_points(attempt_id, points)

    def record_batch(self, points):
        self._heard("batch", len(points))
        super().record_batch(points)

    def finish_attempt(self, attempt_id, *arguments):
        self._heard("finish", attempt_id.split("/")[1])
        super().finish_attempt(attempt_id, *arguments)

    def _heard(self, *call):
        if self.is_away:
            raise StorageError("tracking store: away")
        assert self.is_free.wait(60)
        self.calls.append(call)


@pytest.fixture
def behind():
    return Listening()


@pytest.fixture
def store(behind, study, tmp_path):
    made = JournaledStore(lambda: behind, tmp_path / "study")
    made.open_study(study, resume=False)
    assert made.flush(30) == 0
    yield made
    behind.is_away = False
    behind.is_free.set()
    assert made.close(30) == 0


def spread(store, ids, points, last):
    """Points 1 to `last` of all attempts, in turn."""
    for step in range(1, last + 1):
        for attempt_id in ids:
            store.record_points(attempt_id, points(step, step))


def wait_until(claim):
    """Time is the test's limit."""
    pause = threading.Event()
    while not claim():
        pause.wait(0.01)


def test_points_of_many_attempts_that_wait_reach_the_store_in_one_batch(store, behind, start, points):
    ids = [store.start_attempt(start(trial=trial)) for trial in "abc"]
    assert store.flush(30) == 0
    behind.is_free.clear()
    spread(store, ids, points, 5)
    behind.is_free.set()
    assert store.flush(30) == 0
    assert behind.attempts("nightly") == store.attempts("nightly")
    assert sum(call[0] == "batch" for call in behind.calls) <= 2  # the first may have begun with the first point


def test_the_records_of_an_attempt_arrive_in_the_order_in_which_they_were_made(store, behind, start, points):
    draw = random.Random(5)
    left = dict.fromkeys("abcd", 6)
    ids = {}
    while left:
        trial = draw.choice(sorted(left))
        if trial not in ids:
            ids[trial] = store.start_attempt(start(trial=trial))
        elif left[trial]:
            step = 7 - left[trial]
            store.record_points(ids[trial], points(step, step))
            left[trial] -= 1
        else:
            store.finish_attempt(ids[trial], "finished", {}, [], None)
            del left[trial]
    assert store.flush(30) == 0
    for trial in "abcd":
        heard = [call for call in behind.calls if call[0] != "batch" and call[1] == trial]
        assert (heard[0][0], heard[-1][0]) == ("start", "finish")
        assert [step for call in heard[1:-1] for step in call[2]] == [10, 20, 30, 40, 50, 60]


def test_whoever_waits_for_the_end_does_not_wait_for_records_to_gather(
    behind, study, start, points, tmp_path, monkeypatch
):
    monkeypatch.setattr(delivery, "GATHER_S", 3600.0)
    store = JournaledStore(lambda: behind, tmp_path / "study")
    store.open_study(study, resume=False)
    assert store.flush(60) == 0
    spread(store, [store.start_attempt(start())], points, 3)
    assert store.close(60) == 0
    assert len(behind.attempts("nightly")[0].curve) == 3


@pytest.mark.parametrize("dies", ["before", "after"])
def test_a_batch_whose_answer_was_never_heard_is_repeated_without_doubling(
    study, start, points, tmp_path, mlflow_store, database, dies
):
    """The same holds for a process killed there: its successor repeats what is not noted as delivered."""
    write, unheard = mlflow_store.record_batch, []

    def record_batch(batch):
        if len(unheard) < 2:
            unheard.append(batch)
            if dies == "after":
                write(batch)
            raise StorageError("tracking store: connection lost")
        write(batch)

    mlflow_store.record_batch = record_batch
    store = JournaledStore(lambda: mlflow_store, tmp_path / "study")
    store.open_study(study, resume=False)
    ids = [store.start_attempt(start(trial=trial)) for trial in "ab"]
    assert store.flush(30) == 0
    spread(store, ids, points, 4)
    assert store.close(60) == 0
    assert len(unheard) == 2
    found = mlflow_store.attempts("nightly")
    assert [attempt.curve for attempt in found] == [attempt.curve for attempt in store.attempts("nightly")]
    client = MlflowClient(f"sqlite:///{database}")
    for attempt in found:
        assert [each.step for each in client.get_metric_history(attempt.attempt_id, "m_recall")] == [10, 20, 30, 40]


def test_reports_wait_for_a_store_that_falls_too_far_behind_which_is_said_once(
    store, behind, start, points, monkeypatch, caplog
):
    monkeypatch.setattr(backlog, "MOST_BEHIND", 20)
    monkeypatch.setattr(delivery, "LONGEST_WAIT_S", 60.0)
    ids = [store.start_attempt(start(trial=trial)) for trial in "ab"]
    assert store.flush(30) == 0
    behind.is_free.clear()
    reporting = threading.Thread(target=spread, args=(store, ids, points, 40))
    reporting.start()
    wait_until(lambda: store.pending() > 20)
    reporting.join(0.2)
    assert reporting.is_alive()
    assert store.pending() == 21
    behind.is_free.set()
    reporting.join(60)
    assert not reporting.is_alive()
    assert store.flush(30) == 0
    store.record_points(ids[0], points(41, 41))
    said = [line.getMessage() for line in caplog.records if line.levelno == logging.WARNING]
    assert ["records wait for the tracking store" in said[0], "keeps up again" in said[-1]] == [True, True]
    assert len(said) % 2 == 0
    assert all("\n" not in line for line in said)


def test_nobody_waits_for_a_store_that_is_away_nor_for_what_is_left_over_when_it_is_back(
    store, behind, start, points, monkeypatch, caplog
):
    monkeypatch.setattr(backlog, "MOST_BEHIND", 20)
    monkeypatch.setattr(delivery, "LONGEST_WAIT_S", 3600.0)
    ids = [store.start_attempt(start(trial=trial)) for trial in "ab"]
    assert store.flush(30) == 0
    behind.is_away = True
    store.record_points(ids[0], points(1, 1))
    wait_until(store.outage)
    spread(store, ids, points, 40)
    assert store.pending() == 80
    behind.is_away = False
    assert store.flush(60) == 0
    assert [len(attempt.curve) for attempt in behind.attempts("nightly")] == [40, 40]
    assert not any("reports now wait" in line.getMessage() for line in caplog.records)


def test_records_that_only_memory_holds_are_bounded_by_waiting(
    store, behind, start, points, tmp_path, monkeypatch, caplog
):
    monkeypatch.setattr(backlog, "MOST_BEHIND", 5)
    monkeypatch.setattr(delivery, "LONGEST_WAIT_S", 0.01)
    attempt_id = store.start_attempt(start())
    assert store.flush(30) == 0
    behind.is_away = True
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, ((tmp_path / "study" / JOURNAL_FILE).stat().st_size + 10, hard))
        spread(store, [attempt_id], points, 8)
        assert store.pending() == 8
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert sum("reports now wait" in line.getMessage() for line in caplog.records) == 1


def test_records_that_wait_in_memory_are_read_in_order_however_few_at_a_time(tmp_path):
    journal = Journal(tmp_path)
    journal.append("points", {"number": 0}, durable=True)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, ((tmp_path / JOURNAL_FILE).stat().st_size + 5, hard))
        for number in range(1, 8):
            journal.append("points", {"number": number}, durable=False)
        assert journal.unwritten == 7
        place, read = Place(), []
        while found := journal.following(place, 3):
            read += [entry.body.get("number") for entry, _ in found]
            place = found[-1][1]
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert read == [None, *range(8)]
    journal.close()


def odd(step: int) -> ValidationPoint:
    """A training that has gone wrong, and takes no time between its validations."""
    numbers = {"train_loss": math.nan, "learning_rate": math.inf, "i2t_r1": -math.inf, "device_seconds": 2.0}
    numbers["wide"] = 1e300
    noise = dict.fromkeys(("seconds", "rate"), random.Random(step).random())
    return ValidationPoint(step, step / 3, 64 * step, 50 - step / 7, 2.0, numbers | noise)


def shown(client, run_id):
    """All that MLflow shows of a run's numbers, NaN and infinities by name."""
    run = client.get_run(run_id)
    history = {
        name: sorted((each.step, each.timestamp - run.info.start_time, str(each.value)) for each in
                     client.get_metric_history(run_id, name))
        for name in run.data.metrics
    }
    tags = {key: text for key, text in run.data.tags.items() if key.startswith("vsetune.points")}
    return {name: str(value) for name, value in run.data.metrics.items()}, history, tags


def rows_and_requests_agree(uri, study, start, points):
    """Also what is read out of the tables, and by MLflow's search."""
    by_rows, by_requests = (open_store(uri, None, curve_plots=False, all_numbers=True) for _ in range(2))
    by_requests._rows, by_requests._reading = None, SearchedAttempts(by_requests._client)
    by_rows.open_study(study, resume=False)
    ids = {each: each.start_attempt(start(trial=name)) for each, name in ((by_rows, "a"), (by_requests, "b"))}
    other = by_rows.start_attempt(start(trial="c"))
    for batch in ([odd(1)], [odd(3), odd(4)], points(1, 2), [odd(2)], [odd(step) for step in range(5, 200)], [odd(4)]):
        by_rows.record_batch({ids[by_rows]: batch, other: batch[:1]})
        by_requests.record_points(ids[by_requests], batch)
    client = MlflowClient(uri)
    numbers, history, tags = shown(client, ids[by_rows])
    assert (numbers, history, tags) == shown(client, ids[by_requests])
    assert [step for step, _, _ in history["epoch"]] == list(range(1, 200))
    assert len(tags) > 1
    assert by_rows.attempts("nightly") == by_requests.attempts("nightly")


def test_rows_are_those_that_mlflow_itself_would_write(database, study, start, points):
    rows_and_requests_agree(f"sqlite:///{database}", study, start, points)


@pytest.mark.slow
def test_rows_are_those_of_mlflow_in_postgresql_too(study, start, points, place):
    with postgres(place) as made:
        rows_and_requests_agree(made("tracking"), study, start, points)


@pytest.mark.slow
def test_a_server_that_is_killed_in_the_middle_gets_every_point_once_when_it_is_back(study, start, points, place):
    server, address, _ = tracking_server(place, Processes())
    with server.running():
        store = JournaledStore(lambda: open_store(address, None, curve_plots=False), place / "study")
        store.open_study(study, resume=False)
        ids = [store.start_attempt(start(trial=trial)) for trial in "abc"]
        assert store.flush(60) == 0
        spread(store, ids, points, 3)
        with server.down():
            spread(store, ids, points, 8)
        assert store.close(120) == 0
        found = open_store(address, None).attempts("nightly")
        assert [attempt.curve for attempt in found] == [attempt.curve for attempt in store.attempts("nightly")]
        for attempt in found:
            history = MlflowClient(address).get_metric_history(attempt.attempt_id, "m_recall")
            assert [each.step for each in history] == [10 * step for step in range(1, 9)]


def test_of_a_batch_only_the_run_that_somebody_deleted_is_refused(
    study, start, points, tmp_path, mlflow_store, database
):
    recording = JournaledStore(lambda: mlflow_store, tmp_path / "other")
    recording.open_study(study, resume=False)
    ids = [recording.start_attempt(start(trial=trial)) for trial in "abc"]
    spread(recording, ids, points, 1)
    assert recording.flush(60) == 0
    MlflowClient(f"sqlite:///{database}").delete_run(mlflow_store.attempts("nightly")[1].attempt_id)
    spread(recording, ids, lambda first, last: points(first + 1, last + 1), 2)
    assert recording.close(60) == 0
    assert [len(attempt.curve) for attempt in mlflow_store.attempts("nightly")] == [3, 3]
    assert '"nightly/b/1"' in (tmp_path / "other" / delivery.ASIDE_FILE).read_text()
