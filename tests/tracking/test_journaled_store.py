"""A study goes on while its store is away, and the store hears of everything once it is back."""

import logging
import random
import resource
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from mlflow import MlflowClient

from vsetune.errors import StorageError, StudyConflict, UnusableStore, UsageError
from vsetune.tracking import JournaledStore, StudyRecord, open_store
from vsetune.tracking.delivery import ASIDE_FILE
from vsetune.tracking.journal import CURSOR_FILE, JOURNAL_FILE, Journal
from vsetune.tracking.memory_store import MemoryStore


class Away(MemoryStore):
    """A store that answers only while `is_away` is false, and counts the points it was given."""

    def __init__(self, *, is_away: bool = False) -> None:
        super().__init__()
        self.is_away = is_away
        self.points_taken = 0

    def __getattribute__(self, name):
        if name in _CALLS and self.is_away:
            raise StorageError("tracking store: away")
        return super().__getattribute__(name)

    def record_points(self, attempt_id, points):
        super().record_points(attempt_id, points)
        self.points_taken += len(points)

    def open(self):
        if self.is_away:
            raise StorageError("tracking store: away")
        return self


_CALLS = {"open_study", "start_attempt", "record_points", "finish_attempt", "finish_study", "studies", "close_stale"}


@pytest.fixture
def behind():
    return Away()


@pytest.fixture
def journaled(behind, tmp_path):
    """Opens the study's store anew, as another process would; the earlier one is gone without a word."""
    opened = []

    def make(folder=None, opening=None):
        while opened:
            opened.pop()._delivery.stop(10)
        opened.append(JournaledStore(opening or behind.open, folder or tmp_path / "study", answer_within_s=5))
        return opened[-1]

    yield make
    for store in opened:
        store._delivery.stop(10)


def told(store, study="nightly"):
    return [(a.start, a.status, a.curve, dict(a.summary), a.error) for a in store.attempts(study)]


def train(store, start, points, trial="a"):
    attempt_id = store.start_attempt(start(trial=trial))
    store.record_points(attempt_id, points(1, 2))
    store.record_points(attempt_id, points(3, 3))
    store.finish_attempt(attempt_id, "finished", {"best_m_recall": 61.25}, [], None)


def test_a_new_study_runs_to_its_end_while_the_store_is_away_and_is_delivered_later(
    journaled, behind, study, start, points
):
    behind.is_away = True
    store = journaled()
    store.open_study(study, resume=False)
    train(store, start, points)
    store.finish_study("nightly", "finished", [])
    assert "away" in store.outage()
    assert store.close(0.0) == store.pending() == 6
    behind.is_away = False
    later = journaled()
    assert later.flush(30) == 0
    assert later.outage() is None
    assert told(behind) == told(store)
    assert behind.points_taken == 3


def test_an_outage_in_the_middle_delays_and_loses_nothing(journaled, behind, study, start, points):
    store = journaled()
    store.open_study(study, resume=False)
    train(store, start, points, "a")
    assert store.flush(30) == 0
    behind.is_away = True
    train(store, start, points, "b")
    assert len(behind._attempts) == 1
    behind.is_away = False
    assert store.flush(30) == 0
    assert told(behind) == told(store)
    assert len(store.attempts("nightly")) == 2


def test_a_study_that_was_killed_resumes_from_its_journal_while_the_store_is_away(
    journaled, behind, study, start, points
):
    store = journaled()
    store.open_study(study, resume=False)
    attempt_id = store.start_attempt(start())
    store.record_points(attempt_id, points(1, 2))
    behind.is_away = True
    later = journaled()
    later.open_study(study, resume=True)
    (attempt,) = later.attempts("nightly")
    assert (attempt.status, len(attempt.curve)) == ("killed", 2)
    later.record_points(later.start_attempt(start(number=2)), points(1, 3))
    behind.is_away = False
    assert later.flush(30) == 0
    assert [(a.status, len(a.curve)) for a in behind.attempts("nightly")] == [("killed", 2), ("running", 3)]


def test_conflicts_are_found_without_the_store(journaled, behind, study):
    journaled().open_study(study, resume=False)
    behind.is_away = True
    with pytest.raises(StudyConflict, match="another configuration"):
        journaled().open_study(StudyRecord("nightly", "beef", {}), resume=True)
    with pytest.raises(StudyConflict, match="--resume"):
        journaled().open_study(study, resume=False)


