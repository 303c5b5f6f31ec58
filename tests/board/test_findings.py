"""What sentences of a board say, and that they say nothing that the data do not."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from board_attempts import BASELINE, NEW, reaching, row_of
from pydantic import TypeAdapter

from vsetune.board.board_notes import notes
from vsetune.board.board_sentences import findings, headline, is_ahead, more, to_know
from vsetune.board.building import build
from vsetune.board.export import to_json, to_latex
from vsetune.board.page import to_html
from vsetune.board.wording import new_study_file
from vsetune.config.spec.base import Name

CLAIMS = ("points M-Recall over", "M-Recall against")


BASE = {"heights": (60.0, 60.3, 60.1, 60.5, 60.2, 60.4, 60.1), "epochs": (8, 9, 8, 10, 9, 8, 9)}
AHEAD = {"heights": (61.2, 61.3, 61.3, 61.4, 61.3, 61.6, 61.1), "epochs": (4, 5, 4, 6, 5, 4, 6)}
EQUAL = {"heights": (60.3, 60.1, 60.2, 60.4, 60.3, 60.2, 60.2), "epochs": (8, 9, 8, 10, 9, 8, 9)}
BEHIND = {"heights": (58.0, 58.4, 58.1, 58.4, 58.3, 58.2, 58.2), "epochs": (6,) * 7}


@pytest.fixture
def seven(attempt):
    """Over seven seeds: lseh is higher and sooner, lsh neither, irtm lower."""
    losses = {"lmh": BASE, "lseh": AHEAD, "lsh": EQUAL, "irtm": BEHIND}
    return build([each for loss, seeds in losses.items() for each in reaching(attempt, loss, **seeds)], baseline="lmh")


@pytest.mark.parametrize(("baseline", "other", "about", "words"), [
    ([14.9, 14.2], NEW, {"status": "running"}, "the baseline lmh has not learned anything yet: its best M-Recall is "
     "14.9 %, less than half of the 61.5 % of mine"),
    ([1.2, 1.0], [2.0, 1.9], {"images": 1000, "captions": 5000}, "the baseline lmh collapsed: its M-Recall is 1.0 % at "
     "the end, that of a random order 0.5 %"),
])
def test_a_baseline_that_runs_or_ends_at_chance_has_its_own_headline(attempt, baseline, other, about, words):
    about_both = {key: value for key, value in about.items() if key != "status"}
    board = build([attempt("lmh", baseline, **about), attempt("mine", other, **about_both)], baseline="lmh")
    assert headline(board) == [f"vsepp on scenes: {words}. Nothing is compared with it."]


def test_one_seed_never_wins(attempt):
    """The sentence that boards made of these very curves: "lseh gets highest, and is first at the best of lmh"."""
    board = build([attempt("lmh"), attempt("lseh", NEW)], baseline="lmh")
    reason = "1 seed of each loss, and a test needs 2"
    assert headline(board) == [f"vsepp on scenes: no loss is separated from lmh: {reason}."]
    assert findings(board) == [
        f"vsepp lseh cannot be compared with lmh: {reason}; measured: +1.3 points M-Recall, −40.0 % epochs to 57.2 % "
        "M-Recall.",
    ]
    assert to_know(board) == ["2 seeds of each loss: vsetune study confirm demo --seeds 2"]
    assert not is_ahead(row_of(board, "lseh"))
    for view in (to_html(board), to_json(board), to_latex(board)):
        assert not [claim for claim in CLAIMS if claim in view]


def test_an_interrupted_study_is_said_to_be_not_over_and_gets_no_other_advice(attempt):
    """Two configurations of each loss were searched, and no pick was confirmed."""
    searched = [
        attempt(loss, curve, configuration=number) for loss, curve in (("lmh", BASELINE), ("lseh", NEW))
        for number in range(2)
    ]
    over = build(searched, baseline="lmh")
    assert headline(over) == [
        "vsepp on scenes: no loss is separated from lmh: fewer than 3 searches with confirming seeds (lmh 0, lseh 0)."
    ]
    board = replace(over, unfinished=("demo",))
    assert headline(board) == ["vsepp on scenes: no loss can be compared with lmh yet: the study is not over."]
    assert findings(board) == ["vsepp lseh cannot be compared with lmh: the study is not over."]
    assert to_know(board) == [
        "the study is not over: wait for its end or, where it was interrupted, vsetune study run FILE --resume"
    ]
    untuned = replace(build([attempt("lmh"), attempt("lseh", NEW)], baseline="lmh"), unfinished=("demo",))
    assert "the study is not over; measured: +1.3 points" in findings(untuned)[0]
    assert not any("repeats" in line for line in more(untuned))


def test_a_baseline_that_still_rose_is_noted_with_the_command_that_prolongs_it(attempt):
    """A fixed target stays a target: 57.2 % is 95 % of 60.2 %, here after 2.5 epochs of lmh and 1.5 of top_f."""
    rising = [attempt("lmh", [30, 42, 50, 55, 58, 60.2], seed=seed) for seed in range(7)]
    faster = [attempt("top_f", [38, 52, 59, 60.5, 61, 61.5], seed=seed) for seed in range(7)]
    board = build([*rising, *faster], baseline="lmh")
    row = row_of(board, "top_f")
    assert "baseline_rising" in row.flags
    assert row.comparison.epochs.target == pytest.approx(0.95 * 60.2)
    assert row.comparison.epochs.percent == pytest.approx(-40)
    assert "more epochs would raise its best, and the targets taken from it: vsepp lmh." in " ".join(notes(board))
    command = "vsetune leaderboard repeat demo/vsepp.lmh --all --epochs 6 --output demo_vsepp_longer.yaml"
    assert any(command in step for step in to_know(board))
    assert command in to_html(board)


def test_the_file_of_a_told_command_has_a_name_that_a_study_can_have():
    assert new_study_file("demo", "vsepp", "longer") == "demo_vsepp_longer.yaml"
    name = new_study_file("s" * 80, "n" * 60, "longer").removesuffix(".yaml")
    assert TypeAdapter(Name).validate_python(name).endswith("nnn_longer")


def test_claims_on_losses_that_still_rise_are_limited_to_the_epochs_trained(attempt, seven):
    """luwm stays below, and is highest at its last validation; nothing else is limited."""
    rising = [
        attempt("luwm", [4.0 * epoch + seed / 10 for epoch in range(1, 13)], gap=1.0, seed=seed) for seed in range(7)
    ]
    others = [*reaching(attempt, "lmh", **BASE), *reaching(attempt, "irtm", **BEHIND)]
    board = build([*others, *rising], baseline="lmh")
    assert "rising" in row_of(board, "luwm").flags
    assert not any("rising" in row.flags for row in seven.rows)
    limited = {line.split()[1]: " within 12 epochs (" in line for line in findings(board) if " reaches −" in line}
    assert limited == {"luwm": True, "irtm": False}
    running = [attempt("luwm", [4.0, 8.0], seed=seed, status="running") for seed in range(7)]
    assert "rising" not in row_of(build([*others, *running], baseline="lmh"), "luwm").flags
    rising = [attempt("lmh", [30, 42, 50, 55, 58, 60 + seed / 10], seed=seed) for seed in range(7)]
    faster = [attempt("top_f", [38, 52, 59, 63.5, 63, 62], seed=seed) for seed in range(7)]
    board = build([*rising, *faster], baseline="lmh")
    assert "points M-Recall over lmh within 3 epochs (" in findings(board)[0]
    assert headline(board)[0].endswith("points M-Recall over lmh within 3 epochs.")


@pytest.mark.parametrize("draw", range(6))
def test_a_printed_interval_never_contradicts_the_sentence(attempt, draw):
    """Boards of losses that differ by more or less than they scatter: an interval excludes 0 where a claim is decided.
    """
    numbers = random.Random(draw)
    losses = {"lmh": 0.0} | {f"loss{at}": numbers.uniform(-2, 2) for at in range(4)}
    runs = [
        each for loss, shift in losses.items() for each in reaching(
            attempt, loss, heights=[60 + shift + numbers.gauss(0, 0.5) for _ in range(5)],
            epochs=[max(2, round(6 - shift + numbers.gauss(0, 0.8))) for _ in range(5)],
        )
    ]
    board = build(runs, baseline="lmh")
    answers = set()
    for row in board.rows[1:]:
        found = row.comparison
        answers |= {found.height}
        for bounds, none, answer in (
            (found.m_recall_bounds, 0, found.height), (found.epochs_bounds, 0, found.epochs_answer),
            (found.improvement_bounds, 0.5, found.height),
        ):
            if bounds is not None:
                assert (not bounds[0] <= none <= bounds[1]) == (answer != "undecided"), row.loss
    assert "undecided" in answers or draw


def test_seeds_that_searched_have_no_interval_and_enter_no_test(attempt):
    runs = [
        attempt(loss, [50 + configuration + gain, 40], configuration=configuration)
        for loss, gain in (("lmh", 0), ("lseh", 5)) for configuration in (0, 1)
    ]
    board = build(runs, baseline="lmh")
    row = row_of(board, "lseh")
    assert (row.flags, len(row.headline)) == (("chosen_by_itself",), 1)
    assert (row.m_recall_bounds, row.comparison.seeds, row.comparison.m_recall) == (None, (), None)
    reason = "fewer than 3 searches with confirming seeds (lmh 0, lseh 0)"
    assert headline(board) == [f"vsepp on scenes: no loss is separated from lmh: {reason}."]
    assert findings(board) == [f"vsepp lseh cannot be compared with lmh: {reason}."]


def test_a_seed_that_has_not_finished_enters_no_test(attempt):
    runs = reaching(attempt, "lmh", **BASE) + reaching(attempt, "lseh", **BASE, status="running")
    row = row_of(build(runs, baseline="lmh"), "lseh")
    assert (row.comparison.seeds, row.m_recall_bounds, row.epochs_bounds) == ((), None, None)


def test_a_headline_has_six_claims_and_names_the_losses_of_the_others(attempt):
    losses = {"lmh": BASE} | {f"loss{place}": AHEAD for place in range(4)}
    board = build([each for loss, seeds in losses.items() for each in reaching(attempt, loss, **seeds)], baseline="lmh")
    (told,) = headline(board)
    assert told.count("loss2") == 2
    assert told.endswith("against lmh; more on loss3 in the notes.")
