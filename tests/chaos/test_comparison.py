"""The chaos run's own checks can fail: each difference between two sweeps is found, and what may differ is not."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

from chaos.comparison import compare, doubts
from chaos.disturbances import KINDS
from chaos.ends import Injury, code_problems, innards, word_problems
from chaos.recorded import Recorded, RecordedAttempt, is_of_the_trial
from chaos.schedule import deal, deck
from chaos.sweeps import sweep
from vsetune.study.trial_measures import TrialMeter, Window
from vsetune.training.calibration import Calibration


def attempt(trial: str, number: int = 1, status: str = "finished", **changes: Any) -> RecordedAttempt:
    plain = RecordedAttempt(
        trial=trial, number=number, status=status, params={"loss.margin": "0.2"},
        metrics={("m_recall", 25): (20.0,), ("m_recall", 50): (30.0,)}, repeated=(), error="",
    )
    return replace(plain, **changes)


def board(**changes: Any) -> dict[str, Any]:
    row = {"cell": "vsepp.lmh", "best_m_recall": 30.0, "seconds_per_epoch": 0.3, "attempts": 2, "cost": {"epochs": 4.0}}
    return {"study": "s", "rows": [row | changes]}


UNDISTURBED = Recorded((attempt("c000"), attempt("c001", status="pruned")), board())


def kinds(*attempts: RecordedAttempt, board_of: dict[str, Any] | None = None) -> list[str]:
    return [finding.kind for finding in compare(UNDISTURBED, Recorded(attempts, board_of or board()))]


def test_a_sweep_that_was_interrupted_and_went_on_equals_the_undisturbed_one() -> None:
    killed = attempt("c000", status="killed", metrics={("m_recall", 25): (20.0,)})
    slower = board(seconds_per_epoch=9.0, attempts=3, cost={"epochs": 5.0})
    assert kinds(killed, attempt("c000", 2), attempt("c001", status="pruned"), board_of=slower) == []


@pytest.mark.parametrize(
    ("second", "expected"),
    [
        ([], ["lost"]),
        ([attempt("c001", status="failed", error="S3 does not answer")], ["failed"]),
        ([attempt("c001", status="killed")], ["open"]),
        ([attempt("c001", status="finished")], ["different"]),
        ([attempt("c001", status="pruned", params={"loss.margin": "0.3"})], ["different"]),
        ([attempt("c001", status="pruned", metrics={("m_recall", 25): (20.0,)})], ["lost"]),
        (
            [attempt("c001", status="pruned", metrics={("m_recall", 25): (20.0,), ("m_recall", 50): (30.000000001,)})],
            ["different"],
        ),
        ([attempt("c001", status="pruned", repeated=("m_recall at step 50",))], ["twice"]),
        ([attempt("c001", status="pruned"), attempt("c001", status="pruned")], ["twice", "twice"]),
        ([attempt("c001", status="pruned"), attempt("c001", 2, status="pruned")], ["twice"]),
        ([attempt("c001", status="pruned"), attempt("c002")], ["different"]),
    ],
)
def test_every_way_to_lose_repeat_or_change_a_trial_is_found(
    second: list[RecordedAttempt], expected: list[str]
) -> None:
    assert kinds(attempt("c000"), *second) == expected


def test_what_workers_measure_of_a_machine_is_no_difference_between_trials() -> None:
    meter = TrialMeter(torch.device("cpu"), calibrates=False)
    meter.opened()
    meter.windows = [Window(1.0, 40, 0.5, 0.6, 1.0, Calibration(0.1, 0.1))]
    measured = meter.summary().keys()
    assert {"start_seconds", "peak_memory_bytes", "epoch_products"} <= measured
    assert not [name for name in measured if is_of_the_trial(name)]
    assert is_of_the_trial("m_recall")


def test_a_record_without_trials_or_curves_is_nothing_to_compare_with() -> None:
    assert doubts(UNDISTURBED, fewest=2) == []
    assert doubts(UNDISTURBED, fewest=3) == ["2 trials, need 3"]
    assert doubts(Recorded((attempt("c000", metrics={}),), {}), fewest=1) == [
        "c000: has no curve or no parameters", "no leaderboard",
    ]
    assert doubts(Recorded((attempt("c000", status="failed"),), board()), fewest=1) == ["c000: is failed"]


def test_another_winner_on_the_board_is_found() -> None:
    same = (attempt("c000"), attempt("c001", status="pruned"))
    assert kinds(*same, board_of=board(best_m_recall=30.1)) == ["different"]
    assert kinds(*same, board_of=board() | {"rows": []}) == ["different"]


def test_innards_are_seen_and_plain_lines_are_not() -> None:
    assert innards("interrupted; go on with: vsetune study run x.yaml --resume\n") == []
    assert innards("Traceback (most recent call last):\n  x\n") == ["Traceback (most recent call last):"]
    assert innards("[2026 E 1 1] gcs_client.cc:12: Failed\n")


@pytest.mark.parametrize(
    ("kind", "code", "stderr", "count"),
    [
        ("raylet_killed", 130, "the raylet died; go on with: vsetune study run x.yaml --resume", 0),
        ("raylet_killed", 130, "the raylet died", 1),
        ("raylet_killed", 0, "", 1),
        ("driver_killed", -9, "", 0),
        ("driver_sigterm", -15, "", 1),
        ("worker_killed", 130, "interrupted", 1),
        ("mlflow_down", 0, "", 0),
        ("s3_down", 3, "", 1),
    ],
)
def test_an_end_is_judged_by_its_exit_code_and_its_words(kind: str, code: int, stderr: str, count: int) -> None:
    injury = Injury(0, kind, "validation", "s", 0, struck_s=1.0, exit_code=code, stderr=stderr)
    problems = code_problems(KINDS[kind], code, at_start=False, is_over=False) + word_problems(KINDS[kind], injury)
    assert len(problems) == count, problems


def test_a_deck_plays_every_kind_equally_often_and_every_card_fits_its_sweep() -> None:
    cards = deck(list(KINDS), 60, seed=3)
    assert cards == deck(list(KINDS), 60, seed=3)
    assert {kind: sum(card.kind == kind for card in cards) for kind in KINDS} == dict.fromkeys(KINDS, 5)
    hands = deal(cards, [sweep(number, seed=3) for number in range(4)])
    assert sorted(card.number for hand in hands.values() for card in hand) == list(range(60))
    assert {len(hand) for hand in hands.values()} == {15}
    for number, hand in hands.items():
        assert not any(KINDS[card.kind].needs == "file" for card in hand) or sweep(number, seed=3).store == "file"
        assert sum(card.phase == "end" for card in hand) <= 1
