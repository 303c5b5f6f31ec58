"""Reads the attempts of a study out of MLflow's tables, where its store is a database that we reach ourselves.

MLflow's own search makes an object of every tag, parameter and newest number of a run, most of them for people. Here
only the tags are read that say what an attempt was, a few hundred runs at a time. Its classes are asked for the tables;
where they are not what is known here, the caller searches.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from mlflow.entities import LifecycleStage
from mlflow.store.tracking.dbmodels import models
from sqlalchemy import Connection, Engine, and_, or_, select

from vsetune.tracking import encoding
from vsetune.tracking.mlflow_sqlite import engine_of
from vsetune.tracking.records import AttemptRecord

_RUNS, _TAGS = models.SqlRun.__table__, models.SqlTag.__table__
_NEEDED = {"run_uuid", "experiment_id", "start_time", "end_time", "name", "lifecycle_stage"}
_AT_ONCE = 500


class _Run(NamedTuple):
    """A run that may be an attempt. status, seen, ended_ms: whatever is written of an attempt changes one of them."""

    started_ms: int
    name: str
    run_id: str
    ended_ms: int | None
    status: str
    seen: str


class AttemptRows:
    """Of one database. Errors are those of SQLAlchemy.

    Remembers the attempts of the experiment that was read last, and reads again those that have changed since.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._experiment = ""
        self._known: dict[_Run, AttemptRecord] = {}

    def of(self, experiment_id: str) -> list[AttemptRecord]:
        """The attempts of an experiment in the order they started, with equal parts shared among them."""
        known = self._known if self._experiment == experiment_id else {}
        decoding = encoding.Decoding()
        with self._engine.connect() as connection:
            runs = sorted(_runs(connection, experiment_id), key=lambda run: run[:3])
            new = [run for run in runs if run not in known]
            read = {run: decoding.attempt(run.run_id, tags) for run, tags in _with_tags(connection, new)}
        self._known = {run: known.get(run) or read[run] for run in runs}
        self._experiment = experiment_id
        return list(self._known.values())


def attempt_rows(uri: str) -> AttemptRows | None:
    """For the store behind a URI; None where MLflow's own calls are the only way in."""
    engine = engine_of(uri)
    if engine is None or not set(_RUNS.c.keys()) >= _NEEDED or set(_TAGS.c.keys()) != {"run_uuid", "key", "value"}:
        return None
    return AttemptRows(engine)


def _runs(connection: Connection, experiment_id: str) -> Iterator[_Run]:
    """What changes with an attempt is read before its tags: what comes between the two is read again next time."""
    status, seen, kind = (_TAGS.alias() for _ in range(3))
    joined = _RUNS
    for tag, name in ((kind, encoding.KIND), (status, encoding.STATUS), (seen, encoding.SEEN)):
        joined = joined.outerjoin(tag, and_(tag.c.run_uuid == _RUNS.c.run_uuid, tag.c.key == name))
    asked = select(
        _RUNS.c.start_time, _RUNS.c.name, _RUNS.c.run_uuid, _RUNS.c.end_time, status.c.value, seen.c.value
    ).select_from(joined).where(
        _RUNS.c.experiment_id == int(experiment_id), _RUNS.c.lifecycle_stage == LifecycleStage.ACTIVE,
        kind.c.value == "attempt",
    )
    for started_ms, name, run_id, ended_ms, state, moment in connection.execute(asked):
        yield _Run(started_ms, name or "", run_id, ended_ms, state or "", moment or "")


def _with_tags(connection: Connection, runs: Sequence[_Run]) -> Iterator[tuple[_Run, dict[str, str]]]:
    """Each with the tags of which an attempt is made."""
    key = _TAGS.c.key
    is_needed = or_(
        key.in_([encoding.STATUS, encoding.ERROR]),
        *(key.startswith(name, autoescape=True) for name in (encoding.RECORD, encoding.CURVE, encoding.SUMMARY)),
    )
    for at in range(0, len(runs), _AT_ONCE):
        part = runs[at : at + _AT_ONCE]
        tags: dict[str, dict[str, str]] = {run.run_id: {} for run in part}
        asked = select(_TAGS.c.run_uuid, key, _TAGS.c.value).where(_TAGS.c.run_uuid.in_(list(tags)), is_needed)
        for run_id, name, text in connection.execute(asked):
            tags[run_id][name] = text or ""
        yield from ((run, tags[run.run_id]) for run in part)
