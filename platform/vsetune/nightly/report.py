"""The content of a night's report, before it is rendered or sent."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from vsetune.nightly.measures import Measure

Verdict = Literal["baseline", "quiet", "regression", "improvement", "changed", "missing"]
"""baseline: too few nights yet, or too few to estimate their noise. quiet: within its band. regression, improvement:
changed by more than noise and than the smallest change that matters. changed: first losses differ from the line's.
missing: not measured tonight."""


@dataclass(frozen=True)
class ReportRow:
    """One cell and measure.

    measure: None for the first losses. dates, values: the nights of the current line, oldest first, tonight last;
    None where a night has no value. low, high: the band of a quiet night in the unit of the measure, None during the
    baseline. centre: the line's location. change: tonight's (or the drift's) distance to the centre, in the unit where
    linear, as a fraction where ratio, positive is higher. since: date of the first night that belongs to the change.
    found_by: `band`, `drift`, `bits`, or empty. suspects: commits or conditions, most likely first, one line each.
    suspects_note: number of commits left out, and why. autocorrelation: of successive quiet nights of the
    measure. text: the verdict in one sentence.
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
    found_by: str = ""
    suspects: Sequence[str] = ()
    suspects_note: str = ""
    autocorrelation: float = 0.0
    text: str = ""


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
