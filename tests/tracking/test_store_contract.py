"""What any tracking store must do; runs on the in-memory store, on MLflow, and on a journal before either."""

import time
from pathlib import Path

import pytest

from vsetune.errors import StorageError, StudyConflict, UsageError
from vsetune.tracking import StudyRecord
from vsetune.tracking.store import unknown_study


@pytest.fixture
def opened(store, study):
    store.open_study(study, resume=False)
    return store


def test_a_study_is_read_back_as_it_was_written(opened, study):
    assert opened.studies() == [study]


def test_studies_are_listed_oldest_first(opened, study):
    opened.open_study(StudyRecord("later", "beef", {}), resume=False)
    assert [record.name for record in opened.studies()] == ["nightly", "later"]


def test_another_fingerprint_under_a_known_name_is_refused_even_when_resuming(opened):
    for resume in (False, True):
        with pytest.raises(StudyConflict, match="exists with another configuration") as caught:
            opened.open_study(StudyRecord("nightly", "beef", {}), resume=resume)
        assert "another name" in str(caught.value)
        assert "\n" not in str(caught.value)


def test_a_known_study_is_opened_again_only_when_resuming(opened, study):
    with pytest.raises(StudyConflict, match="--resume"):
        opened.open_study(study, resume=False)
    opened.open_study(study, resume=True)
    assert len(opened.studies()) == 1


def test_resuming_an_unknown_study_creates_it(store, study):
    store.open_study(study, resume=True)
    assert store.studies() == [study]


def test_an_attempt_is_read_back_as_it_was_started(opened, start):
    attempt_id = opened.start_attempt(start())
    (attempt,) = opened.attempts("nightly")
    assert (attempt.attempt_id, attempt.start, attempt.status) == (attempt_id, start(), "running")
    assert (attempt.curve, attempt.summary, attempt.error) == ((), {}, None)


def test_starting_an_attempt_twice_gives_the_same_attempt(opened, start):
    assert opened.start_attempt(start()) == opened.start_attempt(start())
    assert len(opened.attempts("nightly")) == 1


def test_a_retry_is_another_attempt_of_the_same_trial(opened, start):
    ids = [opened.start_attempt(start(number=number)) for number in (1, 2)]
    assert len(set(ids)) == 2
    assert [attempt.start.number for attempt in opened.attempts("nightly")] == [1, 2]


def test_attempts_of_other_studies_are_not_mixed_in(opened, start):
    opened.open_study(StudyRecord("later", "beef", {}), resume=False)
    opened.start_attempt(start())
    opened.start_attempt(start(study="later"))
    assert [attempt.start.study for attempt in opened.attempts("later")] == ["later"]


def test_names_with_quotes_and_letters_of_other_scripts_survive(opened, start):
    odd = start(trial="it's `odd` \"and\" größer", configuration={"loss.margin": 0.1})
    assert opened.start_attempt(odd) == opened.start_attempt(odd)
    assert opened.attempts("nightly")[0].start == odd


def test_a_curve_keeps_full_precision(opened, start, points):
    opened.record_points(opened.start_attempt(start()), points(1, 3))
    assert opened.attempts("nightly")[0].curve == tuple((p.epoch, p.m_recall) for p in points(1, 3))


def test_all_numbers_of_every_validation_are_read_back(opened, start, points):
    attempt_id = opened.start_attempt(start())
    for step in range(1, 60):
        opened.record_points(attempt_id, points(step, step))
    opened.finish_attempt(attempt_id, "finished", {"device_seconds": 1.0, "i2t_r1": 99.0}, [], None)
    assert opened.points(attempt_id) == points(1, 59)
    with pytest.raises(UsageError):
        opened.points("nowhere")


def test_steps_already_recorded_are_ignored(opened, start, points):
    attempt_id = opened.start_attempt(start())
    opened.record_points(attempt_id, points(1, 3))
    opened.record_points(attempt_id, points(1, 3))
    opened.record_points(attempt_id, points(2, 5))
    assert opened.attempts("nightly")[0].curve == tuple((p.epoch, p.m_recall) for p in points(1, 5))


def test_a_step_twice_in_one_call_counts_once(opened, start, points):
    opened.record_points(opened.start_attempt(start()), [*points(1, 2), *points(2, 2)])
    assert len(opened.attempts("nightly")[0].curve) == 2


def test_points_that_arrive_out_of_order_are_put_in_order(opened, start, points):
    attempt_id = opened.start_attempt(start())
    opened.record_points(attempt_id, points(3, 4))
    opened.record_points(attempt_id, points(1, 2))
    assert opened.attempts("nightly")[0].curve == tuple((p.epoch, p.m_recall) for p in points(1, 4))


def test_recording_no_points_changes_nothing(opened, start):
    opened.record_points(opened.start_attempt(start()), [])
    assert opened.attempts("nightly")[0].curve == ()


