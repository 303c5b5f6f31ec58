"""The numbers that MLflow draws of an attempt, against the curve that is kept for boards."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from mlflow import MlflowClient
from mlflow.entities import Metric
from mlflow.store.tracking.dbmodels import models
from sqlalchemy import Connection, and_, delete, select, update

from vsetune.tracking.encoding import CurvePoint
from vsetune.tracking.mlflow_batches import log_in_batches
from vsetune.tracking.mlflow_sqlite import engine_of

_METRICS, _LATEST = models.SqlMetric.__table__, models.SqlLatestMetric.__table__
_CURVE, _EPOCH, _SECONDS, _DEVICE_SECONDS = "m_recall", "epoch", "train_seconds", "device_seconds"


class Series:
    """Of the store behind a URI."""

    def __init__(self, client: MlflowClient, uri: str) -> None:
        self._client = client
        self._engine = engine_of(uri)

    @property
    def reaches_rows(self) -> bool:
        """Whether single numbers can be removed; MLflow's own calls cannot."""
        return self._engine is not None

    def steps(self, run_id: str) -> Mapping[int, int]:
        """How many numbers the curve has at each step."""
        return Counter(metric.step for metric in self._client.get_metric_history(run_id, _CURVE))

    def points(self, run_id: str, steps: Sequence[int]) -> list[CurvePoint]:
        """Points of the curve at these steps, as far as all that makes a point is recorded."""
        if not steps:
            return []
        found = {
            name: {metric.step: metric.value for metric in self._client.get_metric_history(run_id, name)}
            for name in (_CURVE, _EPOCH, _SECONDS, _DEVICE_SECONDS)
        }
        whole = [step for step in steps if all(step in found[name] for name in (_CURVE, _EPOCH, _SECONDS))]
        return [
            CurvePoint(
                step, found[_EPOCH][step], found[_CURVE][step], found[_SECONDS][step], found[_DEVICE_SECONDS].get(step)
            )
            for step in whole
        ]

    def draw(self, run_id: str, start_ms: int, points: Sequence[CurvePoint]) -> None:
        """Give MLflow the M-Recall of points that only the curve has."""
        metrics = [
            Metric(_CURVE, point.m_recall, start_ms + round(1000 * point.train_seconds), point.step)
            for point in points
        ]
        log_in_batches(self._client, run_id, metrics=metrics)

    def remove_doubles(self, run_id: str, curve: Sequence[CurvePoint]) -> None:
        """Of several numbers of one metric at one step the one of the curve stays, and what was written with it."""
        assert self._engine is not None
        value_at = {point.step: point.m_recall for point in curve}
        with self._engine.begin() as connection:
            rows = connection.execute(
                select(_METRICS.c.key, _METRICS.c.step, _METRICS.c.timestamp, _METRICS.c.value)
                .where(_METRICS.c.run_uuid == run_id).order_by(_METRICS.c.timestamp)
            ).all()
            kept_at: dict[int, int] = {}
            for key, step, stamp, value in rows:
                if key == _CURVE and value == value_at.get(step, value):
                    kept_at.setdefault(step, stamp)
            count = Counter((row.key, row.step) for row in rows)
            for key, step in (place for place, number in count.items() if number > 1):
                same = [(row.timestamp, row.value) for row in rows if (row.key, row.step) == (key, step)]
                wanted = [each for each in same if each[0] == kept_at.get(step)]
                if key == _CURVE:
                    wanted = [each for each in wanted if each[1] == value_at.get(step, each[1])]
                _keep_one(connection, run_id, (key, step), (wanted or same)[0])
            for key in {place[0] for place, number in count.items() if number > 1}:
                _renew_latest(connection, run_id, key)


def _keep_one(connection: Connection, run_id: str, place: tuple[str, int], kept: tuple[int, float]) -> None:
    here = and_(_METRICS.c.run_uuid == run_id, _METRICS.c.key == place[0], _METRICS.c.step == place[1])
    is_kept = and_(_METRICS.c.timestamp == kept[0], _METRICS.c.value == kept[1])
    connection.execute(delete(_METRICS).where(here, ~is_kept))


def _renew_latest(connection: Connection, run_id: str, key: str) -> None:
    """What MLflow shows as the value of a metric: its number of the last step."""
    c = _METRICS.c
    last = connection.execute(
        select(c.step, c.timestamp, c.value, c.is_nan).where(c.run_uuid == run_id, c.key == key)
        .order_by(c.step.desc(), c.timestamp.desc(), c.value.desc()).limit(1)
    ).one()
    here = and_(_LATEST.c.run_uuid == run_id, _LATEST.c.key == key)
    connection.execute(update(_LATEST).where(here).values(**last._mapping))
