"""Runs of experiments in MLflow, however many there are."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from mlflow import MlflowClient
from mlflow.entities import Run, ViewType

_PAGE = 250


def runs_in(
    client: MlflowClient, experiment_ids: Sequence[str], filter_string: str = "", *, view: int = ViewType.ACTIVE_ONLY
) -> Iterator[Run]:
    """A page at a time. filter_string: as MLflow's search takes it; empty: all of them. view: a ViewType of MLflow."""
    token: str | None = None
    while True:
        page = client.search_runs(list(experiment_ids), filter_string, view, max_results=_PAGE, page_token=token)
        yield from page
        token = page.token
        if not token:
            return
