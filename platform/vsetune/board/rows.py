"""Contents of a leaderboard, as plain frozen data."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from vsetune.board.search_budgets import SearchBudget, total_budget
from vsetune.board.seed_results import RECALLS, TEST, Contender, SeedResult, headline_of, observations
from vsetune.metrics.best_of_k import TuningCurves
from vsetune.metrics.curves import is_trained
from vsetune.metrics.efficiency import SeedDifference
from vsetune.metrics.repeated_searches import Spread
from vsetune.metrics.seed_statistics import LEVEL, Epochs
from vsetune.records.events import AttemptStatus

Answer = Literal[
    "supported", "contradicted", "undecided", "one search", "search failed", "too few seeds", "cut short",
]
"""Answer to two claims: the loss has a higher M-Recall, or needs fewer epochs to the target.

supported: the claim is significant, corrected for all comparisons of the board. contradicted: the opposite is
significant. undecided: neither is significant. one search: a tuned loss has fewer than three searches with fresh seeds,
which hold no information on the next search. search failed: every trial of a search failed, so the other searches are a
favourable choice. too few seeds: no outcome could be significant. cut short: seeds were trained only until they reached
a target, so their M-Recall is no best.
"""
ALPHA = 0.05
"""Family-wise error rate over all comparisons of a board, separately for each claim."""

Bounds = tuple[float, float]


@dataclass(frozen=True)
class Collapse:
    """A baseline that collapsed (`metrics.is_collapsed`), so that nothing can be compared with it.

    m_recall, last: best and last M-Recall of its worst collapsed seed, per cent. other, other_m_recall: the loss with
    the highest M-Recall of any seed, on the same network and data, and that M-Recall. chance: M-Recall of random
    orders, None where the split is not recorded. seeds: collapsed seeds of the baseline, out of `of_seeds`. has_ended:
    all seeds of the baseline have been trained to their end.
    """

    m_recall: float
    last: float
    other: str
    other_m_recall: float
    chance: float | None
    seeds: int
    of_seeds: int
    has_ended: bool


@dataclass(frozen=True)
class TargetShare:
    """Epochs to a share of the baseline's mean best M-Recall, as measured.

    share: 0 to 1. target: M-Recall in per cent. percent: epochs of the loss beyond those of the baseline, in per cent
    of these, by mean logarithms; None without fresh seeds, and where it would say nothing. missed, baseline_missed:
    fresh seeds of the loss and of the baseline, out of `seeds` and `baseline_seeds`, that never reach the target. They
    count with their last epoch: seeds of the loss make percent a lower bound, those of the baseline an upper one.
    """

    share: float
    target: float
    percent: float | None
    missed: int
    baseline_missed: int
    seeds: int
    baseline_seeds: int


@dataclass(frozen=True)
class Comparison:
    """A loss and the baseline, over seeds that were trained to their end and did not choose the configuration.

    by_search: either loss was tuned, so that a search is one observation (its mean over fresh seeds; of a loss that was
    not tuned, a seed); otherwise paired seeds are. units, baseline_units: number of these observations. seeds: those
    that both losses have. m_recall: mean of loss - baseline, points, None without observations; m_recall_bounds: its
    interval. improvement: share of the common seeds in which the loss is higher, ties count half; improvement_bounds:
    interval of that probability, None for tuned losses. epochs: to the target, with its interval epochs_bounds in per
    cent. profile: the same for other targets, not tested. height_p, epochs_p: p-values (Welch's or paired t test, of
    epochs by their logarithms), Holm-corrected once the board is complete. height, epochs_answer: the answers to the
    claims on M-Recall and on epochs. height_level, epochs_level: of the intervals, 0 to 1, corrected as the p-values:
    an interval excludes 0 where its claim is decided, and only there.
    """

    by_search: bool
    units: int
    baseline_units: int
    seeds: tuple[int, ...]
    m_recall: float | None
    m_recall_bounds: Bounds | None
    improvement: float | None
    improvement_bounds: Bounds | None
    epochs: TargetShare
    epochs_bounds: Bounds | None
    profile: tuple[TargetShare, ...]
    height_p: float
    epochs_p: float
    height: Answer
    epochs_answer: Answer
    height_level: float = LEVEL
    epochs_level: float = LEVEL

    @property
    def answers(self) -> set[Answer]:
        return {self.height, self.epochs_answer}


@dataclass(frozen=True)
class RangeEnd:
    """setting: dotted name. value, searched: its value and the searched range. place, line: the section of the study
    file that sets the range, and the line for a wider range. All but the setting are formatted as in the file."""

    setting: str
    value: str
    end: Literal["low", "high"]
    searched: str
    place: str
    line: str

    def sentence(self, cell: str) -> str:
        """cell: its name in the surrounding text."""
        return (
            f"{cell}: {self.setting} {self.value} of the winner is at the {self.end} end of what was searched "
            f"({self.searched}), so a better value may lie beyond. To search wider, give a copy of the study file "
            f"another name and write under {self.place}: {self.line}"
        )


AT_RANGE_END = "at_range_end"


@dataclass(frozen=True)
class Pick:
    """The winner of one search of a row, with its confirming seeds.

    repeat: its number, from 1. configuration: of its winner (`selection.winner_of`), empty without one. seeds: with a
    result in this configuration. best_m_recall: mean over its headline seeds, per cent, None without one. is_confirmed:
    these are seeds that ended and did not choose. configurations: number that the search tried. search_budget: None
    where none is recorded. tuning: expected best after fewer trials or epochs; None without a search. range_ends:
    settings of the winner at an end of the searched range, where the study could be read. cannot_draw: why the search
    found no further valid configuration, None where it did.
    """

    repeat: int
    configuration: Mapping[str, Any]
    seeds: tuple[int, ...]
    best_m_recall: float | None
    is_confirmed: bool
    configurations: int
    search_budget: SearchBudget | None = None
    tuning: TuningCurves | None = None
    range_ends: tuple[RangeEnd, ...] = ()
    cannot_draw: str | None = None


@dataclass(frozen=True)
class Cost:
    """Cost of all attempts of a cell, failed, killed and pruned ones included.

    budget_epochs: epochs charged to a budget. They exclude lost epochs, so that an interruption does not change what a
    study samples. wasted_epochs: epochs lost to crashes and trained again. usd: dollars for the devices on nodes with a
    price; None where no node has one. unpriced_seconds: part of device_seconds on nodes without a price.
    """

    budget_epochs: float
    device_seconds: float
    wasted_epochs: float
    usd: float | None = None
    unpriced_seconds: float = 0.0

    @property
    def epochs(self) -> float:
        """All epochs, lost ones included."""
        return self.budget_epochs + self.wasted_epochs

    @property
    def whole_usd(self) -> float | None:
        """Dollars for all device-seconds; None where a node had no price."""
        return None if self.unpriced_seconds else self.usd


@dataclass(frozen=True)
class Row:
    """One dataset x network x loss.

    repeats: its searches, by number. configuration: of the one with the highest mean; seeds: the usable runs of every
    pick, one per seed. All numbers are over the `headline` seeds. best_m_recall: mean, per cent; of a tuned loss with
    several searches, of their means. best_m_recall_std: sample standard deviation of the same numbers, None for one.
    m_recall_bounds: 95 % interval of best_m_recall, from two seeds or three searches, None where a seed is unfinished
    or chose the configuration. epochs_to_best, epochs_to_level, epochs_to_target: medians over seeds, the last one by
    Kaplan and Meier. epochs_bounds: 95 % interval of epochs_to_target; None with fewer than five seeds or several
    searches, and where a seed is unfinished or chose the configuration. spread: deviations of M-Recall between searches
    and between seeds of a pick, None for one search. noise: deviation of one validation, points; None for short curves.
    level_tolerance: points below the best that count as level, the same for all comparable rows of a network and data
    set. difference, comparison: with the baseline, None for the baseline and without one. collapse: the collapse of the
    baseline, the same in all rows of a network and data set, which then have no epochs_to_target. collapsed_seeds:
    headline seeds that collapsed or diverged. resolution_epochs: largest gap between two validations. configurations:
    number that the searches tried. trials: configurations and seeds tried. attempts: their executions; counts: the same
    by status. not_comparable: why it is not compared, None if it is. contenders: configurations confirmed beside a
    winner (`vsetune study confirm`). is_on_front: no other row of its data set and network beats it in both M-Recall
    and epochs to the baseline's best. study: the study that it ran in. searched: each searched setting with its range
    and the source of the range, where the study could be read. code: sha256 of user components that it ran with, by key
    (`loss.my_loss`).
    """

    dataset: str
    network: str
    loss: str
    cell: str
    is_baseline: bool
    repeats: tuple[Pick, ...]
    configuration: Mapping[str, Any]
    seeds: tuple[SeedResult, ...]
    best_m_recall: float | None
    best_m_recall_std: float | None
    epochs_to_best: float | None
    epochs_to_target: Epochs | None
    difference: SeedDifference | None
    resolution_epochs: float | None
    seconds_per_epoch: float | None
    test_m_recall: float | None
    cost: Cost
    configurations: int
    trials: int
    attempts: int
    counts: Mapping[AttemptStatus, int]
    protocol: Mapping[str, Any]
    flags: tuple[str, ...]
    not_comparable: str | None = None
    contenders: tuple[Contender, ...] = ()
    spread: Spread | None = None
    noise: float | None = None
    level_tolerance: float | None = None
    epochs_to_level: float | None = None
    m_recall_bounds: Bounds | None = None
    epochs_bounds: Bounds | None = None
    comparison: Comparison | None = None
    collapse: Collapse | None = None
    collapsed_seeds: int = 0
    is_on_front: bool = False
    study: str = ""
    searched: tuple[str, ...] = ()
    code: Mapping[str, str] = field(default_factory=dict)

    @property
    def headline(self) -> tuple[SeedResult, ...]:
        """The seeds behind the numbers: of every confirmed search, or of all searches if none is confirmed."""
        picks = [pick for pick in self.repeats if pick.is_confirmed] or self.repeats
        return tuple(seed for pick in picks for seed in headline_of(self.seeds_of(pick)))

    @property
    def is_trained(self) -> bool:
        """Whether any headline seed was trained; False of a zero-shot row, which nothing is compared with."""
        return not self.headline or any(is_trained(seed.curve) for seed in self.headline)

    @property
    def is_tuned(self) -> bool:
        """Whether a search of it tried more than one configuration."""
        return any(pick.configurations > 1 for pick in self.repeats)

    @property
    def pick(self) -> Pick:
        """The search with the highest mean."""
        return best_pick(self.repeats)

    @property
    def search_budget(self) -> SearchBudget | None:
        """Of all its searches together; None where none is recorded."""
        return total_budget([pick.search_budget for pick in self.repeats if pick.search_budget is not None])

    @property
    def has_searches(self) -> bool:
        """Whether its numbers are over several searches of a tuned loss."""
        return self.is_tuned and len({seed.repeat for seed in self.headline}) > 1

    @property
    def units(self) -> list[tuple[SeedResult, ...]]:
        """The headline seeds whose means the row averages: of a tuned loss with several searches by search, else each
        by itself."""
        return observations(self.headline, by_search=self.has_searches)

    @property
    def recalls(self) -> dict[str, float]:
        """Recalls by their names in `SeedResult.recalls`, averaged over the same units as best_m_recall; those that a
        headline seed lacks are missing."""
        names = [f"{prefix}{name}" for prefix in ("", TEST) for name in RECALLS]
        names += sorted({name for seed in self.headline for name in seed.recalls}.difference(names))
        known = [name for name in names if self.seeds and all(name in seed.recalls for seed in self.headline)]
        return {
            name: statistics.fmean(statistics.fmean(seed.recalls[name] for seed in unit) for unit in self.units)
            for name in known
        }

    def seeds_of(self, pick: Pick) -> tuple[SeedResult, ...]:
        return tuple(seed for seed in self.seeds if seed.repeat == pick.repeat)

    @property
    def searching_seed(self) -> SeedResult | None:
        """The seed whose curve chose the shown configuration; None without a search."""
        return next((seed for seed in self.seeds_of(self.pick) if seed.chose), None)


def best_pick(picks: Sequence[Pick]) -> Pick:
    """The one with the highest mean M-Recall, confirmed ones first, the earlier of equals."""
    return max(picks, key=lambda pick: (pick.is_confirmed, -1.0 if pick.best_m_recall is None else pick.best_m_recall))


@dataclass(frozen=True)
class Leaderboard:
    """All cells of a study, by dataset and network, the baseline of each first and then by best M-Recall.

    study: its name, or the names of all studies with a row here. number: of the board among several of one data set,
    from 1. unfinished: studies with a row here that have trials left: they run or were interrupted.
    """

    study: str
    baseline: str
    rows: tuple[Row, ...]
    number: int = 1
    unfinished: tuple[str, ...] = ()

    def groups(self) -> list[tuple[str, str, tuple[Row, ...]]]:
        """(dataset, network, rows) of every comparison, in order."""
        keys = dict.fromkeys((row.dataset, row.network) for row in self.rows)
        return [(*key, tuple(row for row in self.rows if (row.dataset, row.network) == key)) for key in keys]


@dataclass(frozen=True)
class Boards:
    """All boards that a page or file shows. Of several studies: one board for each data set, and another for studies
    with their own baseline under other conditions.

    notes: the differences between studies shown side by side, and the studies on no board. is_several: of several
    studies; otherwise there is one board.
    """

    boards: tuple[Leaderboard, ...]
    notes: tuple[str, ...] = ()
    is_several: bool = True

    @property
    def studies(self) -> list[str]:
        """Names of the studies with a row on any board."""
        return list(dict.fromkeys(row.study for board in self.boards for row in board.rows))


Shown = Leaderboard | Boards
"""The board of one study, or the boards of several."""


def boards_of(shown: Shown) -> Boards:
    return shown if isinstance(shown, Boards) else Boards((shown,), is_several=False)
