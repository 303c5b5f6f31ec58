"""Rows of several searches: each has its own pick, and claims about tuned losses rest on three or more."""

from __future__ import annotations

import csv
import io
import json
import math
import statistics

import pytest
import scipy.stats
from board_attempts import row_of
from rich.console import Console

from vsetune.board.board_notes import notes
from vsetune.board.board_sentences import findings, headline, is_ahead, to_know
from vsetune.board.building import build
from vsetune.board.charts import tuning_charts
from vsetune.board.comparing import FOR_LONG_TAILS
from vsetune.board.export import to_csv, to_json
from vsetune.board.page import tags_of, to_html
from vsetune.board.terminal import render_table
from vsetune.board.wording import difference_of
from vsetune.board.wording import pace as pace_words
from vsetune.metrics.seed_statistics import Epochs


@pytest.fixture
def searched(attempt):
    """Makes one search: configuration 1 wins it, and seeds that are its own confirm it."""

    def make(loss: str, repeat: int, recalls, *, epochs: int = 4, winner: int = 1, **more):
        first = 10 * repeat
        return [
            attempt(loss, [20, 30], configuration=0, seed=first, repeat=repeat, gap=1.0),
            attempt(loss, [60, 70], configuration=winner, seed=first, repeat=repeat, gap=1.0),
            *(
                attempt(
                    loss, [*(recall / 2,) * (epochs - 1), recall, *(recall - 1,) * (12 - epochs)], gap=1.0,
                    configuration=winner, seed=first + number, repeat=repeat, phase="confirm", **more,
                )
                for number, recall in enumerate(recalls, 1)
            ),
        ]

    return make


OURS = ((61.0, 61.4), (61.6, 61.2), (60.9, 61.3))
THEIRS = ((59.0, 59.4), (59.8, 59.2), (58.9, 59.5))


def of_searches(searched, loss, groups, paces=(4, 4, 4)):
    return [
        each for repeat, (recalls, epochs) in enumerate(zip(groups, paces, strict=False), 1)
        for each in searched(loss, repeat, recalls, epochs=epochs)
    ]


@pytest.fixture
def tuned(searched):
    """Three searches of both losses; lseh is higher, and reaches the target after 4, 4 and 3 epochs for 7, 8 and 9."""
    return build([
        *of_searches(searched, "lmh", THEIRS, (7, 8, 9)), *of_searches(searched, "lseh", OURS, (4, 4, 3)),
    ], baseline="lmh")


def test_each_search_has_its_own_pick_and_seeds(attempt, searched):
    """Configuration 1 wins the first search and configuration 2 the second, which tried 1 too and found it worse."""
    other = attempt("lmh", [50, 55], configuration=1, seed=20, repeat=2)
    board = build([
        *searched("lmh", 1, (60.0, 62.0)), other, *searched("lmh", 2, (64.0, 66.0, 65.0), winner=2),
    ], baseline="lmh")
    row = row_of(board, "lmh")
    assert [(pick.repeat, pick.seeds, pick.best_m_recall) for pick in row.repeats] == [
        (1, (10, 11, 12), 61.0), (2, (20, 21, 22, 23), 65.0),
    ]
    assert [pick.configuration["loss.margin"] for pick in row.repeats] == pytest.approx([0.2, 0.3])
    assert [pick.configurations for pick in row.repeats] == [2, 3]
    assert row.configuration == row.repeats[1].configuration
    assert [seed.seed for seed in row.headline] == [11, 12, 21, 22, 23]
    assert (row.best_m_recall, row.best_m_recall_std) == (63.0, pytest.approx(4 / 2**0.5)), "a mean of two means"
    assert (row.m_recall_bounds, row.cell) == (None, "vsepp.lmh")
    assert [pick.tuning.trials for pick in row.repeats] == [2, 3], "each with the trials of its own search"


