"""MLflow's schema in SQLite: made and upgraded in a file, and told how long to wait for a lock."""

from __future__ import annotations

import sqlite3
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import mlflow.store.db.utils
import mlflow.tracking._tracking_service.utils
from alembic.script import ScriptDirectory
from alembic.util import CommandError
from mlflow.exceptions import MlflowException
from mlflow.store.db.base_sql_model import Base
from mlflow.store.tracking.dbmodels.initial_models import Base as InitialBase
from sqlalchemy import Engine, event
from sqlalchemy.exc import DBAPIError, SADeprecationWarning, SQLAlchemyError
from sqlalchemy.orm import configure_mappers

from vsetune.errors import UnusableStore
from vsetune.tracking.encoding import one_line
from vsetune.tracking.sqlite_file import BUSY_TIMEOUT_S

schema: Any = mlflow.store.db.utils  # untyped
services: Any = mlflow.tracking._tracking_service.utils
one_migration_at_a_time = threading.Lock()
"""Held by whoever may come to alembic, which keeps the migration at hand in globals of its modules."""

with warnings.catch_warnings():  # MLflow's classes warn when they are first used; here no other thread is disturbed
    warnings.simplefilter("ignore", SADeprecationWarning)
    configure_mappers()


@cache
def _revisions() -> frozenset[str]:
    scripts = ScriptDirectory.from_config(schema._get_alembic_config(""))
    return frozenset(script.revision for script in scripts.walk_revisions())


@cache
def _latest() -> str:
    return str(schema._get_latest_schema_revision())


def is_latest(version: str) -> bool:
    """Whether a database of this schema version is complete for the installed MLflow."""
    return version == _latest()


def is_of_this_mlflow(version: str) -> bool:
    """Whether the installed MLflow knows the version: it can be upgraded from there."""
    return version in _revisions()


def own_tables() -> set[str]:
    """Names of all tables that MLflow makes."""
    return {*Base.metadata.tables, *InitialBase.metadata.tables, "alembic_version", "sqlite_sequence"}


def create_schema(database: Path) -> None:
    """Make all tables in a new file. sqlite3.Error when the file cannot take them."""
    with _engine(database) as engine, one_migration_at_a_time:
        schema._initialize_tables(engine)


def upgrade_schema(database: Path, where: str) -> None:
    """Bring the tables of a file to the latest version. UnusableStore, which opens with `where`, if they resist."""
    try:
        with _engine(database) as engine, one_migration_at_a_time:
            schema._initialize_tables(engine)
    except (sqlite3.OperationalError, SQLAlchemyError, MlflowException, CommandError) as error:
        if getattr(error, "sqlite_errorcode", 0) == sqlite3.SQLITE_FULL:
            raise
        raise UnusableStore(
            f"{where}: holds runs, but its tables are not complete and cannot be brought to the installed MLflow "
            f"({one_line(error)}); restore a backup, or set tracking.uri to another file"
        ) from error


def engine_of(uri: str) -> Engine | None:
    """The database that MLflow's store behind a URI writes to; None behind a server, or where it knows workspaces."""
    store = services._get_store(uri)
    engine: Engine | None = getattr(store, "engine", None)
    if engine is None or getattr(store, "supports_workspaces", False):
        return None
    return engine


def shorten_busy_timeout(uri: str) -> None:
    """Make every statement of the store behind a SQLite URI give up a lock after seconds; MLflow says 20 s each."""
    engine = getattr(services._get_store(uri), "engine", None)
    if engine is not None and not event.contains(engine, "before_cursor_execute", _with_short_timeout):
        event.listen(engine, "before_cursor_execute", _with_short_timeout, retval=True)


def _with_short_timeout(
    connection: Any, cursor: Any, statement: str, parameters: Any, context: Any, executemany: bool
) -> tuple[str, Any]:
    if statement.startswith("PRAGMA busy_timeout"):
        statement = f"PRAGMA busy_timeout = {round(1000 * BUSY_TIMEOUT_S)}"
    return statement, parameters


@contextmanager
def _engine(database: Path) -> Iterator[Engine]:
    """All connections are closed at the end, so that the file is whole without its companions."""
    engine = schema.create_sqlalchemy_engine(f"sqlite:///{database}")
    try:
        yield engine
    except DBAPIError as error:
        if isinstance(error.orig, sqlite3.Error):
            raise error.orig from error
        raise
    finally:
        engine.dispose()
