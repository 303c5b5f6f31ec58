"""One night as measured: its measures, its form in the history, and the content of its report."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Literal

from vsetune.config.spec.base import known_name
from vsetune.errors import UsageError

NightState = Literal["complete", "partial", "failed"]
"""complete: every cell measured and recorded. partial: some. failed: the night could not run. Only complete cells are
judged."""


@dataclass(frozen=True)
class CellNight:
    """The measurements of one cell.

    values: by name of `MEASURES`, means over the night's seeds; a measure that could not be measured is absent.
    first_losses: of the first steps at the fixed seed, float32 losses as exact floats; empty where not taken.
    first_recalls: of the validation split after them, by name; empty where not taken.
    trouble: why the cell is incomplete, in one line; None where every trial finished.
    """

    values: Mapping[str, float]
    first_losses: tuple[float, ...] = ()
    trouble: str | None = None
    first_recalls: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Night:
    """One night of one nightly sweep.

    date: ISO day that names it. started, ended: ISO times in UTC. revision: commit of the code, `+changes` when edited.
    conditions: whatever affects results besides the code (data, protocol, settings, processor, device, versions of
    packages), by name; nights under other conditions are not compared. seeds: those of the night's trials.
    study: name of its study. problems: failures, one line each.
    """

    date: str
    started: str
    ended: str
    state: NightState
    revision: str
    conditions: Mapping[str, str]
    cells: Mapping[str, CellNight]
    seeds: tuple[int, ...] = ()
    study: str = ""
    problems: tuple[str, ...] = ()


@dataclass(frozen=True)
class Measure:
    """One number of a cell and night.

    worse: the direction of a regression. scale: `linear` is judged as it is, `ratio` in logarithms (seconds, bytes).
    smallest_change: default for the smallest change that matters; in `unit` where linear, a fraction (0.05 is 5 %)
    where ratio. most: the largest possible value; the smallest is 0.
    """

    name: str
    text: str
    unit: str
    worse: Literal["lower", "higher"]
    scale: Literal["linear", "ratio"]
    smallest_change: float
    most: float = math.inf

    def possible(self, value: float | None) -> float | None:
        """The nearest possible value."""
        return None if value is None else min(max(value, 0.0), self.most)


STEP_TIME, STEP_WALL_TIME = STEP_TIMES = ("step_time", "step_wall_time")
"""Measured with the first losses; the other measures are of whole trials."""

MEASURES: tuple[Measure, ...] = (
    Measure("best_m_recall", "best M-Recall", "points", "lower", "linear", 1.0, most=100.0),
    Measure("epochs_to_target", "epochs to target", "epochs", "higher", "linear", 1.0),
    Measure("m_recall_area", "mean M-Recall over the curve", "points", "lower", "linear", 1.0, most=100.0),
    Measure(STEP_TIME, "time per training step", "calibration steps", "higher", "ratio", 0.05),
    Measure(STEP_WALL_TIME, "wall time per training step", "calibration steps", "higher", "ratio", 0.05),
    Measure("epoch_time", "time per epoch", "products", "higher", "ratio", 0.05),
    Measure("epoch_wall_time", "wall time per epoch", "products", "higher", "ratio", 0.05),
    Measure("pair_rate", "pairs per product", "pairs", "lower", "ratio", 0.05),
    Measure("peak_memory", "peak memory", "bytes", "higher", "ratio", 0.10),
    Measure("start_time", "time to start a trial", "products", "higher", "ratio", 0.50),
    Measure("data_wait", "share of time waiting for data", "share", "higher", "linear", 0.05, most=1.0),
)
"""`products`: seconds divided by those of a calibration product timed beside them (`training/calibration.py`).
step_time, step_wall_time: of a step on one otherwise idle core, measured with the first losses, in `calibration steps`
timed between them. step_time, epoch_time: processor time spent on training steps, without waiting, so that other
processes hardly affect it; on a GPU all seconds. step_wall_time, epoch_wall_time: wall time, including waits for locks,
disks and sleeps; step_wall_time also includes the wait for the batch. pair_rate: by wall time, waits included.
epochs_to_target: a seed that never reaches the target counts with its last epoch (restricted mean)."""

FIRST_LOSSES = "first_losses"
"""The losses of the first steps (`first_steps.steps`, 20 by default) at a fixed seed, and the recalls after them: equal
bit for bit, or changed. No band, no tolerance."""

BY_NAME = {measure.name: measure for measure in MEASURES}


def moment_of(text: str) -> float | None:
    """Unix seconds of an ISO time in UTC; None for other text."""
    try:
        return datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()
    except ValueError:
        return None


def seconds_of(started: str, ended: str) -> float | None:
    """From start to end; None where one of them is no time."""
    begin, end = moment_of(started), moment_of(ended)
    return None if begin is None or end is None else end - begin


def known_option(option: str, given: str, known: Iterable[str]) -> str:
    """The value of an option such as `--cell` if it is known. UsageError with the closest known one otherwise."""
    try:
        return known_name(given, known, option.removeprefix("--"))
    except ValueError as error:
        raise UsageError(error.args[0].at(option)) from error


Verdict = Literal["baseline", "quiet", "regression", "improvement", "changed", "missing"]
"""baseline: too few nights yet, or nights that vary so much that half as much again would be quiet. quiet: within its
band. regression, improvement: changed by more than noise and than the smallest change that matters. changed: first
losses differ from those before. missing: not measured tonight."""
CHANGES: tuple[Verdict, ...] = ("regression", "changed", "improvement")
ALARMS: tuple[Verdict, ...] = ("regression", "changed")


@dataclass(frozen=True)
class ReportRow:
    """One cell and measure.

    measure: None for the first losses. dates, values: the nights that count and tonight, oldest first; None where a
    night has no value. low, high: the band in the unit of the measure, None during the baseline. centre: median of the
    quiet nights. change: distance to the centre, of tonight or of the mean of the last two nights; in the unit where
    linear, a fraction where ratio, positive is higher. since: date of the first night of the change. suspects: commits
    or conditions, most likely first, one line each. text: the verdict in one sentence that begins with the measure.
    """

    cell: str
    measure: Measure | None
    verdict: Verdict
    dates: Sequence[str]
    values: Sequence[float | None]
    tonight: float | None
    centre: float | None = None
    low: float | None = None
    high: float | None = None
    change: float | None = None
    since: str | None = None
    suspects: Sequence[str] = ()
    text: str = ""

    @property
    def measure_name(self) -> str:
        """As in metrics, stored runs and accepted changes."""
        return FIRST_LOSSES if self.measure is None else self.measure.name

    @property
    def measure_text(self) -> str:
        """As people read it."""
        return "first losses" if self.measure is None else self.measure.text


@dataclass(frozen=True)
class NightReport:
    """A whole night. exit_code: 0 no change, 1 regression (or changed first losses), 2 could not run.

    headline: the summary in one line. notes: missed nights, new lines and why, measures that could not be taken, one
    line each. promise: the false-alarm rate in words. baseline_nights: nights in the current line before tonight.
    needed: number of nights that a verdict needs. mlflow_run: id of its run, None where none was stored.
    """

    nightly: str
    date: str
    revision: str
    exit_code: Literal[0, 1, 2]
    headline: str
    notes: Sequence[str]
    rows: Sequence[ReportRow]
    promise: str
    baseline_nights: int
    needed: int
    started: str
    ended: str
    study: str = ""
    mlflow_run: str | None = None
