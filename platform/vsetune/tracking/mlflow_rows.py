"""Writes points of many runs into MLflow's tables in one transaction, where its store is SQLite or PostgreSQL.

MLflow's own call takes one run at a time, two transactions and an object per number: 5 to 10 ms before the first row.
The rows written here are those that it would write; its classes are asked for the tables, of whatever version is
installed. What these tables or this database are not made for goes through MLflow's call, and so does whatever MLflow
has to judge: the name of a metric that it has not seen yet, a run that is deleted or gone.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from mlflow.entities import LifecycleStage, Metric
from mlflow.store.tracking.dbmodels import models
from sqlalchemy import Connection, Engine, bindparam, func, select, tuple_
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.exc import DataError, IntegrityError

from vsetune.tracking.mlflow_sqlite import engine_of
from vsetune.tracking.sqlite_file import BUSY_TIMEOUT_S

_RUNS, _METRICS = models.SqlRun.__table__, models.SqlMetric.__table__
_LATEST, _TAGS = models.SqlLatestMetric.__table__, models.SqlTag.__table__
_INSERT: Mapping[str, Any] = {"sqlite": sqlite.insert, "postgresql": postgresql.insert}
_OF_A_METRIC = {"run_uuid", "key", "value", "timestamp", "step", "is_nan"}
_KNOWN = (
    (_METRICS, _OF_A_METRIC, {"key", "timestamp", "step", "run_uuid", "value", "is_nan"}),
    (_LATEST, _OF_A_METRIC, {"key", "run_uuid"}),
    (_TAGS, {"run_uuid", "key", "value"}, {"key", "run_uuid"}),
)
_LARGEST = sys.float_info.max
_IDS_AT_ONCE = 500

Row = dict[str, Any]


class RunPoints(NamedTuple):
    """What a run is given: numbers, and tags that claim that the numbers are there."""

    run_id: str
    metrics: Sequence[Metric]
    tags: Mapping[str, str]


class PointRows:
    """Of one database. Errors are those of SQLAlchemy; after one, nothing of the call has been written."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._add_metrics = _insertion(engine, _METRICS).on_conflict_do_nothing()
        latest = _insertion(engine, _LATEST)
        new, key = latest.excluded, ("step", "timestamp", "value")
        self._set_latest = latest.on_conflict_do_update(
            index_elements=["key", "run_uuid"],
            set_={name: new[name] for name in (*key, "is_nan")},
            where=tuple_(*(new[name] for name in key)) > tuple_(*(_LATEST.c[name] for name in key)),
        )
        tags = _insertion(engine, _TAGS)
        self._set_tags = tags.on_conflict_do_update(
            index_elements=["key", "run_uuid"], set_={"value": tags.excluded.value}
        )
        self._accepted: set[str] = set()

    def accepted(self, run: RunPoints) -> None:
        """MLflow has taken these itself: the names of their metrics are good."""
        self._accepted.update(metric.key for metric in run.metrics)

    def write(self, runs: Sequence[RunPoints]) -> bool:
        """All of it or, where MLflow itself has to look at one of the runs, nothing. Whether it was written.

        A metric that is there already, the same in name, time, step and value, is left as it is.
        """
        if not all(metric.key in self._accepted for run in runs for metric in run.metrics):
            return False
        metrics = [_row(run.run_id, metric) for run in runs for metric in run.metrics]
        tags = [{"run_uuid": run.run_id, "key": key, "value": text} for run in runs for key, text in run.tags.items()]
        try:
            with self._engine.connect() as connection:
                self._begin(connection)
                if not _are_active(connection, {run.run_id for run in runs}):
                    return False
                for statement, rows in (
                    (self._add_metrics, metrics), (self._set_latest, _latest(metrics)), (self._set_tags, _sorted(tags)),
                ):
                    if rows:
                        connection.execute(statement, self._bound(rows))
                connection.commit()
        except (DataError, IntegrityError):  # MLflow says what is wrong with it, and with which run
            return False
        return True

    def _bound(self, rows: list[Row]) -> Any:
        """PostgreSQL takes columns, see `_insertion`."""
        if self._engine.name == "sqlite":
            return rows
        return {name: [row[name] for row in rows] for name in rows[0]}

    def _begin(self, connection: Connection) -> None:
        """SQLite gives up a lock only where it is asked for before the first look."""
        if self._engine.name == "sqlite":
            connection.exec_driver_sql(f"PRAGMA busy_timeout = {round(1000 * BUSY_TIMEOUT_S)}")
            connection.exec_driver_sql("BEGIN IMMEDIATE")


def point_rows(uri: str) -> PointRows | None:
    """For the store behind a URI; None where MLflow's own calls are the only way in."""
    engine = engine_of(uri)
    if engine is None or engine.name not in _INSERT:
        return None
    for table, columns, keys in _KNOWN:
        if set(table.c.keys()) != columns or {column.name for column in table.primary_key} != keys:
            return None
    return PointRows(engine)


def _insertion(engine: Engine, table: Any) -> Any:
    """Of whole rows. To a server in one statement with an array for each column, in place of one for each row that has
    to go there and back."""
    insert = _INSERT[engine.name](table)
    if engine.name == "sqlite":
        return insert
    arrays = {column.name: bindparam(column.name, type_=postgresql.ARRAY(column.type)) for column in table.c}
    columns = [func.unnest(array).label(name) for name, array in arrays.items()]
    return insert.from_select(list(arrays), select(*columns), include_defaults=False)


def _are_active(connection: Connection, run_ids: set[str]) -> bool:
    ids = sorted(run_ids)
    active = 0
    for at in range(0, len(ids), _IDS_AT_ONCE):
        found = select(_RUNS.c.lifecycle_stage).where(_RUNS.c.run_uuid.in_(ids[at : at + _IDS_AT_ONCE]))
        active += sum(stage == LifecycleStage.ACTIVE for stage in connection.execute(found).scalars())
    return active == len(ids)


def _row(run_id: str, metric: Metric) -> Row:
    """As MLflow keeps what no database can: NaN as 0 with a flag, infinities as the largest numbers."""
    value, is_nan = metric.value, math.isnan(metric.value)
    if is_nan:
        value = 0.0
    elif math.isinf(value):
        value = math.copysign(_LARGEST, value)
    return {
        "run_uuid": run_id, "key": metric.key, "value": value, "timestamp": metric.timestamp, "step": metric.step,
        "is_nan": is_nan,
    }


def _latest(metrics: Sequence[Row]) -> list[Row]:
    """Of every run and name the row that MLflow shows as its value."""
    latest: dict[tuple[str, str], Row] = {}
    for row in metrics:
        place = (row["run_uuid"], row["key"])
        known = latest.get(place)
        if known is None or _age(row) > _age(known):
            latest[place] = row
    return _sorted(latest.values())


def _age(row: Row) -> tuple[Any, ...]:
    return row["step"], row["timestamp"], row["value"]


def _sorted(rows: Iterable[Row]) -> list[Row]:
    """Always in one order, so that two writers do not wait for each other in a circle."""
    return sorted(rows, key=lambda row: (row["run_uuid"], row["key"]))