def test_the_share_of_the_target_can_be_chosen(searched):
    runs = [*of_searches(searched, "lmh", THEIRS), *of_searches(searched, "lseh", OURS)]
    found = row_of(build(runs, baseline="lmh", target_share=0.4), "lseh").comparison
    assert (found.epochs.share, found.epochs.percent) == (0.4, 0.0), "half of the best is there at once"
    assert found.epochs.target == pytest.approx(0.4 * 59.3)


@pytest.mark.parametrize("count", [1, 2])
def test_fewer_than_three_searches_claim_nothing_whatever_their_seeds(searched, count):
    many = tuple(60.0 + number / 10 for number in range(8))
    runs = [
        each for repeat in range(1, count + 1) for loss, gain in (("lmh", 0), ("lseh", 5))
        for each in searched(loss, repeat, [recall + gain for recall in many], epochs=8 - gain)
    ]
    board = build(runs, baseline="lmh")
    row = row_of(board, "lseh")
    found = row.comparison
    assert (found.height, found.epochs_answer) == ("one search", "one search")
    assert (found.m_recall, found.m_recall_bounds, found.epochs_bounds) == (pytest.approx(5.0), None, None)
    assert (found.height_p, found.epochs_p) == (1.0, 1.0)
    reason = f"fewer than 3 searches with confirming seeds (lmh {count}, lseh {count})"
    assert headline(board) == [f"vsepp on scenes: no loss is separated from lmh: {reason}."]
    assert findings(board) == [
        f"vsepp lseh cannot be compared with lmh: {reason}; measured: +5.0 points M-Recall, −62.5 % epochs to 57.3 % "
        "M-Recall."
    ]
    assert to_know(board)[0].startswith("3 searches of each tuned loss: ")
    assert not is_ahead(row)
    assert tags_of(row) == []


def test_a_tuned_loss_is_compared_with_the_seeds_of_one_that_was_not(attempt, searched):
    bests = (59.0, 59.2, 59.4, 59.1)
    plain = [attempt("lmh", [40, recall, 50], seed=seed, gap=1.0) for seed, recall in enumerate(bests)]
    board = build([*plain, *of_searches(searched, "lseh", OURS)], baseline="lmh")
    found = row_of(board, "lseh").comparison
    test = scipy.stats.ttest_ind([statistics.fmean(of) for of in OURS], bests, equal_var=False)
    p = 2 * scipy.stats.t.sf(abs(test.statistic), min(test.df, 4))
    assert (found.units, found.baseline_units, found.height_p) == (3, 4, pytest.approx(p))
    assert "points M-Recall over lmh (3 searches against 4 seeds, p" in findings(board)[0]
    few = row_of(build([*plain[:2], *of_searches(searched, "lseh", OURS)], baseline="lmh"), "lseh").comparison
    assert (few.height, few.m_recall_bounds) == ("too few seeds", None)
    one = build([*plain, *searched("lseh", 1, OURS[0])], baseline="lmh")
    assert "with lmh: fewer than 3 searches with confirming seeds (lseh 1)" in findings(one)[0]


def test_losses_that_were_not_tuned_are_paired_by_seed_also_over_repeats(attempt):
    """Each of three repeats trains the one configuration with a seed of its own."""
    runs = [
        attempt(loss, [40, recall + gain, 50], seed=10 * repeat, repeat=repeat, gap=1.0)
        for loss, gains in (("lmh", (0, 0, 0)), ("lseh", (1.0, 1.2, 0.9)))
        for repeat, (recall, gain) in enumerate(zip((59, 60, 61), gains, strict=True), 1)
    ]
    found = row_of(build(runs, baseline="lmh"), "lseh").comparison
    assert (found.by_search, found.units) == (False, 3)
    assert found.height_p == pytest.approx(FOR_LONG_TAILS * scipy.stats.ttest_1samp([1.0, 1.2, 0.9], 0).pvalue)


def test_a_search_without_confirmed_seeds_is_in_no_mean(searched):
    runs = [*searched("lmh", 1, (60.0, 62.0)), *searched("lmh", 2, ())]
    row = row_of(build(runs, baseline="lmh"), "lmh")
    assert (row.best_m_recall, [seed.seed for seed in row.headline]) == (61.0, [11, 12])
    assert row.flags == ("search_missing",)
    assert row.configuration == row.repeats[0].configuration, "70 % are a maximum"


