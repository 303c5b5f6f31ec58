"""Two short tables of a board in words: the expected best of shorter searches, and performance profiles."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from vsetune.leaderboard import wording
from vsetune.leaderboard.rows import Leaderboard, Row
from vsetune.leaderboard.time_profile import LossProfile, TimeProfile
from vsetune.metrics.best_of_k import BAND, ExpectedBest, TuningCurves

_TRIALS = 4
"""Fewest trials of a search for a row in the table."""
_COUNTS = 5
_PARTS = {"¼ of epochs": 0.25, "½ of epochs": 0.5}
_TAUS = (1.0, 1.25, 1.5, 2.0, 4.0)
_SECONDS = (
    "Seconds are epochs at the pace of the seed's whole training, without validations, on one hardware; what ran "
    "beside it is in them."
)


@dataclass(frozen=True)
class WordTable:
    """A table of words. headings, rows: of equal length. notes: one line each, below the table."""

    title: str
    headings: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    notes: tuple[str, ...]


def tuning_table(board: Leaderboard) -> WordTable | None:
    """A row per search with at least four trials; None without such a search."""
    searched = [(row, row.tuning) for row in board.rows if row.tuning is not None and row.tuning.trials >= _TRIALS]
    if not searched:
        return None
    counts = _counts(max(tuning.trials for _, tuning in searched))
    headings = ("loss", "trials", *(f"{count} trial{'s' if count > 1 else ''}" for count in counts), *_PARTS, "all")
    rows = [_tuning_row(row, tuning, counts) for row, tuning in searched]
    places = [(row.dataset, row.network) for row, _ in searched]
    title = "Expected best of a search that had ended sooner, M-Recall in per cent"
    if len(set(places)) == 1:  # a narrow terminal has no room for it in every row
        title += f", {searched[0][0].network} on {searched[0][0].dataset}"
    else:
        headings = ("data", "network", *headings)
        rows = [(*place, *row) for place, row in zip(places, rows, strict=True)]
    return WordTable(
        title, headings, tuple(rows), (
            f"Expected best: mean over all orders of the recorded trials, and where it lies in {100 * BAND:.0f} % of "
            "these orders, which is no interval for another search. Of a sampler that learns from its trials it tells "
            "less than of one that does not. Validation, by the seed that searched: a maximum, and optimistic.",
        ),
    )


def profile_table(profile: TimeProfile | None, baseline: str) -> WordTable | None:
    """A row per loss; None for fewer than two tasks, where Difference gives the same information."""
    if profile is None or len(profile.tasks) < 2:
        return None
    counted = "epochs" if profile.unit == "epochs" else "seconds of training"
    return WordTable(
        f"Share of {len(profile.tasks)} tasks on which a loss is at the best of {baseline} within a factor of "
        f"the {counted} of the soonest loss",
        ("loss", *(f"{tau:g}×" for tau in _TAUS), "score", "seeds"),
        tuple(_profile_row(each) for each in profile.losses), (
            f"A task is a network on a data set; a loss is there when {profile.hit_words} of its seeds "
            f"are. Score: mean share from 1 to {profile.largest_factor:g}×. As measured, not tested.",
            *([_SECONDS] if profile.unit == "seconds" else []),
            *(f"Not in it: {each}." for each in profile.left_out),
        ),
    )


def _counts(trials: int) -> list[int]:
    """Powers of two below the number of trials, every second one if there are many; the last column has all trials."""
    powers = [2**power for power in range(trials.bit_length()) if 2**power < trials]
    return powers if len(powers) <= _COUNTS else powers[::2]


def _tuning_row(row: Row, tuning: TuningCurves, counts: Sequence[int]) -> tuple[str, ...]:
    known = {int(each.at): each for each in tuning.after_trials}
    end = tuning.after_epochs[-1]
    parts = [_at(tuning.after_epochs, share * end.at) for share in _PARTS.values()]
    return (
        row.loss, str(tuning.trials),
        *(_words(known[count]) if count in known else wording.NOTHING for count in counts), *map(_words, parts),
        f"{wording.fixed(end.mean, 1)} ({wording.fixed(end.at, 1)} epochs)",
    )


def _at(points: Sequence[ExpectedBest], epochs: float) -> ExpectedBest:
    return min(points, key=lambda each: abs(each.at - epochs))


def _words(each: ExpectedBest) -> str:
    """`58.1 (55.0–60.2)`: in parentheses, because square brackets mark intervals on boards."""
    return f"{wording.fixed(each.mean, 1)} ({wording.fixed(each.low, 1)}–{wording.fixed(each.high, 1)})"


def _profile_row(each: LossProfile) -> tuple[str, ...]:
    shares = [max((share for tau, share in each.steps if tau <= limit), default=0.0) for limit in _TAUS]
    return (
        each.loss, *(f"{wording.fixed(100 * share, 0)} %" for share in shares), wording.fixed(each.score, 2),
        str(each.seeds),
    )