def test_a_study_recorded_without_a_journal_resumes_from_the_store_and_has_one_from_then_on(
    journaled, behind, study, start, points
):
    behind.open_study(study, resume=False)
    train(behind, start, points)
    behind.record_points(behind.start_attempt(start(trial="b")), points(1, 2))
    store = journaled()
    store.open_study(study, resume=True)
    assert told(store) == told(behind)
    behind.is_away = True
    again = journaled()
    again.open_study(study, resume=True)
    assert told(again) == told(store)


def test_without_store_and_journal_nothing_can_be_resumed(journaled, behind, study, tmp_path):
    behind.is_away = True
    store = journaled()
    store._open_from_store = lambda *_, **__: False  # else it would wait a minute
    with pytest.raises(StorageError, match=r"journal\.log does not tell .* bring the store back") as caught:
        store.open_study(study, resume=True)
    assert "\n" not in str(caught.value)
    (tmp_path / "study" / "trials").mkdir()
    with pytest.raises(StorageError, match="does not tell"):
        store.open_study(study, resume=False)


def test_a_lost_note_of_what_was_delivered_repeats_without_doubling(
    journaled, mlflow_store, database, study, start, points, tmp_path
):
    store = journaled(opening=lambda: mlflow_store)
    store.open_study(study, resume=False)
    train(store, start, points)
    assert store.flush(60) == 0
    before = [(a.attempt_id, *told(mlflow_store)[0][1:]) for a in mlflow_store.attempts("nightly")]
    store._delivery.stop(10)
    (tmp_path / "study" / CURSOR_FILE).unlink()
    is_counted = threading.Event()
    again = journaled(opening=lambda: mlflow_store if is_counted.wait(30) else None)
    assert again.pending() == 4
    is_counted.set()
    assert again.flush(60) == 0
    assert [(a.attempt_id, *told(mlflow_store)[0][1:]) for a in mlflow_store.attempts("nightly")] == before
    history = MlflowClient(f"sqlite:///{database}").get_metric_history(before[0][0], "m_recall")
    assert [metric.step for metric in history] == [10, 20, 30]


def test_a_study_that_the_store_made_without_our_hearing_of_it_is_our_own(journaled, behind, study, start, points):
    behind.is_away = True
    store = journaled()
    store.open_study(study, resume=False)
    behind.is_away = False
    heard = behind.open_study

    def unheard(*args, **keys):
        heard(*args, **keys)
        behind.open_study = heard
        raise StorageError("tracking store: connection lost")

    behind.open_study = unheard
    train(store, start, points)
    assert store.flush(30) == 0
    assert told(behind) == told(store)


@pytest.mark.parametrize("lost", [1, 2, 10, 100])
def test_a_torn_last_record_is_cut_off_and_the_journal_goes_on(tmp_path, lost):
    journal = Journal(tmp_path)
    for number in range(3):
        journal.append("points", {"text": "x" * 200, "number": number}, durable=False)
    journal.close()
    whole = (tmp_path / JOURNAL_FILE).read_bytes()
    (tmp_path / JOURNAL_FILE).write_bytes(whole[:-lost])
    journal = Journal(tmp_path)
    journal.append("points", {"number": 9}, durable=False)
    assert [entry.body["number"] for entry in journal.entries() if entry.kind == "points"] == [0, 1, 9]
    assert journal.is_complete
    journal.close()


def test_a_journal_with_a_damaged_record_in_the_middle_knows_that_it_is_not_complete(tmp_path):
    journal = Journal(tmp_path)
    for number in range(3):
        journal.append("points", {"number": number}, durable=True)
    journal.close()
    lines = (tmp_path / JOURNAL_FILE).read_bytes().splitlines(keepends=True)
    lines[2] = lines[2].replace(b"number", b"nunber")
    (tmp_path / JOURNAL_FILE).write_bytes(b"".join(lines))
    journal = Journal(tmp_path)
    assert not journal.is_complete
    assert [entry.body["number"] for entry in journal.entries() if entry.kind == "points"] == [0, 2]
    journal.close()


def test_a_name_that_is_taken_is_found_when_the_store_is_back_and_the_records_wait(
    journaled, behind, study, start, points, caplog
):
    behind.open_study(StudyRecord("nightly", "theirs", {}), resume=False)
    behind.is_away = True
    store = journaled()
    store.open_study(study, resume=False)
    train(store, start, points)
    behind.is_away = False
    assert store.flush(1.0) == 5
    assert "exists with another configuration" in store.outage()
    assert behind.attempts("nightly") == []
    with pytest.raises(StudyConflict, match="another name"):
        journaled().open_study(study, resume=True)


