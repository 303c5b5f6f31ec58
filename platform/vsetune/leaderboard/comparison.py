"""What a comparison of a loss with the baseline says, as plain frozen data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Answer = Literal["supported", "contradicted", "undecided", "too few seeds", "no yardstick", "cut short"]
"""To the claims that a loss gets higher than the baseline, and that it is sooner at the baseline's best.

supported: the test against chance is passed, corrected for all comparisons of the board. contradicted: the opposite
passes it; of epochs that is no evidence of a slower loss, since the baseline has but its own best to reach.
undecided: neither does. too few seeds: no outcome could pass it. no yardstick: the baseline was still rising when it
ended, so its best is no target. cut short: seeds were trained until they reached a target, so their
M-Recall is no best.
"""
ALPHA = 0.05
"""Of all comparisons of a board together and of each claim for itself: how often one is called by chance."""

Bounds = tuple[float, float]


@dataclass(frozen=True)
class Collapse:
    """A baseline that others cannot be compared with (`metrics.is_collapsed`): of the seed of it that got least far.

    m_recall, last: its best and its last M-Recall, per cent. other, other_m_recall: the loss that any seed of the same
    network and data got furthest with. chance: M-Recall of random orders, None where the split is not recorded. seeds:
    of the baseline that collapsed, of how many: `of_seeds`. has_ended: they have all been trained to their end.
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
class Comparison:
    """A loss and the baseline over `seeds`: those that finished for both and chose no configuration of either.

    m_recall: mean of loss - baseline, points, None without seeds; m_recall_bounds: its 95 % interval. improvement:
    share of the seeds in which the loss is higher, ties by half; improvement_bounds: interval of that probability.
    sooner, later: seeds that reach the baseline's best before or after the baseline does (never: later, unless they
    ended before it). height_p, epochs_p: of a paired t and of a sign test, corrected after Holm once the board is
    whole. height_seeds, epochs_seeds: the fewest seeds with which the board could answer.
    """

    seeds: tuple[int, ...]
    m_recall: float | None
    m_recall_bounds: Bounds | None
    improvement: float | None
    improvement_bounds: Bounds | None
    sooner: int
    later: int
    height_p: float
    epochs_p: float
    height: Answer = "too few seeds"
    epochs: Answer = "too few seeds"
    height_seeds: int = 0
    epochs_seeds: int = 0