def test_a_search_of_which_every_trial_failed_takes_the_claim(attempt, searched):
    failed = [attempt("lseh", [], seed=40, repeat=4, status="failed", error="numeric: nan")]
    board = build([
        *of_searches(searched, "lmh", THEIRS), *of_searches(searched, "lseh", OURS), *failed,
    ], baseline="lmh")
    row = row_of(board, "lseh")
    assert (row.comparison.height, row.comparison.m_recall_bounds) == ("search failed", None)
    assert "search_failed" in row.flags
    assert "cannot be compared with lmh: every trial of a search failed; measured" in findings(board)[0]


def test_a_diverged_seed_counts_as_nothing_reached(attempt, searched):
    """(61 + 0) / 2: the seed of which the loss was not a number counts, that of which the disk was full does not."""
    lost = [
        attempt("lseh", [50], configuration=1, seed=12, phase="confirm", status="failed", error="numeric: nan"),
        attempt("lseh", [50], configuration=1, seed=13, phase="confirm", status="failed", error="storage: full"),
    ]
    board = build([*searched("lmh", 1, (60.0, 60.4)), *searched("lseh", 1, (61.0,)), *lost], baseline="lmh")
    row = row_of(board, "lseh")
    assert (row.best_m_recall, [seed.seed for seed in row.headline]) == (30.5, [11, 12])
    diverged = row.headline[1]
    assert (diverged.diverged, diverged.best_m_recall, diverged.is_evidence) == (True, 0.0, True)
    assert diverged.epochs_to_target == Epochs(2.0, censored=True)
    assert row.epochs_to_best == 4.0, "the median of those that were trained"
    assert {"seed_collapsed", "seed_failed"} <= set(row.flags)
    assert row.comparison.epochs.missed == 1
    words = "1 of 2 seeds collapsed; of more seeds up to 97 % may (95 % bound)"
    assert headline(board)[0] == f"vsepp on scenes: lseh: {words}. These seeds count in all numbers."


def test_one_collapsed_seed_of_nine_is_in_the_headline_of_every_form_and_in_the_mean(attempt):
    runs = [attempt("lmh", [40, 60 + seed / 10, 55], seed=seed, gap=1.0) for seed in range(9)]
    runs += [attempt("lseh", [8, 62 + seed / 10 if seed else 9.0, 8], seed=seed, gap=1.0) for seed in range(9)]
    board = build(runs, baseline="lmh")
    row = row_of(board, "lseh")
    assert (row.collapsed_seeds, row.best_m_recall) == (1, pytest.approx((9 + 8 * 62 + 3.6) / 9))
    assert (row.comparison.units, row.comparison.height) == (9, "undecided")
    words = "lseh: 1 of 9 seeds collapsed; of more seeds up to 43 % may (95 % bound)"
    console = Console(width=200, file=io.StringIO())
    console.print(render_table(board))
    for form in (console.file.getvalue(), to_html(board), headline(board)[0]):
        assert words in form
    assert any("collapsed and diverged seeds count" in note and words[6:] in note for note in notes(board))


def test_a_loss_with_a_seed_that_never_gets_there_is_never_called_faster(attempt):
    runs = [
        attempt(loss, [*(30,) * (at - 1), 60 + seed / 10, *(50,) * (12 - at)], seed=seed, gap=1.0)
        for loss, pace in (("lmh", (8, 9, 8, 10, 9, 8)), ("lseh", (2, 2, 3, 2, 3, 2))) for seed, at in enumerate(pace)
    ]
    faster = row_of(build(runs, baseline="lmh"), "lseh").comparison
    assert faster.epochs_answer == "supported"
    stuck = [*runs[:-1], attempt("lseh", [*(30,) * 12], seed=5, gap=1.0)]
    found = row_of(build(stuck, baseline="lmh"), "lseh").comparison
    assert (found.epochs.missed, found.epochs_p, found.epochs_answer) == (1, 1.0, "undecided")
    assert (found.epochs.percent, found.epochs_bounds) == (None, None), "at least 60 % fewer epochs says nothing"
    said = findings(build(stuck, baseline="lmh"))[1]
    assert said.startswith("vsepp lseh cannot be compared with lmh in epochs to 57.2 % M-Recall: not reached (1 of 6 ")


