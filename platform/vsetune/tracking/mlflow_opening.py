"""The one place where MLflow opens a store. A SQLite file has been made before, see `opening.made_ready`."""

from __future__ import annotations

from mlflow import MlflowClient

from vsetune.tracking.mlflow_sqlite import one_migration_at_a_time, shorten_busy_timeout


def client_of(uri: str) -> MlflowClient:
    """A client of the store behind a URI, any number of threads at once. MLflow makes its tables in a new database.

    Raises what MLflow and the libraries it talks through raise.
    """
    with one_migration_at_a_time:
        client = MlflowClient(tracking_uri=uri)
    shorten_busy_timeout(uri)
    return client
