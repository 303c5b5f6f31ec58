"""Results of comparing a loss with the baseline, as plain frozen data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Answer = Literal["supported", "contradicted", "undecided", "too few seeds", "no yardstick", "cut short"]
"""Answer to two claims: the loss has a higher M-Recall, or needs fewer epochs to the baseline's best.

supported: the claim is significant, corrected for all comparisons of the board. contradicted: the opposite is
significant. For epochs this is no evidence of a slower loss, because the baseline only has to reach its own best.
undecided: neither is significant. too few seeds: no outcome could be significant. no yardstick: the baseline was still
improving when it ended, so its best is no target. cut short: seeds were trained only until they reached a target, so
their M-Recall is no best.
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
class Comparison:
    """A loss and the baseline over `seeds`, which finished for both and chose the configuration of neither.

    m_recall: mean of loss - baseline, points, None without seeds; m_recall_bounds: its 95 % interval. improvement:
    share of the seeds in which the loss is higher, ties count half; improvement_bounds: interval of that probability.
    sooner, later: number of seeds that reach the baseline's best before or after the baseline does. A seed that never
    reaches it counts as later, unless it ended before the baseline reached it. height_p, epochs_p: p-values of a
    paired t test and of a sign test, Holm-corrected once the board is complete. height_seeds, epochs_seeds: the fewest
    seeds with which the board could answer. height, epochs: the answers to the claims on M-Recall and on epochs.
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
