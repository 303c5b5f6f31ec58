"""Curves of running attempts as MLflow has them, remembered by who writes them."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from mlflow import MlflowClient
from mlflow.entities import Run

from vsetune.tracking import encoding
from vsetune.tracking.mlflow_batches import metrics_of
from vsetune.tracking.mlflow_rows import RunPoints
from vsetune.tracking.point_blocks import Block, CurvePoint, block_texts, last_block, points_of_block, with_points
from vsetune.tracking.records import ValidationPoint


@dataclass(frozen=True)
class RunCurve:
    """Of one run. start_ms: since 1970. steps: of all points. last: the block that takes the next one."""

    start_ms: int
    steps: frozenset[int]
    last: Block

    @classmethod
    def of(cls, run: Run) -> RunCurve:
        steps = frozenset(point.step for point in encoding.curve_from_tags(run.data.tags))
        return cls(run.info.start_time, steps, last_block(run.data.tags))


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
        self._known[run.info.run_id] = RunCurve.of(run)

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
    """All numbers of all points of a run, in the order of the training: out of its blocks, and what an earlier version
    recorded out of MLflow's histories, a request for each number."""
    points = {point.step: point for text in block_texts(run.data.tags) for point in points_of_block(text)}
    older = [point for point in encoding.curve_from_tags(run.data.tags) if point.step not in points]
    numbers: dict[int, dict[str, float]] = {point.step: {} for point in older}
    for name in run.data.metrics if older else ():
        for metric in client.get_metric_history(run.info.run_id, name):
            if metric.step in numbers:
                numbers[metric.step][name] = metric.value
    for known in older:
        points[known.step] = _older_point(known, numbers[known.step])
    return [points[step] for step in sorted(points)]


def _older_point(known: CurvePoint, numbers: Mapping[str, float]) -> ValidationPoint:
    """numbers: what MLflow has of its step, in which the numbers of an attempt's summary may stand, too."""
    own = {"m_recall", "epoch", "pairs_seen", "train_seconds"}
    metrics = {name: value for name, value in numbers.items() if name not in own}
    pairs_seen = round(numbers.get("pairs_seen", 0))
    return ValidationPoint(known.step, known.epoch, pairs_seen, known.m_recall, known.train_seconds, metrics)
