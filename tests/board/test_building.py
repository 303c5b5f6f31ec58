import pytest
from board_attempts import BASELINE, NEW, row_of
from refusals import refused

from vsetune.board.board_notes import notes
from vsetune.board.building import build
from vsetune.board.pareto_front import pareto_front
from vsetune.board.selection import cost_of, winner_of
from vsetune.board.wording import difference_of
from vsetune.errors import UsageError
from vsetune.metrics.seed_statistics import Epochs
from vsetune.records.state import trials_of


def test_the_worked_example_gives_its_difference(pair):
    board = build(pair, baseline="lmh")
    row = row_of(board, "lseh")
    assert (row.best_m_recall, row.epochs_to_best, row.resolution_epochs) == (61.5, 3.0, 0.5)
    assert row.epochs_to_target == Epochs(2.0, censored=False)
    assert (row.difference.percent, row.difference.is_lower_bound) == (pytest.approx(-100 / 3, abs=1e-6), False)
    assert row.seconds_per_epoch == pytest.approx(20.0)
    row = row_of(board, "lmh")
    assert (row.epochs_to_target, row.difference, row.flags) == (Epochs(3.0, censored=False), None, ())


def test_a_target_never_reached_gives_a_lower_bound_and_a_flag(attempt):
    row = row_of(build([attempt("lmh"), attempt("lseh", NEW[:3])], baseline="lmh"), "lseh")
    assert row.epochs_to_target == Epochs(1.5, censored=True)
    found = row.difference
    assert (found.percent, found.is_lower_bound, found.censored_share) == (None, True, 1.0)
    assert "censored" in row.flags
    assert difference_of(row) == "not reached"


def test_the_front_has_what_no_other_beats_in_both_m_recall_and_epochs(attempt):
    attempts = [
        attempt("lmh", [50, 55, 60, 59]), attempt("lseh", [50, 61, 60, 60]), attempt("lsh", [50, 60, 59, 63]),
        attempt("top_f", [50, 58, 60, 61]), attempt("irtm", [59]),
    ]
    assert [row.loss for row in pareto_front(build(attempts, baseline="lmh").rows)] == ["lsh"]  # as fast as lseh
    attempts = [attempt("lmh", [50, 60, 59]), attempt("lseh", [61, 60, 60]), attempt("lsh", [50, 60, 63])]
    board = build(attempts, baseline="lmh")
    assert [row.loss for row in pareto_front(board.rows)] == ["lseh", "lsh"]
    assert not any("Pareto" in note for note in notes(board)), "nothing is claimed of one seed"
    claimed = [
        attempt(loss, [*recalls[:2], recalls[2] + seed / 10], seed=seed) for seed in range(5)
        for loss, recalls in (("lmh", [50, 60, 60.2]), ("lseh", [61, 60, 60]), ("lsh", [50, 60, 63]))
    ]
    noted = notes(build(claimed, baseline="lmh"))
    assert any("(the Pareto front, untested): lseh (0.50 epochs to the best of lmh, " in note for note in noted)


@pytest.mark.parametrize("other", [{"seed": 5}, {"network": "other"}])
def test_a_seed_or_network_that_the_baseline_never_ran_has_no_difference(attempt, other):
    row = row_of(build([attempt("lmh"), attempt("lseh", NEW, **other)], baseline="lmh"), "lseh",
                 other.get("network", "vsepp"))
    assert (row.best_m_recall, row.difference, row.epochs_to_target, row.flags) == (61.5, None, None, ("no_pairs",))


def test_the_latest_attempt_of_a_trial_counts(attempt):
    attempts = [attempt(recalls=[50, 90], status="failed"), attempt(recalls=[50, 55, 57], number=2)]
    row = row_of(build(attempts, baseline="lmh"), "lmh")
    assert row.best_m_recall == 57.0
    assert (row.trials, row.attempts, dict(row.counts)) == (1, 2, {"failed": 1, "finished": 1})


def test_failed_killed_and_pruned_attempts_are_counted_and_charged(attempt):
    attempts = [
        attempt(configuration=0), attempt(configuration=1, recalls=[10, 11], status="pruned"),
        attempt(configuration=2, recalls=[10], status="failed"),
        attempt(configuration=3, recalls=[1, 2, 3], status="killed", summary={"train_seconds": 7.0}),
    ]
    row = row_of(build(attempts, baseline="lmh"), "lmh")
    assert dict(row.counts) == {"finished": 1, "pruned": 1, "failed": 1, "killed": 1}
    assert row.cost.epochs == pytest.approx(4 + 1 + 0.5 + 1.5)
    assert row.cost.device_seconds == pytest.approx(30 * (4 + 1 + 0.5) + 7)