def test_a_record_that_the_store_refuses_is_said_once_and_holds_up_nothing(
    journaled, behind, study, start, points, tmp_path, caplog
):
    def refuse(attempt_id, points):
        raise UsageError(f"attempt {attempt_id}: a value that the store does not take")

    store = journaled()
    store.open_study(study, resume=False)
    assert store.flush(30) == 0
    behind.record_points = refuse
    caplog.set_level(logging.ERROR)
    attempt_id = store.start_attempt(start())
    store.record_points(attempt_id, points(1, 1))
    store.finish_attempt(attempt_id, "finished", {}, [], None)
    assert store.flush(30) == 0
    assert [line.getMessage().count("does not take") for line in caplog.records] == [1]
    assert '"m_recall"' in (tmp_path / "study" / ASIDE_FILE).read_text()
    assert behind.attempts("nightly")[0].status == "finished"


def test_of_many_points_that_wait_only_those_that_the_store_refuses_are_put_aside(
    journaled, behind, study, start, points, tmp_path
):
    def refuse_step_20(attempt_id, points):
        if any(point.step == 20 for point in points):
            raise UsageError("a value that the store does not take")
        taken(attempt_id, points)

    behind.is_away = True
    store = journaled()
    store.open_study(study, resume=False)
    ids = [store.start_attempt(start(trial=trial)) for trial in "ab"]
    for step in range(1, 6):
        for attempt_id in ids:
            store.record_points(attempt_id, points(step, step))
    behind.is_away = False
    taken, behind.record_points = behind.record_points, refuse_step_20
    assert store.flush(30) == 0
    assert [len(attempt.curve) for attempt in behind.attempts("nightly")] == [4, 4]
    assert len((tmp_path / "study" / ASIDE_FILE).read_text().splitlines()) == 2


def test_a_file_that_is_gone_when_it_would_be_delivered_does_not_hold_up_the_end_of_its_attempt(
    journaled, behind, study, start, tmp_path, caplog
):
    best = tmp_path / "best.safetensors"
    best.write_bytes(b"weights")
    behind.is_away = True
    store = journaled()
    store.open_study(study, resume=False)
    store.finish_attempt(store.start_attempt(start()), "finished", {}, [best], None)
    for kept in (tmp_path / "study" / "outbox").rglob("best.safetensors"):
        kept.unlink()
    behind.is_away = False
    assert store.flush(30) == 0
    assert behind.attempts("nightly")[0].status == "finished"
    assert sum("gone before it could be kept" in line.getMessage() for line in caplog.records) == 1


def test_a_full_disk_keeps_records_in_memory_until_it_takes_them(journaled, behind, study, start, points, tmp_path):
    behind.is_away = True
    store = journaled()
    store.open_study(study, resume=False)
    attempt_id = store.start_attempt(start())
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, ((tmp_path / "study" / JOURNAL_FILE).stat().st_size + 10, hard))
        store.record_points(attempt_id, points(1, 2))
        store.record_points(attempt_id, points(3, 3))
        assert store._journal.unwritten == 2
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    store.record_points(attempt_id, points(4, 4))
    assert store._journal.unwritten == 0
    behind.is_away = False
    later = journaled()
    assert later.flush(30) == 0
    assert len(behind.attempts("nightly")[0].curve) == 4


def test_records_reach_the_store_over_a_full_disk_and_what_reached_nothing_is_said_at_the_end(
    journaled, behind, study, start, points, tmp_path
):
    store = journaled()
    store.open_study(study, resume=False)
    attempt_id = store.start_attempt(start())
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, ((tmp_path / "study" / JOURNAL_FILE).stat().st_size + 10, hard))
        store.record_points(attempt_id, points(1, 2))
        assert store.flush(30) == 0
        assert len(behind.attempts("nightly")[0].curve) == 2
        behind.is_away = True
        store.record_points(attempt_id, points(3, 3))
        with pytest.raises(StorageError, match=r"1 records could be written neither") as caught:
            store.close(0.0)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert "\n" not in str(caught.value)


def test_a_store_that_no_waiting_brings_back_is_refused_at_the_start_and_told_once(journaled, study, caplog):
    tries = threading.Semaphore(0)

    def misnamed():
        tries.release()
        raise UnusableStore("tracking uri runs: not a URI")

    store = journaled(opening=misnamed)
    assert all(tries.acquire(timeout=10) for _ in range(2)), "before anybody asked for it"
    with pytest.raises(UnusableStore, match="not a URI"):
        store.open_study(study, resume=False)
    assert "not a URI" not in caplog.text


