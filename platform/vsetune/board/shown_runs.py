"""Data on single runs for the page: their numbers, links to MLflow and galleries, and measured curves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from vsetune.board.charts import NEGATIVE_METRICS
from vsetune.board.rows import Leaderboard
from vsetune.board.selection import dataset_of
from vsetune.board.table_text import rows_by_key
from vsetune.metrics.curves import Curve, best_of_curve
from vsetune.records.mlflow_descriptions import charts_link, run_link
from vsetune.records.state import Attempt
from vsetune.records.studies import Studies

COLUMNS = (
    "key", "study", "trial", "number", "seed", "phase", "status", "best_m_recall", "epochs_to_best", "epochs",
    "device_seconds", "run", "error",
)
"""Names of the entries of a run in `ShownRuns.to_plain`; `study` is the index in its list of studies."""
_ERROR_LENGTH = 300


@dataclass(frozen=True)
class ShownRuns:
    """All attempts of a page. galleries: by attempt, the names of its gallery pages. measured: by (study, trial) shown,
    curves of its metrics by name. links: by study, its addresses in MLflow's UI if it has them: `charts`, `run` with
    {run} in place of the id of a run, and `means` by network, of the charts of mean curves. runs: by attempt,
    its run in MLflow."""

    attempts: Sequence[Attempt]
    galleries: Mapping[str, Sequence[str]] = field(default_factory=dict)
    measured: Mapping[tuple[str, str], Mapping[str, Curve]] = field(default_factory=dict)
    links: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    runs: Mapping[str, str] = field(default_factory=dict)

    def to_plain(self, boards: Sequence[Leaderboard]) -> dict[str, Any]:
        """Column names and one list per run, each with the key of its row. Lists are compact for ten thousand runs."""
        keys = {(row.study, row.dataset, row.cell): key for board in boards for key, row in rows_by_key(board).items()}
        studies = list(dict.fromkeys(attempt.start.study for attempt in self.attempts))
        places = {study: place for place, study in enumerate(studies)}
        return {
            "columns": COLUMNS, "runs": [_numbers(attempt, keys, places, self.runs) for attempt in self.attempts],
            "studies": studies, "links": [self.links.get(study) for study in studies], "galleries": self.galleries,
        }


def shown_runs(
    store: Studies, boards: Sequence[Leaderboard], attempts: Sequence[Attempt], *, mlflow_url: str | None
) -> ShownRuns:
    """The attempts, with galleries, curves and links of the seeds that the boards show, from a store. mlflow_url:
    address of MLflow's UI, None without one.

    Raises StorageError if the store cannot be read.
    """
    latest = {
        (attempt.start.study, attempt.start.trial): attempt.attempt_id
        for attempt in sorted(attempts, key=lambda each: each.start.number)
    }
    shown = [(row.study, seed.trial) for board in boards for row in board.rows for seed in row.seeds]
    ids = {trial: latest[trial] for trial in shown}
    measured = store.metric_curves(list(ids.values()), NEGATIVE_METRICS)
    galleries = {run: store.artifact_names(run, "gallery") for run in ids.values()}
    studies = {study for study, _ in ids} if mlflow_url is not None else set()
    exported = {study: store.in_mlflow(study) for study in studies}
    return ShownRuns(
        attempts, {run: names for run, names in galleries.items() if names},
        {trial: measured[run] for trial, run in ids.items() if run in measured},
        {study: _links(f"{mlflow_url}/", of, networks_of_means(boards, study))
         for study, (of, _) in exported.items() if of is not None},
        {name: run for _, runs in exported.values() for name, run in runs.items()},
    )


def networks_of_means(boards: Sequence[Leaderboard], study: str) -> list[str]:
    """The networks of which a loss has several seeds, so that MLflow has mean curves of a study that has ended."""
    rows = (row for board in boards for row in board.rows if row.study == study and len(row.seeds) > 1)
    return list(dict.fromkeys(row.network for row in rows))


def _links(ui: str, experiment_id: str, networks: Sequence[str]) -> dict[str, Any]:
    return {
        "charts": ui + charts_link(experiment_id), "run": ui + run_link(experiment_id, "{run}"),
        "means": {network: ui + charts_link(experiment_id, network) for network in networks},
    }


def _numbers(
    attempt: Attempt, keys: Mapping[tuple[str, str, str], str], places: Mapping[str, int],
    runs: Mapping[str, str],
) -> list[str | int | float | None]:
    start, summary = attempt.start, attempt.summary
    best = best_of_curve(attempt.curve) if attempt.curve else None
    dataset = dataset_of(attempt)
    return [
        keys.get((start.study, dataset, f"{start.network}.{start.loss}"), f"{dataset}\t{start.network}\t{start.loss}"),
        places[start.study], start.trial, start.number, start.seed, start.phase, attempt.status,
        best.m_recall if best else None, best.epoch if best else None,
        max(attempt.curve[-1][0] if attempt.curve else 0.0, summary.get("epochs", 0.0)),
        summary.get("device_seconds", summary.get("train_seconds")), runs.get(attempt.attempt_id),
        attempt.error[:_ERROR_LENGTH] if attempt.error else None,
    ]
