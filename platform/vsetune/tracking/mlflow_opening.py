"""The one place where MLflow opens a store. A SQLite file has been made before, see `opening.made_ready`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from mlflow import MlflowClient
from sqlalchemy import text

from vsetune.tracking.mlflow_sqlite import one_migration_at_a_time, schema, shorten_busy_timeout
from vsetune.tracking.opening import is_database

_OPENING_LOCK = 0x767365  # any number that nobody else asks PostgreSQL for


def client_of(uri: str) -> MlflowClient:
    """A client of the store behind a URI, any number of threads at once. MLflow makes its tables in a new database.

    Raises what MLflow and the libraries it talks through raise.
    """
    with one_migration_at_a_time, _database_open(uri):
        client = MlflowClient(tracking_uri=uri)
    shorten_busy_timeout(uri)
    return client


@contextmanager
def _database_open(uri: str) -> Iterator[None]:
    """A connection to the database of a server: one that refuses (password, no such database) says so at once, where
    MLflow would try again for an hour. On PostgreSQL no other process opens a store meanwhile, or both make its tables.
    """
    if not is_database(uri):
        yield
        return
    engine = schema.create_sqlalchemy_engine(uri)
    try:
        with engine.connect() as connection:
            if engine.dialect.name == "postgresql":
                connection.execute(text("SET lock_timeout = '60s'"))
                connection.execute(text("SELECT pg_advisory_lock(:number)"), {"number": _OPENING_LOCK})
            yield
    finally:
        engine.dispose()
