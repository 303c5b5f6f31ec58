"""Reads the attempts of a study out of MLflow's tables, where its store is a database that we reach ourselves.

MLflow's own search makes an object of every tag, parameter and newest number of a run, most of them for people. Here
only the tags are read that say what an attempt was, a few hundred runs at a time. Its classes are asked for the tables;
where they are not what is known here, the caller searches.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from mlflow.entities import LifecycleStage
from mlflow.store.tracking.dbmodels import models
from sqlalchemy import Connection, Engine, or_, select

from vsetune.tracking import encoding
from vsetune.tracking.mlflow_sqlite import engine_of
from vsetune.tracking.records import AttemptRecord

_RUNS, _TAGS = models.SqlRun.__table__, models.SqlTag.__table__
_NEEDED = {"run_uuid", "experiment_id", "start_time", "name", "lifecycle_stage"}
_AT_ONCE = 500


class _Run(NamedTuple):
    started_ms: int
    name: str
    run_id: str


class AttemptRows:
    """Of one database. Errors are those of SQLAlchemy."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def of(self, experiment_id: str) -> Iterator[AttemptRecord]:
        """The attempts of an experiment in the order they started, with equal parts shared among them."""
        decoding = encoding.Decoding()
        with self._engine.connect() as connection:
            runs = sorted(_runs(connection, experiment_id))
            for at in range(0, len(runs), _AT_ONCE):
                part = runs[at : at + _AT_ONCE]
                tags = _tags(connection, [run.run_id for run in part])
                for run in part:
                    if tags[run.run_id].get(encoding.KIND) == "attempt":
                        yield decoding.attempt(run.run_id, tags[run.run_id])


def attempt_rows(uri: str) -> AttemptRows | None:
    """For the store behind a URI; None where MLflow's own calls are the only way in."""
    engine = engine_of(uri)
    if engine is None or not set(_RUNS.c.keys()) >= _NEEDED or set(_TAGS.c.keys()) != {"run_uuid", "key", "value"}:
        return None
    return AttemptRows(engine)


def _runs(connection: Connection, experiment_id: str) -> Iterator[_Run]:
    asked = select(_RUNS.c.start_time, _RUNS.c.name, _RUNS.c.run_uuid).where(
        _RUNS.c.experiment_id == int(experiment_id), _RUNS.c.lifecycle_stage == LifecycleStage.ACTIVE
    )
    return (_Run(started_ms, name or "", run_id) for started_ms, name, run_id in connection.execute(asked))


def _tags(connection: Connection, run_ids: list[str]) -> dict[str, dict[str, str]]:
    """By run, the tags of which an attempt is made."""
    key = _TAGS.c.key
    is_needed = or_(
        key.in_([encoding.KIND, encoding.STATUS, encoding.ERROR]),
        *(key.startswith(name, autoescape=True) for name in (encoding.RECORD, encoding.CURVE, encoding.SUMMARY)),
    )
    tags: dict[str, dict[str, str]] = {run_id: {} for run_id in run_ids}
    asked = select(_TAGS.c.run_uuid, key, _TAGS.c.value).where(_TAGS.c.run_uuid.in_(run_ids), is_needed)
    for run_id, name, text in connection.execute(asked):
        tags[run_id][name] = text or ""
    return tags