@pytest.mark.parametrize(("first", "again", "cost"), [
    ([10, 20], ([10, 20, 30, 40], 70.0, 0.25), (2.25, 70.0, 0.25)),  # goes on from a checkpoint
    ([10, 20], ([11, 21, 31], 75.0, 1.0), (2.5, 75.0, 1.0)),  # begins again; its seconds include those of the first
])
def test_epochs_inherited_from_a_checkpoint_are_charged_once_and_lost_ones_in_full(attempt, first, again, cost):
    recalls, seconds, wasted = again
    attempts = [
        attempt(recalls=recalls, number=2, summary={"device_seconds": seconds, "wasted_epochs": wasted}),
        attempt(recalls=first, status="killed", summary={"device_seconds": 30.0}),
    ]
    found = row_of(build(attempts, baseline="lmh"), "lmh").cost
    assert (found.epochs, found.device_seconds, found.wasted_epochs) == cost


def test_an_attempt_that_died_before_its_first_validation_charges_no_second_twice(attempt):
    """The store knows of it what it inherited: fewer seconds than the attempt before had used."""
    lives = [attempt(recalls=[10, 20, 30], status="killed", summary={"device_seconds": 30.0}),
             attempt(recalls=[10], number=2, status="killed", summary={"device_seconds": 10.0}),
             attempt(recalls=[10, 20, 30, 40], number=3, summary={"device_seconds": 60.0})]
    assert cost_of(trials_of(lives)).device_seconds == 60.0


def test_money_is_the_time_of_each_attempt_at_the_price_of_its_node(attempt):
    first = attempt(recalls=[10, 20], status="killed", summary={"device_seconds": 1800.0}, usd_per_hour=4)
    again = attempt(recalls=[10, 20, 30], number=2, summary={"device_seconds": 5400.0}, usd_per_hour=2)
    assert cost_of(trials_of([first, again])).usd == pytest.approx(0.5 * 4 + 1.0 * 2)
    never_started = attempt(configuration=1, recalls=[], status="failed", summary={})
    assert cost_of(trials_of([first, again, never_started])).usd == pytest.approx(4.0)
    unpriced = attempt(configuration=2, summary={"device_seconds": 1.0})
    partly = cost_of(trials_of([first, again, unpriced]))
    assert (partly.usd, partly.unpriced_seconds, partly.whole_usd) == (pytest.approx(4.0), 1.0, None)


@pytest.mark.parametrize(
    ("lives", "wasted"),
    [
        ([([10, 20, 30], {})], 0.0),
        ([([10, 20], {}), ([10, 20, 30], {"wasted_epochs": 0.25})], 0.25),
        ([([10, 20], {}), ([10, 21, 30], {"wasted_epochs": 0.5})], 0.5),  # told, and seen in a curve that differs: once
        ([([10, 20], {}), ([11, 21, 30], {})], 1.0),
        ([([10], {}), ([10, 20], {"wasted_epochs": 0.25}), ([11, 21, 30], {})], 1.25),
        ([([10], {}), ([10], {}), ([10, 20, 30], {"wasted_epochs": 0.5})], 0.5),
        ([([10, 20], {}), ([], {}), ([10, 20, 30], {"wasted_epochs": 0.1})], 0.1),
    ],
)
def test_a_budget_is_charged_with_what_an_undisturbed_trial_costs(attempt, lives, wasted):
    attempts = [
        attempt(recalls=recalls, number=number, status="killed", summary=summary)
        for number, (recalls, summary) in enumerate(lives, 1)
    ]
    cost = cost_of(trials_of(attempts))
    assert (cost.budget_epochs, cost.wasted_epochs, cost.epochs) == pytest.approx((1.5, wasted, 1.5 + wasted))


def test_what_was_lost_changes_no_bit_of_what_a_budget_is_charged_with(attempt):
    """Else an interrupted study could ask for another trial than an undisturbed one, and its board says 37.99999999."""
    charged = set()
    for wasted in (0.0, 0.1, 1 / 3, 2 / 7, 0.7, 5 / 42, 8 / 42):
        trials = [
            attempt(configuration=number, recalls=[10.0] * number, summary={"wasted_epochs": wasted * number})
            for number in range(1, 9)
        ]
        charged.add(cost_of(trials_of(trials)).budget_epochs)
    assert charged == {sum(number * 0.5 for number in range(1, 9))}


def test_the_winner_is_the_best_that_finished_and_of_equals_the_earlier_configuration(attempt):
    attempts = [
        attempt(configuration=0, recalls=[50, 51]), attempt(configuration=1, recalls=[60, 70], status="pruned"),
        attempt(configuration=2, recalls=[80], status="killed"),
        attempt(configuration=3, recalls=[52], status="running"),
    ]
    assert winner_of(trials_of(attempts)) is attempts[0]
    assert winner_of(trials_of(attempts[1:])) is attempts[2]
    assert row_of(build(attempts[1:], baseline="lmh"), "lmh").flags[0] == "incomplete"
    equals = [attempt(configuration=10, recalls=[50]), attempt(configuration=2, recalls=[10, 50])]
    for read in (equals, equals[::-1]):
        assert winner_of(trials_of(read)) is equals[1]