def test_a_store_that_takes_for_ever_to_open_does_not_hold_up_a_new_study(behind, study, start, points, tmp_path):
    release = threading.Event()

    def slow():
        release.wait(60)
        return behind

    store = JournaledStore(slow, tmp_path / "study", answer_within_s=0.1)
    store.open_study(study, resume=False)
    train(store, start, points)
    assert len(behind._attempts) == 0
    release.set()
    assert store.close(30) == 0
    assert told(behind) == told(store)


def test_the_journal_starts_anew_from_what_the_store_has_so_that_it_stays_small(
    journaled, behind, study, start, points, tmp_path
):
    store = journaled()
    store.open_study(study, resume=False)
    for trial in "abc":
        train(store, start, points, trial)
    assert store.flush(30) == 0
    again = journaled()
    again.open_study(study, resume=True)
    assert [entry.kind for entry in again._journal.entries()] == ["journal", "known"]
    assert told(again) == told(behind)
    train(again, start, points, "d")
    assert again.flush(30) == 0
    assert told(again) == told(behind)


def test_what_was_recorded_without_a_store_survives_kill_9(journaled, behind, study, tmp_path):
    script = (
        "import os, signal, sys; sys.path.insert(0, sys.argv[2])\n"
        "from pathlib import Path\n"
        "from vsetune.errors import StorageError\n"
        "from vsetune.tracking import *\n"
        "def away(): raise StorageError('away')\n"
        "store = JournaledStore(away, Path(sys.argv[1]))\n"
        "store.open_study(StudyRecord('nightly', 'f00d', {}), resume=False)\n"
        "start = AttemptStart('nightly', 't', 'vsepp.lmh', 'vsepp', 'lmh', 1, 0, 'search', {}, {})\n"
        "store.record_points(store.start_attempt(start), [ValidationPoint(10, 0.5, 64, 51.5, 2.0)])\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    root = str(Path(__file__).parents[2] / "platform")
    done = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path / "study"), root], check=False, timeout=120, capture_output=True
    )
    assert done.returncode == -signal.SIGKILL
    store = journaled()
    store.open_study(StudyRecord("nightly", "f00d", {}), resume=True)
    (attempt,) = behind.attempts("nightly")
    assert (attempt.curve, attempt.status) == (((0.5, 51.5),), "killed")


DRIVER = """
import sys; sys.path.insert(0, sys.argv[3])
from pathlib import Path
from vsetune.tracking import *
store = open_journaled(sys.argv[1], None, Path(sys.argv[2]), curve_plots=False)
store.open_study(StudyRecord('nightly', 'f00d', {}), resume=sys.argv[4] == 'resume')
number = 1 + len(store.attempts('nightly'))
attempt_id = store.start_attempt(AttemptStart('nightly', 't', 'c', 'vsepp', 'lmh', number, 0, 'search', {}, {}))
print('go', number, flush=True)
for step in range(1, 100_000):
    store.record_points(attempt_id, [ValidationPoint(step, step / 100, 64 * step, 51.5, 2.0 * step)])
    print(number, step, flush=True)
"""


@pytest.mark.slow
def test_a_driver_killed_anywhere_loses_no_point_it_recorded_and_doubles_none(database, tmp_path):
    draw = random.Random(11)
    uri, root = f"sqlite:///{database}", str(Path(__file__).parents[2] / "platform")
    recorded: dict[int, int] = {}
    for turn in range(6):
        words = [sys.executable, "-c", DRIVER, uri, str(tmp_path / "study"), root, "resume" if turn else "new"]
        with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as driver:
            assert driver.stdout is not None
            assert driver.stdout.readline().startswith("go")
            time.sleep(draw.uniform(0.0, 1.5))
            driver.kill()
            whole = [line.split() for line in driver.stdout.read().splitlines(keepends=True) if line.endswith("\n")]
        for number, step in whole:
            recorded[int(number)] = max(int(step), recorded.get(int(number), 0))
    store = JournaledStore(lambda: open_store(uri, None), tmp_path / "study")
    assert store.flush(240) == 0
    store.close(5)
    attempts = open_store(uri, None).attempts("nightly")
    assert [attempt.start.number for attempt in attempts] == [1, 2, 3, 4, 5, 6]
    client = MlflowClient(uri)
    for attempt in attempts:
        steps = [metric.step for metric in client.get_metric_history(attempt.attempt_id, "m_recall")]
        assert steps == list(range(1, len(steps) + 1))
        assert len(steps) == len(attempt.curve) >= recorded.get(attempt.start.number, 0)
