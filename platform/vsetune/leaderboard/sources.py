"""The runs behind a row of a board."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from vsetune.leaderboard.rows import Row
from vsetune.records.attempts import AttemptRecord


@dataclass(frozen=True)
class RowRun:
    """One seed. run: its id in the tracking store. counts: it is a `headline` seed, so it enters the numbers."""

    seed: int
    trial: str
    run: str
    phase: str
    status: str
    best_m_recall: float
    epochs_to_best: float
    counts: bool

    def to_plain(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True)
class RowSources:
    """revisions, data_fingerprints: of the code and of the data of these runs, each once."""

    runs: tuple[RowRun, ...]
    revisions: tuple[str, ...]
    data_fingerprints: tuple[str, ...]


def sources_of(row: Row, attempts: Sequence[AttemptRecord]) -> RowSources:
    """The runs of a row. attempts: all attempts of the study; the latest of each trial counts."""
    latest = {attempt.start.trial: attempt for attempt in sorted(attempts, key=lambda each: each.start.number)}
    counted = {seed.trial for seed in row.headline}
    found = [(seed, latest[seed.trial]) for seed in row.seeds]
    told = [attempt.start.environment for _, attempt in found]
    return RowSources(
        tuple(
            RowRun(
                seed.seed, seed.trial, attempt.attempt_id, attempt.start.phase, attempt.status, seed.best_m_recall,
                seed.epochs_to_best, seed.trial in counted,
            )
            for seed, attempt in found
        ),
        *(
            tuple(dict.fromkeys(each[key] for each in told if each.get(key)))
            for key in ("git_revision", "data_fingerprint")
        ),
    )
