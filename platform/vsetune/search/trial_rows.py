"""Writes whole trials into Optuna's tables, one transaction each.

Optuna's own calls write one value per transaction and read the study again for each; a trial with the points of its
curve took them longer than the draw. The rows are those that they would write: what its classes know of types and of
how times are stored is asked of them, in whatever version is installed.
"""

from __future__ import annotations

import copy
import datetime
import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from optuna.distributions import distribution_to_json
from optuna.storages import RDBStorage
from optuna.storages._rdb import models
from optuna.trial import FrozenTrial, TrialState
from sqlalchemy import Column, Connection, Integer, MetaData, String, Table, bindparam, cast, func, inspect, select
from sqlalchemy.dialects import postgresql

from vsetune.errors import StorageError

_TRIALS, _STUDIES = models.TrialModel.__table__, models.StudyModel.__table__
_PARAMS, _ATTRIBUTES = models.TrialParamModel.__table__, models.TrialUserAttributeModel.__table__
_VALUES, _POINTS = models.TrialValueModel.__table__, models.TrialIntermediateValueModel.__table__

_DRIVERS = Table(
    "vsetune_drivers", MetaData(), Column("study_id", Integer, primary_key=True, autoincrement=False),
    Column("driver", String(64), nullable=False),
)
"""A table of our own beside Optuna's: which driver may write to a study."""

Row = dict[str, Any]


class TrialRows:
    """Of one database. Errors are those of SQLAlchemy, and StorageError for a driver that another one has succeeded;
    after one, nothing of the call has been written.

    driver: a name of its own for every driver; None for a search that only its own process can know.
    """

    def __init__(self, backend: RDBStorage, driver: str | None = None) -> None:
        self._backend, self._driver = backend, driver
        self._writes_ahead: bool | None = None

    def take(self, study_ids: Iterable[int]) -> None:
        """From now on this driver alone writes to these studies; a write that another one has begun ends before."""
        with self._backend.engine.begin() as connection:
            _DRIVERS.create(connection, checkfirst=True)
            for study_id in study_ids:
                connection.execute(_DRIVERS.delete().where(_DRIVERS.c.study_id == study_id))
                connection.execute(_DRIVERS.insert().values(study_id=study_id, driver=self._driver))

    def add(self, study_id: int, trial: FrozenTrial, number: int | None = None) -> FrozenTrial:
        """The trial as the database has it now, with its number there: the given one, or the next. It is on the disk.
        """
        with self._transaction(study_id, waits=True) as connection:
            self._lock(connection, study_id)
            if number is None:
                last = select(func.max(_TRIALS.c.number)).where(_TRIALS.c.study_id == study_id)
                found = connection.execute(last).scalar_one()
                number = 0 if found is None else int(found) + 1
            row = _trial_row(
                study_id=study_id, number=number, state=trial.state, datetime_start=trial.datetime_start,
                datetime_complete=trial.datetime_complete,
            )
            inserted = connection.execute(_TRIALS.insert().values(row)).inserted_primary_key
            assert inserted is not None, "every database tells the key of one row"
            key = int(inserted[0])
            _insert(connection, _PARAMS, [
                {
                    "trial_id": key, "param_name": name,
                    "param_value": trial.distributions[name].to_internal_repr(value),
                    "distribution_json": distribution_to_json(trial.distributions[name]),
                }
                for name, value in trial.params.items()
            ])
            _insert(connection, _VALUES, _value_rows(key, trial))
            _insert(connection, _ATTRIBUTES, [
                {"trial_id": key, "key": name, "value_json": json.dumps(value)}
                for name, value in trial.user_attrs.items()
            ])
        return numbered(trial, number, key)

    def end(self, study_id: int, before: FrozenTrial, told: FrozenTrial) -> None:
        """How a trial that was running ended. before: as the database has it.

        In a file in write-ahead mode, and in PostgreSQL, it outlives the process at once, and a power failure once the
        next `add` has waited for the disk; a resumed study tells again what is missing.
        """
        key = told._trial_id
        with self._transaction(study_id, waits=False) as connection:
            new = {step: told.intermediate_values[step] for step in told.intermediate_values
                   if step not in before.intermediate_values}
            _insert(connection, _POINTS, [{"trial_id": key, "step": step, **_point(new[step])} for step in new])
            _insert(connection, _VALUES, _value_rows(key, told))
            row = _trial_row(state=told.state, datetime_complete=told.datetime_complete)
            connection.execute(_TRIALS.update().where(_TRIALS.c.trial_id == key).values(row))

    @contextmanager
    def _transaction(self, study_id: int, *, waits: bool) -> Iterator[Connection]:
        """Of the driver that has the study. waits: for the disk at its end."""
        with self._backend.engine.connect() as connection:
            if self._is_ahead(connection):
                connection.exec_driver_sql(f"PRAGMA synchronous = {'FULL' if waits else 'NORMAL'}")
            elif not waits and self._backend.engine.name == "postgresql":
                connection.exec_driver_sql("SET LOCAL synchronous_commit = off")
            self._fence(connection, study_id)
            yield connection
            connection.commit()

    def _fence(self, connection: Connection, study_id: int) -> None:
        """A look at the lease before a write says nothing of the moment of the write, so the write looks itself: until
        its transaction ends the row of its driver is locked, and nobody takes the study."""
        if self._driver is None:
            return
        mine = (_DRIVERS.c.study_id == study_id) & (_DRIVERS.c.driver == self._driver)
        if connection.execute(_DRIVERS.update().where(mine).values(driver=self._driver)).rowcount != 1:
            raise StorageError("another process has taken the study over, and this one writes nothing more")

    def _is_ahead(self, connection: Connection) -> bool:
        if self._writes_ahead is None:
            is_sqlite = self._backend.engine.name == "sqlite"
            self._writes_ahead = is_sqlite and connection.exec_driver_sql("PRAGMA journal_mode").scalar() == "wal"
        return self._writes_ahead

    def _lock(self, connection: Connection, study_id: int) -> None:
        """So that two writers never give one number twice. A writer to SQLite has the whole file."""
        if self._backend.engine.name != "sqlite":
            connection.execute(
                select(_STUDIES.c.study_id).where(_STUDIES.c.study_id == study_id).with_for_update()
            ).scalar_one()


