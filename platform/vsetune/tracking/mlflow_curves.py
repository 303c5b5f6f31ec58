"""Curves of running attempts as MLflow has them, remembered by who writes them."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from mlflow import MlflowClient
from mlflow.entities import Run, RunStatus

from vsetune.tracking import encoding
from vsetune.tracking.mlflow_batches import metrics_of
from vsetune.tracking.mlflow_rows import RunPoints
from vsetune.tracking.point_blocks import Block, last_block, with_points
from vsetune.tracking.records import ValidationPoint

_OWN = {"m_recall", "epoch", "pairs_seen", "train_seconds"}
"""Numbers that are fields of a point."""


@dataclass(frozen=True)
class RunCurve:
    """Of one run. start_ms: since 1970. steps: of all points. last: the block that takes the next one. ended_as: what
    MLflow says of it, where its attempt was over when it was read; None for one that runs."""

    start_ms: int
    steps: frozenset[int]
    last: Block
    ended_as: str | None = None

    @classmethod
    def of(cls, run: Run) -> RunCurve:
        steps = frozenset(point.step for point in encoding.curve_from_tags(run.data.tags))
        is_over = run.info.status != RunStatus.to_string(RunStatus.RUNNING)
        return cls(run.info.start_time, steps, last_block(run.data.tags), run.info.status if is_over else None)


class NewPoints:
    """Points of one run that MLflow has not got. told: what it is to hear of them; then: what it has afterwards."""

    def __init__(self, run_id: str, known: RunCurve, new: Sequence[ValidationPoint], *, all_numbers: bool) -> None:
        blocks = with_points(known.last, new)
        tags = {key: text for block in blocks for key, text in block.tags.items()}
        metrics = [
            metric for point in new for metric in metrics_of(point, known.start_ms, all_numbers=all_numbers)
        ]
        self.told = RunPoints(run_id, metrics, encoding.seen_tag(time.time()) | tags)
        self.then = replace(known, steps=known.steps | {point.step for point in new}, last=blocks[-1])


class RunningCurves:
    """Enough of every running attempt to append to its curve without asking the server."""

    def __init__(self, read: Callable[[str], Run], *, all_numbers: bool) -> None:
        """read: a run by its id, from MLflow; asked for runs that were not started here. all_numbers: as `metrics_of`
        has it."""
        self._read, self._all_numbers = read, all_numbers
        self._known: dict[str, RunCurve] = {}

    def begin(self, run: Run) -> None:
        """It runs from now on, whatever it was when it was read."""
        self._known[run.info.run_id] = replace(RunCurve.of(run), ended_as=None)

    def end(self, run_id: str) -> None:
        self._known.pop(run_id, None)

    def new(self, run_id: str, points: Sequence[ValidationPoint]) -> NewPoints | None:
        """None when MLflow knows them all. Of several points of a step the first counts."""
        known = self._known.get(run_id) or RunCurve.of(self._read(run_id))
        self._known[run_id] = known
        new = {point.step: point for point in reversed(points) if point.step not in known.steps}
        if not new:
            return None
        return NewPoints(run_id, known, list(reversed(new.values())), all_numbers=self._all_numbers)

    def written(self, points: NewPoints) -> None:
        """MLflow has them now."""
        self._known[points.told.run_id] = points.then


def points_of(client: MlflowClient, run: Run) -> list[ValidationPoint]:
    """All numbers of all points of a run, in the order of the training: out of its tags, and what an earlier version
    recorded out of MLflow's histories, a request for each number."""
    points = {point.step: point for point in encoding.points_from_tags(run.data.tags)}
    older: dict[int, dict[str, float]] = {step: {} for step, point in points.items() if not point.pairs_seen}
    for name in run.data.metrics if older else ():
        for metric in client.get_metric_history(run.info.run_id, name):
            if metric.step in older:  # numbers of the summary may stand at the last step, too
                older[metric.step].setdefault(name, metric.value)
    for step, numbers in older.items():
        metrics = {name: value for name, value in numbers.items() if name not in _OWN} | dict(points[step].metrics)
        points[step] = replace(points[step], pairs_seen=round(numbers.get("pairs_seen", 0)), metrics=metrics)
    return list(points.values())


def last_seen(run: Run) -> float:
    """The last sign of life, seconds since 1970; of a run without our tag, its end or the last point of its curve."""
    ended = (run.info.end_time or 0) / 1000
    if encoding.SEEN in run.data.tags:
        return max(float(run.data.tags[encoding.SEEN]), ended)
    curve = encoding.curve_from_tags(run.data.tags)
    trained = curve[-1].train_seconds if curve else 0.0
    return max(float(run.info.start_time) / 1000 + trained, ended)
