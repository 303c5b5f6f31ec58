"""Curves of running attempts as MLflow has them, remembered by who writes them."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from mlflow.entities import Run

from vsetune.tracking import encoding
from vsetune.tracking.encoding import CurvePoint
from vsetune.tracking.mlflow_batches import metrics_of
from vsetune.tracking.mlflow_rows import RunPoints
from vsetune.tracking.records import ValidationPoint


@dataclass
class RunCurve:
    """Of one run. start_ms: since 1970."""

    start_ms: int
    curve: list[CurvePoint]

    @classmethod
    def of(cls, run: Run) -> RunCurve:
        return cls(run.info.start_time, encoding.curve_from_tags(run.data.tags))


class NewPoints:
    """Points of one run that MLflow has not got. told: what it is to hear of them; curve: the whole, with them."""

    def __init__(self, run_id: str, known: RunCurve, new: Sequence[ValidationPoint]) -> None:
        self.curve = sorted([*known.curve, *map(CurvePoint.of, new)])
        before = encoding.curve_tags(known.curve)
        tags = {key: text for key, text in encoding.curve_tags(self.curve).items() if before.get(key) != text}
        metrics = [metric for point in new for metric in metrics_of(point, known.start_ms)]
        self.told = RunPoints(run_id, metrics, encoding.seen_tag(time.time()) | tags)


class RunningCurves:
    """Enough of every running attempt to append to its curve without asking the server."""

    def __init__(self, read: Callable[[str], Run]) -> None:
        """read: a run by its id, from MLflow; asked for runs that were not started here."""
        self._read = read
        self._known: dict[str, RunCurve] = {}

    def begin(self, run: Run) -> None:
        self._known[run.info.run_id] = RunCurve.of(run)

    def end(self, run_id: str) -> None:
        self._known.pop(run_id, None)

    def new(self, run_id: str, points: Sequence[ValidationPoint]) -> NewPoints | None:
        """None when MLflow knows them all. Of several points of a step the first counts."""
        known = self._known.get(run_id) or RunCurve.of(self._read(run_id))
        self._known[run_id] = known
        steps = {point.step for point in known.curve}
        new = {point.step: point for point in reversed(points) if point.step not in steps}
        return NewPoints(run_id, known, list(new.values())) if new else None

    def written(self, points: NewPoints) -> None:
        """MLflow has them now."""
        self._known[points.told.run_id].curve = points.curve