def test_a_bound_is_a_number_only_where_it_tells_who_is_faster(attempt):
    """Of six seeds that need 2 or 3 epochs, one of the slow loss never gets there."""
    paces = {"lmh": (2, 2, 3, 2, 3, 2), "slow": (8, 9, 8, 10, 9, 12)}
    runs = [
        attempt(loss, [*(30,) * (at - 1), 60 + seed / 10, *(50,) * (12 - at)] if at < 12 else [40] * 12, seed=seed,
                gap=1.0)
        for loss, pace in paces.items() for seed, at in enumerate(pace)
    ]
    never = [attempt("never", [30 + epoch for epoch in range(12)], seed=seed, gap=1.0) for seed in range(6)]
    board = build([*runs, *never], baseline="lmh")
    found = row_of(board, "slow").comparison
    ratio = (8 * 9 * 8 * 10 * 9 * 12 / (2 * 2 * 3 * 2 * 3 * 2)) ** (1 / 6)
    assert found.epochs.percent == pytest.approx(100 * (ratio - 1))
    assert (found.epochs_bounds[0] > 0, found.epochs_bounds[1], found.epochs_answer) == (True, math.inf, "contradicted")
    assert pace_words(found).startswith(f"> +{100 * (ratio - 1):.1f} % [")
    none = row_of(board, "never").comparison
    assert (none.epochs.percent, none.epochs_bounds, none.epochs_answer) == (None, None, "contradicted")
    assert (pace_words(none), difference_of(row_of(board, "never"))) == ("not reached", "not reached")
    assert pace_words(row_of(build(runs, baseline="slow"), "lmh").comparison).startswith("< −")


def test_every_form_has_each_pick(tuned):
    row = row_of(tuned, "lseh")
    (note,) = [note for note in notes(tuned) if note.startswith("vsepp lseh: search by search ")]
    assert "search by search 61.2, 61.4, 61.1 %, by loss.margin = 0.2 in 1; loss.margin = 0.2 in 2; " in note
    assert f"between seeds of a pick {row.spread.seed:.2f}" in note
    line = next(each for each in csv.DictReader(io.StringIO(to_csv(tuned))) if each["loss"] == "lseh")
    assert (line["searches"], line["is_tuned"], line["seed_std"]) == ("3", "True", str(row.spread.seed))
    plain = json.loads(to_json(tuned))["rows"][1]
    assert [pick["repeat"] for pick in plain["repeats"]] == [1, 2, 3]


def test_the_expected_bests_of_a_loss_are_the_mean_over_its_searches(searched, attempt):
    more = [
        attempt("lmh", [10, 20 * repeat], configuration=number, seed=10 * repeat, repeat=repeat)
        for repeat in (1, 2) for number in (2, 3)
    ]
    board = build([*searched("lmh", 1, (60.0,)), *searched("lmh", 2, (61.0,)), *more], baseline="lmh")
    (note,) = (note for note in notes(board) if ": expected best" in note)
    assert "ended earlier: 40.0 (35.0–45.0) after 1 trial, " in note, "of 30, 70, 20, 20 and of 30, 70, 40, 40"
    assert "of the epochs" not in note, "no trial was stopped"
    stopped = attempt("lmh", [5], configuration=4, seed=10, repeat=1, status="pruned")
    board = build([*searched("lmh", 1, (60.0,)), *searched("lmh", 2, (61.0,)), *more, stopped], baseline="lmh")
    (note,) = (note for note in notes(board) if ": expected best" in note)
    assert note.count(" of the epochs") == 2
    assert len(tuning_charts(board)["series"]) == 2, "the page draws each search"