def test_a_failed_trial_never_represents_its_cell_which_has_its_cost_all_the_same(attempt):
    attempts = [attempt(configuration=0, recalls=[50]), attempt(configuration=1, recalls=[99], status="failed")]
    assert row_of(build(attempts, baseline="lmh"), "lmh").best_m_recall == 50.0
    attempts = [attempt("lmh"), attempt("lseh", [40], status="failed"), attempt("lseh", [], configuration=1)]
    row = row_of(build(attempts, baseline="lmh"), "lseh")
    assert (row.best_m_recall, row.seeds, row.difference, row.flags) == (None, (), None, ("no_result",))
    assert row.cost.epochs == 0.5


def test_a_failed_seed_and_an_unfinished_one_are_flagged(attempt):
    attempts = [
        attempt(status="running"), attempt(seed=1, phase="confirm", recalls=[9], status="failed"),
        attempt(seed=2, phase="confirm"),
    ]
    row = row_of(build(attempts, baseline="lmh"), "lmh")
    assert [seed.seed for seed in row.seeds] == [0, 2]
    assert {"seed_failed", "incomplete"} <= set(row.flags)


def test_a_seed_that_still_trains_is_not_in_the_numbers_of_those_that_have_ended(attempt):
    searched = [attempt(configuration=0, recalls=[40, 62]), attempt(configuration=1, recalls=[30, 40])]
    ended = attempt(seed=1, phase="confirm", recalls=[50, 60])
    training = attempt(seed=2, phase="confirm", recalls=[3], status="running")
    row = row_of(build([*searched, ended, training], baseline="lmh"), "lmh")
    assert (row.best_m_recall, row.best_m_recall_std, row.epochs_to_best) == (60, None, 1.0)
    assert [seed.seed for seed in row.seeds] == [0, 1, 2]
    assert "incomplete" in row.flags
    row = row_of(build([*searched, training], baseline="lmh"), "lmh")
    assert row.best_m_recall == 62
    assert {"incomplete", "chosen_by_itself"} <= set(row.flags)
    assert row_of(build([training], baseline="lmh"), "lmh").best_m_recall == 3


def test_a_collapsed_baseline_is_flagged_on_every_row(attempt):
    board = build([attempt("lmh", [0.5, 0.4]), attempt("lseh", NEW)], baseline="lmh")
    assert all("baseline_collapsed" in row.flags for row in board.rows)
    for row in board.rows:
        assert (row.difference, row.comparison, row.epochs_to_target, row.epochs_bounds) == (None, None, None, None)
        assert not {"baseline_rising", "no_pairs", "censored"} & set(row.flags)
    collapse = row_of(board, "lseh").collapse
    assert (collapse.m_recall, collapse.other, collapse.other_m_recall) == (0.5, "lseh", 61.5)


def test_a_baseline_that_ends_at_chance_collapsed_whatever_the_others_reach(attempt):
    split = {"images": 1000, "captions": 5000}
    board = build([attempt("lmh", [1.2, 1.0], **split), attempt("lseh", [2.0, 1.9], **split)], baseline="lmh")
    collapse = row_of(board, "lseh").collapse
    assert (collapse.last, collapse.chance) == (1.0, pytest.approx(0.533, abs=0.001))
    fewer = split | {"validation_images": 100}
    board = build([attempt("lmh", [12, 11], **fewer), attempt("lseh", [13, 14], **fewer)], baseline="lmh")
    assert row_of(board, "lseh").collapse is None
    assert row_of(board, "lseh").difference is not None


def test_one_seed_of_a_baseline_that_collapsed_takes_the_comparison_from_all(attempt):
    seeds = [attempt(loss, curve, seed=seed, phase="confirm") for loss, curves in (
        ("lmh", (BASELINE, [9, 8], BASELINE)), ("lseh", (NEW, NEW, NEW))) for seed, curve in enumerate(curves)]
    collapse = row_of(build(seeds, baseline="lmh"), "lseh").collapse
    assert (collapse.m_recall, collapse.seeds, collapse.of_seeds, collapse.has_ended) == (9, 1, 3, True)


