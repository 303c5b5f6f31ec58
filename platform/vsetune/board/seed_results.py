"""Results of single seeds of a configuration, as plain frozen data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from vsetune.metrics.seed_statistics import Epochs
from vsetune.records.events import AttemptStatus

RECALLS = ("i2t_r1", "i2t_r5", "i2t_r10", "t2i_r1", "t2i_r5", "t2i_r10", "rsum")
"""Recalls of a ranking beside its M-Recall, as `RetrievalScores` names them: image to text, text to image, their sum.
"""
ECCV = tuple(f"eccv_{way}_{score}" for way in ("i2t", "t2i") for score in ("map_at_r", "r_precision", "r1"))
CXC = tuple(f"cxc_{way}_r{k}" for way in ("i2t", "t2i") for k in (1, 5, 10))
CXC_AMONG = tuple(f"cxc_{way}_r{k}" for way in ("t2t", "i2i") for k in (1, 5, 10))
"""Scores of a test split by published judgements (`evaluation.coco`), in per cent; the last of networks that embed."""
TEST = "test_"
"""Prefix of numbers on the test split."""
FURTHER = "test."
"""Prefix of numbers on one of `data.tests`: `test.NAME.i2t_r1`."""


@dataclass(frozen=True)
class SeedResult:
    """One seed of the shown configuration.

    curve: (epoch, M-Recall in per cent) of every validation. epochs_to_target: to the best of the baseline of the same
    seed; None without one. test_m_recall: per cent, of the best checkpoint; None if it was not scored. chose: the
    search chose the configuration by this curve, so its M-Recall is a maximum and optimistic. epochs_to_level: to the
    first validation that differs from the best by no more than the noise of the curve; None where the noise is not
    known. hardware: the device it trained on, in words; empty where none is recorded. repeat: number of the search that
    it belongs to. diverged: its training failed with numbers that were not finite; its M-Recall counts as 0 at every
    validation of the winner. recalls: of `RECALLS` by name, per cent, at its best validation (`recalls.with_recalls`),
    with the prefix `test_` of its best checkpoint on the test split, with those of `evaluation.coco`, and with
    `test.NAME.` on a further one, with `m_recall`; those that are not recorded are missing.
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
    chose: bool = False
    epochs_to_level: float | None = None
    hardware: str = ""
    repeat: int = 1
    diverged: bool = False
    recalls: Mapping[str, float] = field(default_factory=dict)

    @property
    def has_ended(self) -> bool:
        """Whether more training could not change its result."""
        return self.status == "finished" or self.diverged

    @property
    def is_evidence(self) -> bool:
        """Whether it enters intervals and tests: it has ended and did not choose the configuration."""
        return self.has_ended and not self.chose


def observations(seeds: Sequence[SeedResult], *, by_search: bool) -> list[tuple[SeedResult, ...]]:
    """The seeds of each search together, by its number; without by_search each seed by itself."""
    if not by_search:
        return [(seed,) for seed in seeds]
    return [tuple(seed for seed in seeds if seed.repeat == number) for number in sorted({s.repeat for s in seeds})]


@dataclass(frozen=True)
class Contender:
    """A configuration that was run again beside the winner: the runner-up of the search, or the papers' settings.

    seeds: seeds that also ran for the winner and did not search. best_m_recall: mean over them, per cent;
    best_m_recall_std: sample standard deviation, None for one seed. epochs_to_best: median. winner_m_recall: mean of
    the winner over the same seeds.
    """

    role: str
    configuration: Mapping[str, Any]
    seeds: tuple[SeedResult, ...]
    best_m_recall: float
    best_m_recall_std: float | None
    epochs_to_best: float
    winner_m_recall: float


def headline_of(seeds: tuple[SeedResult, ...]) -> tuple[SeedResult, ...]:
    """The seeds of one search that have ended (all seeds if none has) and did not choose the configuration; if all
    chose it, all of these."""
    ended = tuple(seed for seed in seeds if seed.has_ended) or seeds
    return tuple(seed for seed in ended if not seed.chose) or ended
