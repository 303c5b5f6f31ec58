"""What a sweep left in its tracking database, read as rows: the database itself is what is checked."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vsetune.tracking.encoding import point_metrics, points_from_tags

_OF_MACHINES = ("second", "wasted", "peak_memory", "product")
"""In the names of metrics: they say how fast a machine was, how full, and what it lost."""

Metrics = Mapping[tuple[str, int], tuple[float, ...]]
"""(name, step) to every value recorded for it: one, if nothing is counted twice."""


@dataclass(frozen=True)
class RecordedAttempt:
    """One MLflow run of an attempt. metrics: without those that depend on the machine."""

    trial: str
    number: int
    status: str
    run_status: str
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


def read(database: Path, study: str, board: Mapping[str, Any]) -> Recorded:
    """All attempts of a study in an MLflow database (SQLite)."""
    with closing(sqlite3.connect(f"file:{database}?mode=ro", uri=True, timeout=30)) as connection:
        runs = connection.execute(
            "SELECT r.run_uuid, r.status FROM runs r JOIN experiments e ON e.experiment_id = r.experiment_id "
            "JOIN tags t ON t.run_uuid = r.run_uuid AND t.key = 'vsetune.kind' AND t.value = 'attempt' "
            "WHERE e.name = ? AND r.lifecycle_stage = 'active' ORDER BY r.start_time", (study,)
        ).fetchall()
        return Recorded(tuple(_attempt(connection, run, status) for run, status in runs), board)


def is_of_the_trial(metric: str) -> bool:
    """Whether a metric has the same value on every machine."""
    return not any(word in metric for word in _OF_MACHINES)


def _attempt(connection: sqlite3.Connection, run: str, status: str) -> RecordedAttempt:
    tags = dict(connection.execute("SELECT key, value FROM tags WHERE run_uuid = ?", (run,)).fetchall())
    params = dict(connection.execute("SELECT key, value FROM params WHERE run_uuid = ?", (run,)).fetchall())
    values: dict[tuple[str, int], list[float]] = {}
    rows = connection.execute("SELECT key, step, value, is_nan FROM metrics WHERE run_uuid = ?", (run,))
    for name, step, value, is_nan in rows:
        values.setdefault((name, step), []).append(float("nan") if is_nan else value)
    for point in points_from_tags(tags):  # MLflow draws M-Recall of them alone
        for name, value in point_metrics(point).items():
            values.setdefault((name, point.step), [value])
    return RecordedAttempt(
        trial=tags["trial"], number=int(tags["attempt"]), status=tags["status"], run_status=status, params=params,
        metrics={
            (name, step): tuple(found) for (name, step), found in values.items() if is_of_the_trial(name)
        },
        repeated=tuple(sorted(f"{name} at step {step}" for (name, step), found in values.items() if len(found) > 1)),
        error=tags.get("error", ""),
    )


def read_board(text: str) -> Mapping[str, Any]:
    """The JSON of a leaderboard; empty when there is none."""
    board: Mapping[str, Any] = json.loads(text) if text.strip() else {}
    return board
