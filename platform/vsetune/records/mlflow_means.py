"""Mean curves in MLflow: of each configuration that several seeds have finished a run of its own, above theirs.

MLflow only adds points to a run. So a mean over other seeds than before is a new run, and the old one goes to MLflow's
bin; a mean over the same seeds is left as it is, however often the log is exported.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from vsetune.home.hashes import fingerprint_of
from vsetune.records.events import Validated
from vsetune.records.log import Line
from vsetune.records.mlflow_client import ATTEMPT, KIND, NOTE, PARENT, log_in_batches
from vsetune.records.mlflow_descriptions import CONFIGURATION, MEAN, attempt_params, command_tags, configuration_words
from vsetune.records.state import Attempt, StudyState

if TYPE_CHECKING:
    from mlflow import MlflowClient

_FEWEST = 2
_RECALLS = tuple(f"{way}_r{k}" for way in ("i2t", "t2i") for k in (1, 5, 10))
_TOTALS = ("best_m_recall", "epochs_to_best")
_OVER = "vsetune.attempts"
"""Tag of a mean: fingerprint of the attempts that it is over, with their end."""


@dataclass(frozen=True)
class MeanCurve:
    """Mean over the seeds of a configuration. attempts: the finished one of each seed, in the order of seeds. series:
    (step, mean) by metric, at the steps that all attempts have. totals: means of their totals. ended: Unix seconds."""

    attempts: Sequence[Attempt]
    ended: float
    series: Mapping[str, Sequence[tuple[int, float]]] = field(default_factory=dict)
    totals: Mapping[str, float] = field(default_factory=dict)

    @property
    def network(self) -> str:
        return self.attempts[0].start.network

    @property
    def name(self) -> str:
        """The same for every mean of this configuration."""
        start = self.attempts[0].start
        return f"{start.study}/{start.cell}/{fingerprint_of(dict(start.configuration))[:12]}"

    @property
    def over(self) -> str:
        return fingerprint_of({
            "attempts": [each.attempt_id for each in self.attempts], "ended": self.ended, "totals": dict(self.totals)
        })

    @property
    def seeds(self) -> str:
        return ", ".join(str(each.start.seed) for each in self.attempts)


def mean_curves(lines: Iterable[Line]) -> list[MeanCurve]:
    """Of each configuration with at least two finished seeds, sorted by name. lines: of a whole log."""
    state, points = StudyState(), dict[str, dict[str, dict[int, float]]]()
    for line in lines:
        state.read(line)
        if line.kind == "validated":
            event = line.event()
            assert isinstance(event, Validated)
            _add(points.setdefault(event.attempt, {}), event)
    found = [
        MeanCurve(
            of_seeds, max(each.seen for each in of_seeds),
            _means([points.get(each.attempt_id, {}) for each in of_seeds]),
            {name: _mean([each.summary[name] for each in of_seeds]) for name in _TOTALS
             if all(name in each.summary for each in of_seeds)},
        )
        for of_seeds in _seeds_of_configurations(list(state.attempts.values()))
    ]
    return sorted(found, key=lambda curve: curve.name)


def _add(series: dict[str, dict[int, float]], event: Validated) -> None:
    for point in event.points:
        numbers = {"m_recall": point.m_recall, "epoch": point.epoch}
        numbers |= {name: float(point.metrics[name]) for name in _RECALLS if name in point.metrics}
        for name, value in numbers.items():
            series.setdefault(name, {})[point.step] = value


def _seeds_of_configurations(attempts: Sequence[Attempt]) -> Iterator[list[Attempt]]:
    """The finished attempt of each seed, by configuration; a trial counts by its last attempt."""
    last = {each.start.trial: each for each in sorted(attempts, key=lambda each: each.start.number)}
    groups: dict[tuple[str, str], dict[int, Attempt]] = {}
    for each in last.values():
        if each.status == "finished":
            key = each.start.cell, json.dumps(dict(each.start.configuration), sort_keys=True)
            groups.setdefault(key, {})[each.start.seed] = each
    for of_seed in groups.values():
        if len(of_seed) >= _FEWEST:
            yield [of_seed[seed] for seed in sorted(of_seed)]


def _means(curves: Sequence[Mapping[str, Mapping[int, float]]]) -> dict[str, list[tuple[int, float]]]:
    found = {}
    for name in curves[0]:
        of_seeds = [each.get(name, {}) for each in curves]
        steps = sorted(set(of_seeds[0]).intersection(*of_seeds[1:]))
        found[name] = [(step, _mean([each[step] for each in of_seeds])) for step in steps]
    return found


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def keep_mean(
    client: MlflowClient, experiment_id: str, curve: MeanCurve, *, parent: str, runs: Mapping[str, str]
) -> None:
    """Make the run of a mean, unless it is there, and nest the runs of its seeds below it. parent: the study's run.
    runs: ids of runs by attempt."""
    wanted = f"tags.`{KIND}` = '{MEAN}' AND tags.`{ATTEMPT}` = '{curve.name}'"
    known = client.search_runs([experiment_id], wanted)
    whole = [run.info.run_id for run in known
             if run.info.status == "FINISHED" and run.data.tags.get(_OVER) == curve.over]
    kept = whole[0] if whole else _make(client, experiment_id, curve, parent)
    for attempt in curve.attempts:
        if attempt.attempt_id in runs:
            client.set_tag(runs[attempt.attempt_id], PARENT, kept)
    for run in known:  # last: a crash before it leaves one run too many rather than none
        if run.info.run_id != kept:
            client.delete_run(run.info.run_id)


def _make(client: MlflowClient, experiment_id: str, curve: MeanCurve, parent: str) -> str:
    from mlflow.entities import Metric

    start, count, at = curve.attempts[0].start, len(curve.attempts), round(1000 * curve.ended)
    words = configuration_words(start.configuration)
    tags = {
        **command_tags(start.study), KIND: MEAN, ATTEMPT: curve.name, _OVER: curve.over, PARENT: parent,
        "cell": start.cell, "network": start.network, "loss": start.loss, "status": "finished", "seeds": curve.seeds,
        CONFIGURATION: words,
        NOTE: f"**{start.cell}** ({words}): mean over the seeds {curve.seeds}. Each seed is a run below this one.",
    }
    shown = f"{start.loss}, mean of {count} seeds of {start.cell}"  # lists cut names at their end
    run = client.create_run(experiment_id, start_time=at, run_name=shown, tags=tags)
    run_id = str(run.info.run_id)
    params = {**attempt_params(start), "seed": f"mean of {count}"}
    last = max((step for points in curve.series.values() for step, _ in points), default=0)
    metrics = [Metric(name, value, at, step) for name, points in curve.series.items() for step, value in points]
    metrics += [Metric(name, value, at, last) for name, value in curve.totals.items()]
    log_in_batches(client, run_id, metrics=metrics, params=params)
    client.set_terminated(run_id, "FINISHED", at)
    return run_id
