"""What boards say of searches that had ended sooner, and of many tasks at once."""

from __future__ import annotations

import io
import json
import math
import statistics
from dataclasses import replace
from itertools import combinations

import pytest
from rich.console import Console

from vsetune.report.building import build
from vsetune.report.charts import profile_chart
from vsetune.report.export import to_json
from vsetune.report.next_steps import to_know
from vsetune.report.terminal import render_notes

BESTS = (50.0, 58.0, 0.0, 61.0, 55.0)


def searched(attempt, loss="lmh"):
    """Five configurations: the third one failed after a validation, the fifth was stopped after half of its epochs."""
    curves = ([40, 50, 49, 48], [41, 52, 58, 57], [70], [45, 55, 60, 61], [50, 55])
    statuses = ("finished", "finished", "failed", "finished", "pruned")
    return [
        attempt(loss, curve, configuration=place, status=status)
        for place, (curve, status) in enumerate(zip(curves, statuses, strict=True))
    ]


def printed(board):
    console = Console(width=170, file=io.StringIO(), color_system=None)
    console.print(render_notes(board))
    return console.file.getvalue()


def test_a_row_has_what_its_search_was_expected_to_find_with_fewer_trials_and_fewer_epochs(attempt):
    running = attempt("lmh", [90], configuration=8, status="running")
    confirming = attempt("lmh", [99, 99], configuration=3, seed=1, phase="confirm")
    (row,) = build([*searched(attempt), running, confirming], baseline="lmh").rows
    assert row.pick.tuning.trials == 5
    for found in row.pick.tuning.after_trials:
        chosen = [max(some) for some in combinations(BESTS, int(found.at))]
        assert found.mean == pytest.approx(statistics.fmean(chosen))
    assert row.pick.tuning.epochs == pytest.approx(2 + 2 + 0.5 + 2 + 1)
    assert (row.pick.tuning.after_epochs[-1].at, row.pick.tuning.after_epochs[-1].mean) == (7.5, 61.0)
    assert row.pick.tuning.with_replacement[-1] < 61.0


def test_a_single_configuration_and_a_search_for_something_else_have_no_such_curves(attempt):
    for runs in ([attempt("lmh")],
                 [attempt("lmh", configuration=place, summary={"search_value": -2.0}) for place in (0, 1)]):
        assert build(runs, baseline="lmh").rows[0].pick.tuning is None


def test_the_terminal_says_what_fewer_trials_would_have_found_where_four_were_tried(attempt):
    text = printed(build(searched(attempt), baseline="lmh"))
    assert "Expected best of a search that had ended earlier, M-Recall in per cent, vsepp on scenes" in text
    line = next(line for line in text.splitlines() if line.split()[:2] == ["lmh", "5"])
    assert line.split()[2:] == ["44.8", "57.8", "60.4", "55.2", "58.4", "61.0"]
    # of pairs 1 has 50 as its higher one, 2 have 55, 3 have 58 and 4 have 61: 57.8
    assert "Expected best" not in printed(build(searched(attempt)[:2], baseline="lmh"))


def compared(attempt, *, gain, apart=0.1, tried=(40.0, 42.0, 44.0, 60.0), **more):
    """Two losses with one search of four configurations and two seeds of the winner, which differ by the gain."""
    return [
        *(attempt("lmh", [10, best, best - 1], configuration=place, **more) for place, best in enumerate(tried)),
        *(attempt("lseh", [10, 60 - place / 100, 50], configuration=place, **more) for place in range(4)),
        *(
            attempt(loss, [10, height + apart * seed, 30], configuration=winner, seed=seed, phase="confirm")
            for loss, winner, height in (("lmh", 3, 60.0), ("lseh", 0, 60.0 + gain)) for seed in (1, 2)
        ),
    ]


@pytest.mark.parametrize(("about", "is_said"), [
    ({"gain": 2.0}, True),
    ({"gain": -2.0}, True),
    ({"gain": 12.0}, False),  # more than a search of half as many would have lost
    ({"gain": 2.0, "apart": 20.0}, False),  # so much is chance
    ({"gain": 2.0, "tried": (59.0, 59.5, 59.8, 60.0)}, False),  # it has levelled off
    ({"gain": 2.0, "summary": {"search_value": -2.0}}, False),  # it looked for something else
])
def test_a_search_that_has_not_levelled_off_is_named_where_a_difference_is_smaller(attempt, about, is_said):
    """Pairs of 40, 42, 44 and 60: one has 42 as its higher one, two 44, three 60: 51.7, so 8.3 below 60."""
    board = build(compared(attempt, **about), baseline="lmh")
    said = [step for step in to_know(board) if "longer searches" in step]
    assert len(said) == is_said
    assert not said or ("of lmh would have ended 8.3 points lower" in said[0] and "lseh" not in said[0])


