"""The steps to a row's numbers end at these numbers."""

from __future__ import annotations

import pytest

from vsetune.report.arithmetic import steps
from vsetune.report.building import build

RISE = (30, 45, 54, 58)


@pytest.fixture
def board(attempt):
    """Six seeds: the baseline best at epoch 3, lseh there at epoch 2, but for the last seed, which never is."""
    runs = []
    for seed in range(6):
        runs.append(attempt("lmh", [*RISE, 59, 60 + 0.1 * seed, 59, 59], seed=seed))
        lseh = [*RISE[1:], 61 + 0.1 * seed, 62, 61, 61] if seed < 5 else [*RISE, 58, 58.5, 58, 57]
        runs.append(attempt("lseh", lseh, seed=seed))
    return build([*runs, attempt("lsh", [1, 2], status="failed")], baseline="lmh")


def lines_of(board, loss):
    row = next(row for row in board.rows if row.loss == loss)
    return row, {step.title: list(step.lines) for step in steps(row, board)}


def test_every_step_of_a_compared_row_is_told(board):
    """Order statistics of six: (0.96875 - 0.95) / 0.1875 = 0.1, and 5 x 0.1 / (1 + 4 x 0.1) = 0.357143."""
    row, told = lines_of(board, "lseh")
    assert told["best M-Recall"][0] == (
        "mean of seeds 0, 1, 2, 3, 4, 5: (62 + 62 + 62 + 62 + 62 + 58.5) / 6 = 61.4167"
    )
    assert f"{row.m_recall_bounds[0]:.6g} to {row.m_recall_bounds[1]:.6g}" in told["best M-Recall"][-1]
    assert told["M-Recall over lmh"][0] == "seed 0: 62 - 60 = 2"
    assert told["M-Recall over lmh"][-2].startswith("higher in 5 of 6 seeds, 0.833333; ")
    assert f"after Holm, among 1 comparison: {row.comparison.height_p:.6g}" in told["M-Recall over lmh"][-3]
    assert told["epochs to the best of lmh"][5:] == [
        "seed 5: target 60.5 of scenes.vsepp.lmh-c0-s5: not reached in 4 epochs",
        "share not there yet after 2 epochs: 0.166667",
        "median (Kaplan-Meier): 2",
        "95 % interval of the median of 6: value 1 from either end, and 0.357143 of the way to the next: 2 to inf",
    ]
    assert told["Difference"][0] == "seed 0: 100 (2 - 3) / 3 = -33.3333 %"
    assert told["Difference"][-1] == "not tested"
    assert told["cost"][0] == "seconds per epoch: median of 20, 20, 20, 20, 20, 20 = 20"
    assert told["cost"][1].startswith("charged: all 6 attempts (6 finished) at 6 trials")


def test_a_baseline_is_compared_with_nothing_and_a_failed_row_has_its_cost(board):
    assert list(lines_of(board, "lmh")[1]) == [
        "best M-Recall", "epochs to best, to level", "epochs to the best of lmh", "cost",
    ]
    assert list(lines_of(board, "lsh")[1]) == ["cost"]
