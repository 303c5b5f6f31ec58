"""What a sweep left in the log of its study, which is what is checked."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from chaos.logged import read_log
from vsetune.records.mlflow_descriptions import attempt_params

_OF_MACHINES = ("second", "wasted", "peak_memory", "product")
"""In the names of metrics: they say how fast a machine was, how full, and what it lost."""

Metrics = Mapping[tuple[str, int], tuple[float, ...]]
"""(name, step) to every value recorded for it: one, if nothing is counted twice."""


@dataclass(frozen=True)
class RecordedAttempt:
    """One attempt. metrics: without those that depend on the machine."""

    trial: str
    number: int
    status: str
    params: Mapping[str, str]
    metrics: Metrics
    repeated: tuple[str, ...]
    error: str


@dataclass(frozen=True)
class Recorded:
    """Everything of one study. board: what `leaderboard show --json` printed."""

    attempts: tuple[RecordedAttempt, ...]
    board: Mapping[str, Any]

    def last(self) -> dict[str, RecordedAttempt]:
        """The last attempt of every trial: the one that counts."""
        ordered = sorted(self.attempts, key=lambda attempt: attempt.number)
        return {attempt.trial: attempt for attempt in ordered}


def read(folder: Path, board: Mapping[str, Any]) -> Recorded:
    """All attempts in the log of a study, in the order in which they began. folder: of the study."""
    return Recorded(tuple(
        RecordedAttempt(
            trial=each.trial, number=each.start.number, status=each.status, params=attempt_params(each.start),
            metrics={
                (name, step): (value,) for name, values in each.series.items() if is_of_the_trial(name)
                for step, value in values.items()
            },
            repeated=tuple(each.repeated), error=each.error,
        ) for each in read_log(folder).attempts.values()
    ), board)


def is_of_the_trial(metric: str) -> bool:
    """Whether a metric has the same value on every machine."""
    return not any(word in metric for word in _OF_MACHINES)


def read_board(text: str) -> Mapping[str, Any]:
    """The JSON of a leaderboard; empty when there is none."""
    board: Mapping[str, Any] = json.loads(text) if text.strip() else {}
    return board