def test_losses_without_a_search_are_not_asked_to_search_longer(attempt):
    board = build([attempt(loss, seed=seed) for loss in ("lmh", "lseh") for seed in (1, 2)], baseline="lmh")
    assert not any("longer searches" in step for step in to_know(board))


def tasks(attempt, **epochs_of_lseh):
    """On every network three new seeds of lmh get to 60 after three of six validations, lseh when told (0: never)."""
    found = []
    for network, when in epochs_of_lseh.items():
        for seed in (1, 2, 3):
            found.append(attempt("lmh", [40, 50, 60, 59, 58, 57], seed=seed, network=network, phase="confirm", gap=1.0))
            curve = [50 if step + 1 < when or when == 0 else 61 - 0.1 * step for step in range(6)]
            found.append(attempt("lseh", curve, seed=seed, network=network, phase="confirm", gap=1.0))
    return found


def test_profiles_are_over_the_tasks_that_all_losses_have(attempt):
    attempts = tasks(attempt, vsepp=1, vsrn=6, scan=0)
    once = [attempt(loss, [70.0] * 6, seed=1, gap=1.0, phase="confirm") for loss in ("lsh", "top_f")]
    board = build([*attempts, *once], baseline="lmh")
    profile = board.profile
    by_loss = {each.loss: each for each in profile.losses}
    assert profile.tasks == (("scenes", "vsepp"), ("scenes", "vsrn"), ("scenes", "scan"))
    assert by_loss["lmh"].factors == (3, 1, 1)
    assert by_loss["lseh"].factors == (1, 2, math.inf)
    assert by_loss["lseh"].steps == ((1, pytest.approx(1 / 3)), (2, pytest.approx(2 / 3)))
    assert by_loss["lmh"].score == pytest.approx((1 + 3 + 3) / 9)
    assert profile.left_out == ("lsh, top_f: vsrn on scenes (not run), scan on scenes (not run)",)
    assert [each.loss for each in profile.losses] == ["lmh", "lseh"]
    text = printed(board)
    assert "Share of 3 tasks on which a loss is at the best of lmh" in text
    assert "Not in it: lsh, top_f" in text
    plain = json.loads(to_json(board))
    assert plain["profile"]["losses"][1]["factors"] == [1, 2, "Infinity"]
    assert [row["is_on_front"] for row in plain["rows"]] == [row.is_on_front for row in board.rows]


@pytest.mark.parametrize(("share", "factors"), [
    (0.25, {"lmh": 3, "lseh": 1}), (0.5, {"lmh": 1.5, "lseh": 1}), (0.51, {"lmh": 1, "lseh": 4 / 3}),
    (0.75, {"lmh": 1, "lseh": 4 / 3}), (1.0, {"lmh": 1, "lseh": math.inf}),
])
def test_a_loss_is_there_when_the_stated_share_of_its_seeds_is(attempt, share, factors):
    """Four seeds of lmh get to 60 after three epochs, those of lseh after 1, 2, 4 and never: with a quarter of them
    lseh takes 1 epoch, with half 2, with more 4, and all of them never get there."""
    reached = dict(zip((1, 2, 3, 4), (1, 2, 4, 9), strict=True))
    attempts = [
        attempt("lmh", [40, 50, 60, 59, 58, 57], seed=seed, network=network, phase="confirm", gap=1.0)
        for network in ("vsepp", "vsrn") for seed in reached
    ]
    attempts += [
        attempt("lseh", [61 if epoch >= when else 50 for epoch in range(1, 7)], seed=seed, network=network,
                phase="confirm", gap=1.0)
        for network in ("vsepp", "vsrn") for seed, when in reached.items()
    ]
    board = build(attempts, baseline="lmh", hit_share=share)
    assert board.profile.hit_share == share
    for each in board.profile.losses:
        assert each.factors == pytest.approx((factors[each.loss],) * 2)
    told = f"a loss is there when {100 * share:.3g} % of its seeds are"
    assert told in " ".join(printed(board).split())
    assert f"there with {100 * share:.3g} % of the seeds" in profile_chart(board.profile, "lmh")["aside"]
    assert json.loads(to_json(board))["profile"]["hit_share"] == share


