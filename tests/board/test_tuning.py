"""What boards say of searches that had ended sooner, and of many tasks at once."""

from __future__ import annotations

import re
import statistics
from itertools import combinations

import pytest

from vsetune.board.board_notes import notes
from vsetune.board.board_sentences import to_know
from vsetune.board.building import build

BESTS = (50.0, 58.0, 0.0, 61.0, 55.0)


def searched(attempt, loss="lmh"):
    """Five configurations: the third one failed after a validation, the fifth was stopped after half of its epochs."""
    curves = ([40, 50, 49, 48], [41, 52, 58, 57], [70], [45, 55, 60, 61], [50, 55])
    statuses = ("finished", "finished", "failed", "finished", "pruned")
    return [
        attempt(loss, curve, configuration=place, status=status)
        for place, (curve, status) in enumerate(zip(curves, statuses, strict=True))
    ]


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


def test_notes_say_what_fewer_trials_would_have_found_where_four_were_tried(attempt):
    """Of pairs 1 has 50 as its higher one, 2 have 55, 3 have 58 and 4 have 61: 57.8."""
    (note,) = (note for note in notes(build(searched(attempt), baseline="lmh")) if ": expected best" in note)
    assert note.startswith("vsepp lmh: expected best of a search that had ended earlier: 44.8 (")
    assert re.findall(r"([\d.]+) (?:\([\d.–]*\) )?after (\w+|.)", note) == [
        ("44.8", "1"), ("57.8", "2"), ("60.4", "4"), ("55.2", "¼"), ("58.4", "½"), ("61.0", "all"),
    ]
    assert not any("xpected best" in note for note in notes(build(searched(attempt)[:2], baseline="lmh")))


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
    assert not said or (said[0].endswith("lower, by points: lmh 8.3"))


def test_losses_without_a_search_are_not_asked_to_search_longer(attempt):
    board = build([attempt(loss, seed=seed) for loss in ("lmh", "lseh") for seed in (1, 2)], baseline="lmh")
    assert not any("longer searches" in step for step in to_know(board))
