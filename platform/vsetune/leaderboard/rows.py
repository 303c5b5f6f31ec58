"""What a leaderboard holds, as plain frozen data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from vsetune.metrics.efficiency import Epochs, SeedDifference
from vsetune.tracking.records import AttemptStatus

FLAGS = {
    "baseline_rising": "the baseline's best is its last validation: it was still rising, so its best is an easy target",
    "baseline_collapsed": "the baseline's best M-Recall is below half of the best that any loss reached with this "
    "network: Difference to it says nothing",
    "censored": "some seeds never reached the baseline's best: the epochs are a lower bound (>), and so is Difference",
    "no_pairs": "no seed was run for both this loss and the baseline: no Difference",
    "incomplete": "a run of the shown configuration has not been trained to its budget (running, pruned or killed)",
    "seed_failed": "a seed of the shown configuration failed and is missing from the means",
    "no_result": "no trial of this cell has a usable validation",
}
"""What each flag of a row means, for the notes under a table."""


@dataclass(frozen=True)
class SeedResult:
    """One seed of the shown configuration.

    curve: (epoch, M-Recall in per cent) of every validation. epochs_to_target: to the best of the baseline of the same
    seed; None without one. test_m_recall: per cent, by the best checkpoint; None if it was not scored.
    """

    seed: int
    trial: str
    status: AttemptStatus
    curve: tuple[tuple[float, float], ...]
    best_m_recall: float
    epochs_to_best: float
    seconds_per_epoch: float | None
    test_m_recall: float | None
    epochs_to_target: Epochs | None = None


@dataclass(frozen=True)
class Cost:
    """What a cell was charged: all its attempts, failed, killed and pruned ones and replayed epochs included."""

    epochs: float
    device_seconds: float
    wasted_epochs: float


@dataclass(frozen=True)
class Row:
    """One cell: dataset x network x loss.

    configuration: of the trial with the best validation M-Recall; seeds: all its runs, one per seed. best_m_recall:
    mean over seeds, per cent; best_m_recall_std: sample standard deviation, None for one seed. epochs_to_best,
    epochs_to_target: medians over seeds. difference: None for the baseline. resolution_epochs: largest gap between two
    validations. trials: configurations and seeds tried. attempts: their executions, counts: the same by status.
    """

    dataset: str
    network: str
    loss: str
    cell: str
    is_baseline: bool
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
    trials: int
    attempts: int
    counts: Mapping[AttemptStatus, int]
    protocol: Mapping[str, Any]
    flags: tuple[str, ...]


@dataclass(frozen=True)
class Leaderboard:
    """All cells of a study, by dataset and network, the baseline of each first and then by best M-Recall."""

    study: str
    baseline: str
    rows: tuple[Row, ...]

    def groups(self) -> list[tuple[str, str, tuple[Row, ...]]]:
        """(dataset, network, rows) of every comparison, in order."""
        keys = dict.fromkeys((row.dataset, row.network) for row in self.rows)
        return [(*key, tuple(row for row in self.rows if (row.dataset, row.network) == key)) for key in keys]