def test_a_long_curve_is_kept_whole(opened, start, points):
    attempt_id = opened.start_attempt(start())
    opened.record_points(attempt_id, points(1, 150))
    opened.record_points(attempt_id, points(151, 300))
    assert opened.attempts("nightly")[0].curve == tuple((p.epoch, p.m_recall) for p in points(1, 300))


def test_an_unfinished_attempt_tells_what_it_has_cost_so_far(opened, start, points):
    opened.record_points(opened.start_attempt(start()), points(1, 4))
    assert opened.attempts("nightly")[0].summary == {"train_seconds": 6.0, "device_seconds": 8.0}


@pytest.mark.parametrize("status", ["finished", "pruned", "failed", "killed"])
def test_every_way_to_end_is_read_back(opened, start, status):
    attempt_id = opened.start_attempt(start())
    error = "loss is nan" if status == "failed" else None
    opened.finish_attempt(attempt_id, status, {"best_m_recall": 61.25}, [], error)
    (attempt,) = opened.attempts("nightly")
    assert (attempt.status, attempt.summary["best_m_recall"], attempt.error) == (status, 61.25, error)


def test_the_summary_wins_over_what_the_last_point_told(opened, start, points):
    attempt_id = opened.start_attempt(start())
    opened.record_points(attempt_id, points(1, 2))
    opened.finish_attempt(attempt_id, "finished", {"device_seconds": 99.5}, [], None)
    assert opened.attempts("nightly")[0].summary == {"train_seconds": 3.0, "device_seconds": 99.5}


def test_finishing_twice_says_what_was_said_last(opened, start):
    attempt_id = opened.start_attempt(start())
    opened.finish_attempt(attempt_id, "failed", {"best_m_recall": 1.0}, [], "out of memory")
    opened.finish_attempt(attempt_id, "finished", {"best_m_recall": 2.0}, [], None)
    (attempt,) = opened.attempts("nightly")
    assert (attempt.status, attempt.summary, attempt.error) == ("finished", {"best_m_recall": 2.0}, None)


def test_an_attempt_cannot_end_as_running(opened, start):
    with pytest.raises(UsageError, match="cannot end as running"):
        opened.finish_attempt(opened.start_attempt(start()), "running", {}, [], None)


def test_resuming_kills_what_was_running_and_nothing_else(opened, study, start):
    running, finished = (opened.start_attempt(start(trial=name)) for name in ("a", "b"))
    opened.finish_attempt(finished, "finished", {}, [], None)
    opened.open_study(study, resume=True)
    assert {attempt.attempt_id: attempt.status for attempt in opened.attempts("nightly")} == {
        running: "killed", finished: "finished",
    }


def test_a_killed_attempt_that_starts_again_is_running_and_keeps_its_curve(opened, study, start, points):
    attempt_id = opened.start_attempt(start())
    opened.record_points(attempt_id, points(1, 2))
    opened.open_study(study, resume=True)
    assert opened.start_attempt(start()) == attempt_id
    opened.record_points(attempt_id, points(1, 3))
    (attempt,) = opened.attempts("nightly")
    assert (attempt.status, len(attempt.curve)) == ("running", 3)


def test_a_finished_attempt_that_starts_again_stays_finished(opened, start):
    opened.finish_attempt(opened.start_attempt(start()), "finished", {}, [], None)
    opened.start_attempt(start())
    assert opened.attempts("nightly")[0].status == "finished"


def test_artifacts_are_copied_before_the_call_returns(opened, start, tmp_path, settle):
    best = tmp_path / "best.safetensors"
    best.write_bytes(b"weights")
    opened.finish_attempt(opened.start_attempt(start()), "finished", {}, [best], None)
    best.unlink()
    settle()
    kept = list((tmp_path / "artifacts").rglob("best.safetensors"))
    assert [file.read_bytes() for file in kept] == [b"weights"]


def test_a_missing_artifact_is_named(opened, start, tmp_path):
    attempt_id = opened.start_attempt(start())
    with pytest.raises(StorageError, match=r"no artifact .*gone\.pt"):
        opened.finish_attempt(attempt_id, "finished", {}, [tmp_path / "gone.pt"], None)


def test_one_attempt_is_read_as_among_all_of_its_study(opened, start, points):
    ids = [opened.start_attempt(start(trial=name)) for name in ("a", "b")]
    opened.record_points(ids[1], points(1, 3))
    opened.finish_attempt(ids[1], "failed", {"best_m_recall": 3.5}, [], "loss is nan")
    assert [opened.attempt(attempt_id) for attempt_id in ids] == opened.attempts("nightly")


