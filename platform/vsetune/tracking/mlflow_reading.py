"""Reads MLflow's tables through the connections of its own store, where that is a database that we reach ourselves.

Its classes are asked for the tables; where they are not what is known here, the caller searches.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from mlflow.store.tracking.dbmodels import models
from sqlalchemy import Engine, text

from vsetune.tracking.attempt_rows import NEEDED, Ask, AttemptRows
from vsetune.tracking.mlflow_sqlite import engine_of

_TABLES = {table.__tablename__: table.__table__ for table in (models.SqlExperiment, models.SqlRun, models.SqlTag)}


def attempt_rows(uri: str) -> AttemptRows | None:
    """For the store behind a URI; None where MLflow's own calls are the only way in."""
    engine = engine_of(uri)
    if engine is None or any(not set(_TABLES[name].c.keys()) >= columns for name, columns in NEEDED.items()):
        return None
    return AttemptRows(lambda: _connected(engine))


@contextmanager
def _connected(engine: Engine) -> Iterator[Ask]:
    with engine.connect() as connection:
        yield lambda asked, given: connection.execute(text(asked), given)
