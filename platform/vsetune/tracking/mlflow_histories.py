"""Reads curves of metrics over epochs out of MLflow, for people to look at; what we need ourselves is in tags."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence

from mlflow import MlflowClient
from mlflow.store.tracking.dbmodels import models
from sqlalchemy import Engine, select

MetricCurve = tuple[tuple[float, float], ...]
"""(epoch, value) of every validation that has the metric."""

_METRICS = models.SqlMetric.__table__
_EPOCH = "epoch"
_AT_ONCE = 500


def curves_of_metrics(
    client: MlflowClient, engine: Engine | None, run_ids: Sequence[str], names: Sequence[str]
) -> dict[str, dict[str, MetricCurve]]:
    """By run and metric; runs and metrics without a value are left out. engine: of the database, None behind a server,
    which is asked for every metric of every run."""
    values: defaultdict[str, defaultdict[str, dict[int, float]]] = defaultdict(lambda: defaultdict(dict))
    read = _from_server(client, run_ids, names) if engine is None else _from_database(engine, run_ids, names)
    for run_id, name, step, value in read:
        values[run_id][name][step] = value
    found = {run_id: _over_epochs(by_name) for run_id, by_name in values.items()}
    return {run_id: curves for run_id, curves in found.items() if curves}


def _over_epochs(by_name: dict[str, dict[int, float]]) -> dict[str, MetricCurve]:
    epochs = by_name.get(_EPOCH, {})
    return {
        name: tuple((epochs[step], value) for step, value in sorted(of_name.items()) if step in epochs)
        for name, of_name in by_name.items() if name != _EPOCH
    }


def _from_database(
    engine: Engine, run_ids: Sequence[str], names: Sequence[str]
) -> Iterator[tuple[str, str, int, float]]:
    columns = (_METRICS.c.run_uuid, _METRICS.c.key, _METRICS.c.step, _METRICS.c.value)
    with engine.connect() as connection:
        for at in range(0, len(run_ids), _AT_ONCE):
            asked = select(*columns).where(
                _METRICS.c.run_uuid.in_(run_ids[at : at + _AT_ONCE]), _METRICS.c.key.in_([*names, _EPOCH]),
                _METRICS.c.is_nan.is_(False),
            )
            yield from (tuple(row) for row in connection.execute(asked))


def _from_server(
    client: MlflowClient, run_ids: Iterable[str], names: Sequence[str]
) -> Iterator[tuple[str, str, int, float]]:
    for run_id in run_ids:
        known = client.get_run(run_id).data.metrics
        wanted = [name for name in names if name in known]
        for name in [*wanted, _EPOCH] if wanted else []:
            for metric in client.get_metric_history(run_id, name):
                yield run_id, name, metric.step, metric.value