def test_files_kept_with_an_attempt_can_be_fetched_again(opened, start, tmp_path):
    best = tmp_path / "best.safetensors"
    best.write_bytes(b"weights")
    attempt_id = opened.start_attempt(start())
    opened.finish_attempt(attempt_id, "finished", {}, [best], None)
    best.unlink()
    into = tmp_path / "into"
    into.mkdir()
    found = opened.fetch_artifact(attempt_id, "best.safetensors", into)
    assert found.read_bytes() == b"weights"
    assert opened.fetch_artifact(attempt_id, "other.safetensors", into) is None
    assert opened.fetch_artifact(attempt_id, "gallery/page.html", into) is None


def test_files_added_later_go_to_their_folder_and_replace_those_of_the_same_name(opened, start, tmp_path):
    attempt_id = opened.start_attempt(start())
    opened.finish_attempt(attempt_id, "finished", {"best_m_recall": 61.25}, [], None)
    page, into = tmp_path / "page.html", tmp_path / "into"
    into.mkdir()
    for text in ("old", "new"):
        page.write_text(text)
        opened.keep_artifacts(attempt_id, [page], folder="gallery")
    assert opened.fetch_artifact(attempt_id, "gallery/page.html", into).read_text() == "new"
    assert opened.fetch_artifact(attempt_id, "page.html", into) is None
    assert opened.attempt(attempt_id).status == "finished"
    with pytest.raises(StorageError, match=r"no artifact .*gone\.html"):
        opened.keep_artifacts(attempt_id, [tmp_path / "gone.html"], folder="gallery")


def test_a_finished_study_keeps_its_artifacts_and_can_be_resumed(opened, study, tmp_path, settle):
    page = tmp_path / "leaderboard.html"
    page.write_text("<html>")
    opened.finish_study("nightly", "finished", [page])
    settle()
    assert list((tmp_path / "artifacts").rglob("leaderboard.html"))
    opened.open_study(study, resume=True)


def test_an_unknown_study_is_named_with_those_there_are(opened, start):
    calls = (
        lambda: opened.attempts("nigthly"),
        lambda: opened.finish_study("nigthly", "finished", []),
        lambda: opened.start_attempt(start(study="nigthly")),
    )
    for call in calls:
        with pytest.raises(UsageError, match=r"study nigthly: not in this store, which has: nightly"):
            call()


def test_of_many_studies_that_there_are_it_is_told_how_many_are_not_named() -> None:
    names = [f"study_{number:02}" for number in range(12)]
    assert "which has: study_00, " in str(unknown_study("other", names))
    assert "study_09 and 2 more; check" in str(unknown_study("other", names))
    assert "more" not in str(unknown_study("other", names[:10]))


def test_an_unknown_attempt_is_named(opened, points):
    with pytest.raises(UsageError, match="attempt nobody: not in this store"):
        opened.record_points("nobody", points(1, 1))
    with pytest.raises(UsageError, match="attempt nobody: not in this store"):
        opened.finish_attempt("nobody", "finished", {}, [Path("x")], None)
    with pytest.raises(UsageError, match="attempt nobody: not in this store"):
        opened.attempt("nobody")
    with pytest.raises(UsageError, match="attempt nobody: not in this store"):
        opened.keep_artifacts("nobody", [], folder="gallery")
    with pytest.raises(UsageError, match="attempt nobody: not in this store"):
        opened.fetch_artifact("nobody", "x", Path())


def test_attempts_without_a_sign_of_life_are_closed_and_all_others_left_alone(opened, start, points, settle):
    before = time.time()
    silent, talking, ended = (opened.start_attempt(start(trial=name)) for name in ("a", "b", "c"))
    opened.record_points(silent, points(1, 2))
    opened.finish_attempt(ended, "finished", {}, [], None)
    settle()
    between = time.time()
    opened.record_points(talking, points(1, 1))
    assert opened.close_stale(60, now=before + 60) == 0
    assert opened.close_stale(60, now=between + 3600, except_study="nightly") == 0
    assert opened.close_stale(60, now=between + 60) == 1
    found = {attempt.attempt_id: (attempt.status, attempt.error) for attempt in opened.attempts("nightly")}
    assert found[talking] == ("running", None)
    assert found[ended] == ("finished", None)
    assert found[silent][0] == "killed"
    assert "no sign of life" in found[silent][1]
    assert [opened.close_stale(60, now=between + 3600) for _ in range(2)] == [1, 0]


def test_an_attempt_that_was_closed_as_stale_can_still_say_how_it_ended(opened, start, points):
    attempt_id = opened.start_attempt(start())
    assert opened.close_stale(60, now=time.time() + 3600) == 1
    opened.record_points(attempt_id, points(1, 2))
    opened.finish_attempt(attempt_id, "finished", {"best_m_recall": 61.25}, [], None)
    (attempt,) = opened.attempts("nightly")
    assert (attempt.status, len(attempt.curve), attempt.error) == ("finished", 2, None)
