"""Metrics and batches as MLflow takes them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from mlflow import MlflowClient
from mlflow.entities import Metric, Param, RunTag

from vsetune.tracking.encoding import point_metrics
from vsetune.tracking.point_blocks import CurvePoint
from vsetune.tracking.records import SYSTEM, ValidationPoint

DRAWN = "m_recall"
"""The number of which MLflow gets every validation: a row of a number takes 250 bytes in its tables."""
_OF_THE_CURVE = {"m_recall", "epoch", "pairs_seen", "train_seconds", "device_seconds"}
_BATCH_METRICS, _BATCH_STRINGS = 900, 90  # MLflow takes 1,000 entities a batch, 100 of them params or tags


def metrics_of(point: ValidationPoint, start_ms: int, *, all_numbers: bool) -> list[Metric]:
    """What MLflow draws of a validation: M-Recall and what was measured of its machine, or all its numbers.

    start_ms: when the run started; time stamps depend on it and the point alone.
    """
    stamp = _stamp(start_ms, point.train_seconds)
    numbers = point_metrics(point)
    return [
        Metric(name, float(value), stamp, point.step) for name, value in numbers.items()
        if all_numbers or name == DRAWN or name.startswith(SYSTEM)
    ]


def summary_metrics(
    summary: Mapping[str, float], last: CurvePoint, start_ms: int, *, all_numbers: bool
) -> list[Metric]:
    """The numbers of a summary, at the last step, without those that are drawn as series of the curve."""
    stamp = _stamp(start_ms, last.train_seconds)
    drawn = _OF_THE_CURVE if all_numbers else {DRAWN}
    return [Metric(name, float(value), stamp, last.step) for name, value in summary.items() if name not in drawn]


def log_in_batches(
    client: MlflowClient, run_id: str, *, metrics: Sequence[Metric] = (), params: Mapping[str, str] | None = None,
    tags: Mapping[str, str] | None = None,
) -> None:
    """One request, unless MLflow's limits ask for more. Tags go last: they claim that the metrics are there."""
    *earlier, last = [metrics[at : at + _BATCH_METRICS] for at in range(0, len(metrics), _BATCH_METRICS)] or [()]
    for part in earlier:
        client.log_batch(run_id, metrics=part)
    new_params = [Param(*item) for item in (params or {}).items()]
    new_tags = [RunTag(*item) for item in (tags or {}).items()]
    for at in range(0, max(len(new_params), len(new_tags), 1), _BATCH_STRINGS):
        part_of = slice(at, at + _BATCH_STRINGS)
        client.log_batch(run_id, last if at == 0 else (), new_params[part_of], new_tags[part_of])


def _stamp(start_ms: int, train_seconds: float) -> int:
    return start_ms + round(1000 * train_seconds)