def test_what_was_taken_under_another_protocol_is_shown_with_the_reason_and_not_compared(attempt):
    attempts = [
        attempt("lmh"), attempt("lseh", NEW, batch_unit="images"), attempt("lsh", NEW[:3]),
        attempt("top_f", [90], gap=9),
    ]
    board = build(attempts, baseline="lmh")
    assert [row.loss for row in board.rows] == ["lmh", "lsh", "top_f", "lseh"], "what does not compare stands last"
    images, gap = row_of(board, "lseh"), row_of(board, "top_f")
    assert "lmh-c0-s0 against scenes.vsepp.lseh-c0-s0: protocol: batch_unit is absent in one" in images.not_comparable
    assert "one curve was validated every 9 epochs, the other every 0.5" in gap.not_comparable
    for row in (images, gap):
        assert (row.flags, row.difference, row.epochs_to_target) == (("not_comparable",), None, None)
    assert images.best_m_recall == 61.5
    assert row_of(board, "lsh").difference.is_lower_bound
    assert row_of(board, "lmh").flags == (), "90 % of another protocol collapse nothing"


def test_a_cell_whose_own_trials_differ_in_protocol_is_not_compared(attempt):
    """The configurations were not chosen under one protocol, whichever of them is shown."""
    other = attempt("lseh", configuration=1, recalls=[1], images=1000)
    row = row_of(build([attempt("lmh"), attempt("lseh", NEW), other], baseline="lmh"), "lseh")
    assert "lseh-c0-s0 against scenes.vsepp.lseh-c1-s0: protocol: images is 400" in row.not_comparable


def test_a_baseline_that_does_not_compare_with_itself_leaves_no_pairs(attempt):
    attempts = [attempt("lmh"), attempt("lmh", [1], configuration=1, images=1000), attempt("lseh", NEW)]
    board = build(attempts, baseline="lmh")
    assert row_of(board, "lmh").not_comparable
    assert row_of(board, "lseh").flags == ("no_pairs",)


def searched(attempt, loss, recalls, *, confirmed=()):
    """A cell of two configurations, the second the winner, and its confirming seeds from 1."""
    return [
        attempt(loss, [1, 2]), attempt(loss, recalls, configuration=1),
        *(attempt(loss, curve, configuration=1, seed=seed, phase="confirm") for seed, curve in enumerate(confirmed, 1)),
    ]


def test_a_winner_that_nothing_confirmed_is_flagged_as_chosen_by_itself(attempt):
    failed = attempt("lmh", [5], configuration=1, seed=1, phase="confirm", status="failed")
    row = row_of(build([*searched(attempt, "lmh", [70, 80, 75]), failed], baseline="lmh"), "lmh")
    assert (row.best_m_recall, row.flags) == (80.0, ("seed_failed", "chosen_by_itself"))


def test_seeds_are_paired_where_both_count(attempt):
    """The baseline was not searched: its seed 0 counts, and has no partner in the other's confirming seeds."""
    baseline = [attempt("lmh", [50, 49], seed=seed, phase=phase) for seed, phase in ((0, "search"), (1, "confirm"))]
    row = row_of(build([*baseline, *searched(attempt, "lseh", [90, 91], confirmed=[[51, 50]])], baseline="lmh"), "lseh")
    assert row.difference.pairs == 1


def test_no_attempts_and_a_baseline_that_was_not_run_are_refused(pair):
    with refused("VSE-B001", by=UsageError):
        build([], baseline="lmh")
    with refused("VSE-B002", by=UsageError, baseline="lhm", losses="lmh, lseh"):
        build(pair, baseline="lhm")


def test_the_order_of_attempts_does_not_matter(attempt):
    attempts = [attempt("lmh"), attempt("lseh", NEW), attempt("lseh", NEW[:2], configuration=1, status="pruned")]
    assert build(attempts, baseline="lmh") == build(attempts[::-1], baseline="lmh")


def test_a_network_that_is_not_trained_is_shown_without_claims_and_changes_none(attempt):
    trained = [
        attempt(loss, [first, best + seed / 10, last], seed=seed) for seed in range(5)
        for loss, first, best, last in (("lmh", 25, 30, 29), ("lseh", 31, 32, 31), ("lsh", 20, 25, 24))
    ]
    zero_shot = attempt("zero_shot", [80], gap=0.0, summary={"train_seconds": 0.0, "test_m_recall": 79.0})
    board, without = (build(each, baseline="lmh") for each in ([*trained, zero_shot], trained))
    row = row_of(board, "zero_shot")
    assert (row.best_m_recall, row.test_m_recall, row.epochs_to_best) == (80.0, 79.0, 0.0)
    assert (row.seconds_per_epoch, row.epochs_to_target, row.difference, row.comparison) == (None,) * 4
    assert (row.resolution_epochs, row.collapsed_seeds, row.flags) == (None, 0, ("untrained",))
    assert [each for each in board.rows if each.is_trained] == list(without.rows), "though it has twice their best"
    with refused("VSE-B024", by=UsageError):
        build([*trained, zero_shot], baseline="zero_shot")
    (row,) = build([zero_shot], baseline="zero_shot").rows
    assert (row.comparison, row.collapse) == (None, None)
