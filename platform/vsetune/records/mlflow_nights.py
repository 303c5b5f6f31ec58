"""Nights of sweeps in MLflow: an experiment `nightly/NAME` for each sweep, a run for each night."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from mlflow.entities import Metric, Run

from vsetune.home.addresses import masked
from vsetune.records.mlflow_client import (
    KIND,
    LOG,
    NOTE,
    PIECE,
    experiment_of,
    in_one_line,
    log_in_batches,
    open_client,
)

NIGHTS = "nights"
"""Kind of an experiment that holds the nights of a sweep."""
_DATE = "vsetune.date"
_MOST_OF_A_DATE = 50
_REFUSED = re.compile(r"[^A-Za-z0-9_.-]")
"""Characters that are replaced: MLflow accepts few others in the name of a metric, and reads some of them as a path."""


@dataclass(frozen=True)
class NightRun:
    """A night in a form for comparison. history: identity of the history that it belongs to. date: ISO day. started,
    ended: Unix seconds.

    metrics: finite numbers by name. tags: short texts by name. note: Markdown shown on top.
    """

    history: str
    sweep: str
    date: str
    started: float
    ended: float
    metrics: Mapping[str, float]
    tags: Mapping[str, str]
    note: str


class MlflowNights:
    """Stores nights in MLflow. A night that is stored again replaces the earlier one of its history and date.

    StorageError while the store is away, UsageError for a request that it refuses, each one line.
    """

    def __init__(self, uri: str) -> None:
        self._uri, self._client = uri, open_client(uri)

    def keep(self, night: NightRun) -> str:
        """Make the night's run, finished. Returns its id.

        The new run is complete before the old one goes to MLflow's bin, so a crash in between leaves two runs rather
        than none.
        """
        with in_one_line(self._uri, f"keep the night {night.date}"):
            experiment_id = experiment_of(
                self._client, self._uri, f"nightly/{night.sweep}", kind=NIGHTS,
                note=f"One run per night of the nightly sweep {night.sweep}.",
            ).experiment_id
            of_date = f"tags.`{LOG}` = '{night.history}' AND tags.`{_DATE}` = '{night.date}'"
            earlier = self._client.search_runs([experiment_id], of_date, max_results=_MOST_OF_A_DATE)
            run = self._create(night, experiment_id)
            for old in earlier:
                self._client.delete_run(old.info.run_id)
            return str(run.info.run_id)

    def keep_files(self, run_id: str, files: Mapping[str, str]) -> None:
        """Store files of a run, by name; they replace earlier ones of the same names."""
        with in_one_line(self._uri, f"keep files of run {run_id}"):
            for name, text in files.items():
                self._client.log_text(run_id, text, name)

    def _create(self, night: NightRun, experiment_id: str) -> Run:
        started, ended = round(1000 * night.started), round(1000 * night.ended)
        exact = {KIND: "night", LOG: night.history, _DATE: night.date, NOTE: night.note}
        tags = {name: masked(text)[: PIECE] for name, text in (dict(night.tags) | exact).items()}
        run = self._client.create_run(experiment_id, start_time=started, tags=tags, run_name=night.date)
        metrics = [Metric(_REFUSED.sub("_", name), float(value), ended, 0) for name, value in night.metrics.items()]
        log_in_batches(self._client, run.info.run_id, metrics=metrics)
        self._client.set_terminated(run.info.run_id, "FINISHED", end_time=ended)
        return run