def _insert(connection: Connection, table: Any, rows: list[Row]) -> None:
    """In one statement: to PostgreSQL with an array for each column, where the driver would send row after row."""
    if len(rows) > 1 and connection.engine.name == "postgresql":
        names = list(rows[0])
        connection.execute(_of_arrays(table, names), {name: [row[name] for row in rows] for name in names})
    elif rows:
        connection.execute(table.insert(), rows)


def _of_arrays(table: Any, names: Sequence[str]) -> Any:
    arrays = {name: postgresql.ARRAY(table.c[name].type) for name in names}
    columns = [func.unnest(cast(bindparam(name, type_=kind), kind)).label(name) for name, kind in arrays.items()]
    return table.insert().from_select(names, select(*columns))


def _trial_row(**fields: Any) -> Row:
    """Fields of a trial as its columns, without those that are None."""
    trial = models.TrialModel(**fields)
    columns = {each.columns[0].name: getattr(trial, each.key) for each in inspect(models.TrialModel).column_attrs}
    return {name: value for name, value in columns.items() if value is not None}


def _value_rows(key: int, trial: FrozenTrial) -> list[Row]:
    stored = [models.TrialValueModel.value_to_stored_repr(value) for value in trial.values or []]
    return [
        {"trial_id": key, "objective": objective, "value": value, "value_type": kind}
        for objective, (value, kind) in enumerate(stored)
    ]


def _point(value: float) -> Row:
    stored, kind = models.TrialIntermediateValueModel.intermediate_value_to_stored_repr(value)
    return {"intermediate_value": stored, "intermediate_value_type": kind}


def numbered(trial: FrozenTrial, number: int, trial_id: int) -> FrozenTrial:
    """A copy with its number and its key in the storage."""
    stored = copy.copy(trial)
    stored.number, stored._trial_id = number, trial_id
    return stored


def ended(trial: FrozenTrial, state: TrialState, value: float | None, points: Mapping[int, float]) -> FrozenTrial:
    """A copy with its end, as `optuna.Study.tell` has it: a stopped trial has its last point for a value."""
    told = copy.copy(trial)
    told.intermediate_values = dict(sorted({**points, **trial.intermediate_values}.items()))
    last = next(reversed(told.intermediate_values.values()), math.nan)
    if value is None and state == TrialState.PRUNED and not math.isnan(last):
        value = last
    told.state, told.values = state, None if value is None else [float(value)]
    told.datetime_complete = datetime.datetime.now()
    return told