def test_a_task_whose_baseline_still_rose_and_seeds_that_searched_are_in_no_profile(attempt):
    rising = [
        attempt(loss, [40, 50, 60, 61, 62, 63], seed=seed, network="vsrn", phase="confirm", gap=1.0)
        for loss in ("lmh", "lseh") for seed in (1, 2)
    ]
    board = build([*tasks(attempt, vsepp=1), *rising], baseline="lmh")
    assert board.profile.tasks == (("scenes", "vsepp"),)
    assert board.profile.left_out == ("vsrn on scenes: lmh was still rising when it ended",)
    searching = [attempt(loss, configuration=place) for loss in ("lmh", "lseh") for place in (0, 1)]
    assert build(searching, baseline="lmh").profile is None


def timed(attempt, *, seconds, hardware="one CPU", **epochs_of_lseh):
    """`tasks` with the seconds of an epoch of lmh and lseh, and what they ran on."""
    return [
        replace(
            each, summary={"seconds_per_epoch": seconds[each.start.loss]}, start=replace(each.start, environment={
                "device": "cpu", "processor": hardware if each.start.loss == "lseh" else "one CPU", "threads": "1",
            }),
        )
        for each in tasks(attempt, **epochs_of_lseh)
    ]


def test_profiles_by_seconds_take_the_pace_of_every_seed(attempt):
    """On vsepp lseh needs 1 of 3 epochs at four times the seconds, on vsrn 6: 4 / 3 and 8 times as long."""
    board = build(timed(attempt, seconds={"lmh": 10.0, "lseh": 40.0}, vsepp=1, vsrn=6), baseline="lmh")
    assert (board.profile.unit, board.seconds_profile.unit) == ("epochs", "seconds")
    by_loss = {each.loss: each.factors for each in board.seconds_profile.losses}
    assert by_loss == {"lmh": (1, 1), "lseh": pytest.approx((4 / 3, 8))}
    assert {each.loss: each.factors for each in board.profile.losses} == {"lmh": (3, 1), "lseh": (1, 2)}
    text = " ".join(printed(board).split())
    assert "within a factor of the seconds of training of the fastest loss" in text
    assert "Seconds are epochs at the pace of the seed's whole training" in text


def test_seconds_that_were_not_recorded_or_are_of_different_hardware_are_not_compared(attempt):
    assert build(tasks(attempt, vsepp=1, vsrn=6), baseline="lmh").seconds_profile is None
    attempts = timed(attempt, seconds={"lmh": 1.0, "lseh": 1.0}, hardware="another", vsepp=1)
    board = build(attempts, baseline="lmh")
    assert (board.profile is None, board.seconds_profile) == (False, None)
    third = [replace(each, start=replace(each.start, loss="lsh", cell="vsepp.lsh", trial=f"lsh-s{each.start.seed}"))
             for each in timed(attempt, seconds={"lmh": 1.0, "lseh": 1.0}, vsepp=1) if each.start.loss == "lseh"]
    profile = build([*attempts, *third], baseline="lmh").seconds_profile
    assert [each.loss for each in profile.losses] == ["lsh", "lmh"]
    assert profile.left_out == (
        "lseh: vsepp on scenes (trained on different hardware: one CPU, 1 thread; another, 1 thread)",
    )


def test_a_profile_is_drawn_up_to_its_largest_factor(attempt):
    """On vsrn lseh takes 6 times the epochs of lmh: the line ends at 4 with what is within 4, it does not turn back."""
    attempts = [
        attempt(loss, curve, seed=seed, network=network, phase="confirm", gap=1.0)
        for network, first in (("vsepp", "lmh"), ("vsrn", "lseh")) for seed in (1, 2)
        for loss, curve in (
            ("lmh", [60, 50, 49, 48, 47, 46]), ("lseh", [61 if first == "lmh" else 40, 41, 42, 43, 44, 61]),
        )
    ]
    board = build(attempts, baseline="lmh")
    assert {each.loss: each.factors for each in board.profile.losses} == {"lmh": (1, 1), "lseh": (1, 6)}
    lines = {line["loss"]: line["steps"] for line in profile_chart(board.profile, board.baseline)["lines"]}
    assert lines["lseh"] == [(1.0, 0.0), (1.0, 0.5), (4.0, 0.5)]
    assert lines["lmh"] == [(1.0, 0.0), (1.0, 1.0), (4.0, 1.0)]
