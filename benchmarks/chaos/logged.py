"""The log of a study, and what MLflow has of it: nothing lost, doubled or out of order? Every problem is one line."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from mlflow import MlflowClient
from mlflow.entities import Run

from vsetune.records.events import AttemptStart, Begun, Closed, Ended, Opened, Validated, attempt_id
from vsetune.records.log import LOG_FILE, lines_of
from vsetune.records.mlflow_client import KIND
from vsetune.records.mlflow_descriptions import MEAN

Series = dict[str, dict[int, float]]
"""By the name of a metric, its values by step."""
_STATUS = {"finished": "FINISHED", "pruned": "FINISHED", "failed": "FAILED", "killed": "KILLED"}
_SHOWN = 5


@dataclass
class LoggedAttempt:
    """An attempt as its events tell it. ends: how often it was ended as other than killed."""

    start: AttemptStart
    status: str = "running"
    ends: int = 0
    steps: list[int] = field(default_factory=list)
    series: Series = field(default_factory=dict)
    repeated: list[str] = field(default_factory=list)
    error: str = ""

    @property
    def trial(self) -> str:
        return self.start.trial


@dataclass
class Logged:
    """problems: of the log itself. status: as the last driver left the study."""

    attempts: dict[str, LoggedAttempt] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)
    status: str = ""
    events: int = 0


def read_log(folder: Path) -> Logged:
    """The log in a study's folder. DataError where a line is damaged that others follow."""
    found = Logged()
    for line in lines_of(folder / LOG_FILE, number=0, strict=True):
        found.events += 1
        event = line.event()
        match event:
            case Opened():
                found.status = "running"
                for each in found.attempts.values():
                    each.status = "killed" if each.status == "running" else each.status
            case Begun():
                attempt = found.attempts.setdefault(attempt_id(event.start), LoggedAttempt(event.start))
                if attempt.status not in ("running", "killed"):
                    found.problems.append(f"line {line.number}: {attempt_id(event.start)} begins after it has ended")
                attempt.status = "running"
            case Validated():
                found.problems += _validated(found, event, line.number)
            case Ended():
                attempt = found.attempts[event.attempt]
                attempt.status, attempt.ends = event.status, attempt.ends + (event.status != "killed")
                attempt.error = event.error or ""
                step = round(event.summary.get("steps", 0)) or max(attempt.steps, default=0)
                for name, value in event.summary.items():
                    if name not in _OF_POINTS:
                        attempt.series.setdefault(name, {})[step] = float(value)
            case Closed():
                found.status = event.status
    return found


def twice(found: Logged) -> list[str]:
    """Trials that ended twice."""
    ends: dict[str, int] = {}
    for attempt in found.attempts.values():
        ends[attempt.trial] = ends.get(attempt.trial, 0) + attempt.ends
    return [f"{trial}: ended {count} times" for trial, count in ends.items() if count > 1]


def export_problems(uri: str, study: str, found: Logged) -> list[str]:
    """Where MLflow says something else than the log: every attempt, its status, and every value of every metric."""
    client = MlflowClient(uri)
    experiment = client.get_experiment_by_name(study)
    if experiment is None:
        return [f"{study}: is not in MLflow"]
    runs: dict[str, Run] = {}
    problems = []
    for run in _runs(client, experiment.experiment_id):
        if run.data.tags[KIND] == MEAN:  # made of the others
            continue
        name = run.data.tags["vsetune.attempt"]
        if name in runs:
            problems.append(f"{name}: has two runs")
        runs[name] = run
    study_run = runs.pop(study, None)
    if study_run is None or study_run.info.status != _STATUS.get(found.status, "RUNNING"):
        problems.append(f"{study}: MLflow has its run as {study_run and study_run.info.status}, the log {found.status}")
    problems += [f"{name}: only MLflow has it" for name in runs.keys() - found.attempts.keys()]
    for name, attempt in found.attempts.items():
        if name not in runs:
            problems.append(f"{name}: only the log has it")
        else:
            problems += [f"{name}: {each}" for each in _attempt_problems(client, runs[name], attempt)]
    return problems


def _validated(found: Logged, event: Validated, line: int) -> list[str]:
    attempt, problems = found.attempts.get(event.attempt), []
    if attempt is None:
        return [f"line {line}: {event.attempt} has not begun"]
    if attempt.status != "running":
        problems.append(f"line {line}: {event.attempt} is {attempt.status}, and validated")
    for point in event.points:
        if attempt.steps and point.step <= attempt.steps[-1]:
            problems.append(f"line {line}: {event.attempt} has step {point.step} after {attempt.steps[-1]}")
            attempt.repeated.append(f"step {point.step}")
        attempt.steps.append(point.step)
        values = {"m_recall": point.m_recall, "epoch": point.epoch, "pairs_seen": point.pairs_seen,
                  **point.metrics, "train_seconds": point.train_seconds}
        for name, value in values.items():
            attempt.series.setdefault(name, {})[point.step] = float(value)
    return problems


def _runs(client: MlflowClient, experiment: str) -> Iterator[Run]:
    page = None
    while True:
        runs = client.search_runs([experiment], page_token=page)
        yield from runs
        page = runs.token
        if not page:
            return


def _attempt_problems(client: MlflowClient, run: Run, attempt: LoggedAttempt) -> Iterator[str]:
    if run.info.status != _STATUS.get(attempt.status, "RUNNING"):
        yield f"MLflow says {run.info.status}, the log {attempt.status}"
    if not run.data.params:
        yield "has no parameters in MLflow"
    further = run.data.metrics.keys() - attempt.series.keys()
    if further:
        yield f"only MLflow has {', '.join(sorted(further)[:_SHOWN])}"
    for name, values in attempt.series.items():
        history = [(each.step, _shown(each.value)) for each in client.get_metric_history(run.info.run_id, name)]
        expected = [(step, _shown(value)) for step, value in values.items()]
        if history != expected:
            yield f"{name}: MLflow has {len(history)} values, the log {len(expected)}: {_parting(history, expected)}"


def _parting(history: list[tuple[int, str]], expected: list[tuple[int, str]]) -> str:
    pairs = [(one, other) for one, other in zip(history, expected, strict=False) if one != other]
    return f"{pairs[0][0]} against {pairs[0][1]}" if pairs else "one is longer"


def _shown(value: float) -> str:
    """MLflow keeps the largest number for an infinite one."""
    return repr(math.copysign(sys.float_info.max, value) if math.isinf(value) else value)


_OF_POINTS = ("train_seconds", "device_seconds", "load_seconds", "validation_seconds")
"""Totals at the end of an attempt, whose series ends with them already."""
