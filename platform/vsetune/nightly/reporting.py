"""The report of a night: its rows, headline, notes and exit code, and the comparison of its first losses."""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from vsetune.errors import UsageError, one_line
from vsetune.nightly.history import Accepted, History
from vsetune.nightly.judging import Judgement, Tolerance, judge
from vsetune.nightly.night import FIRST_LOSSES, MEASURES, Measure, Night, NightReport, ReportRow
from vsetune.nightly.nightly_spec import NightlySpec
from vsetune.nightly.past_nights import changed_conditions, comparable, counts_from, interruptions
from vsetune.nightly.report_words import headline, sentence
from vsetune.nightly.suspects import suspects_between

_log = logging.getLogger(__name__)


def report_of(
    spec: NightlySpec, nights: Sequence[Night], tonight: Night, history: History, notes: Sequence[str]
) -> NightReport:
    """The report of tonight against the history. Failures give a report too. nights: the history before tonight ran."""
    earlier = [night for night in nights if night.date < tonight.date]
    notes = [*notes, *tonight.problems, *interruptions(earlier, tonight.date), *_changed_conditions(earlier, tonight)]
    if tonight.state == "failed":
        return unjudged_report(spec, tonight, (tonight.problems or ("nothing was measured",))[0], notes)
    try:
        rows = judge_night(spec, earlier, tonight, history)
        count = _nights_compared(earlier, tonight, history.accepted())
    except Exception as error:  # a night that cannot be judged is reported like one that could not run
        _log.debug("nightly %s: the night of %s cannot be judged", spec.nightly, tonight.date, exc_info=error)
        later = f"; the same command with --date {tonight.date} then judges what was measured"
        reason = f"tonight cannot be judged: {one_line(error)}{later if isinstance(error, UsageError) else ''}"
        return unjudged_report(spec, tonight, reason, notes)
    line = headline(rows, needed=spec.tolerances.baseline_nights)
    if tonight.state == "partial":
        line = f"the night is not complete; {line}"
    notes += [*history.problems]
    return _report(spec, tonight, line, notes, rows, count, _exit_code(tonight, rows))


def judge_night(spec: NightlySpec, nights: Sequence[Night], tonight: Night, history: History) -> list[ReportRow]:
    """The rows of tonight against the nights before it. DataError: the accepted changes cannot be read."""
    earlier = [night for night in nights if night.date < tonight.date]
    reported = _reported(history, earlier, tonight)
    return judged_rows(earlier, tonight, list(tonight.cells), history.accepted(), _tolerance(spec), reported)


def unjudged_report(spec: NightlySpec, tonight: Night, reason: str, notes: Sequence[str]) -> NightReport:
    """The report of a night without comparison, for this reason. Exit code 2."""
    rest = [note for note in notes if note != reason]
    line = reason if tonight.state != "failed" else f"could not run: {reason}"
    return _report(spec, tonight, line, rest, [], 0, 2)


def _report(
    spec: NightlySpec, tonight: Night, line: str, notes: Sequence[str], rows: Sequence[ReportRow], count: int,
    exit_code: Literal[0, 1, 2],
) -> NightReport:
    return NightReport(
        nightly=spec.nightly, date=tonight.date, revision=tonight.revision, exit_code=exit_code, headline=line,
        notes=tuple(dict.fromkeys(notes)), rows=tuple(rows),
        promise=f"at most one false alarm in {spec.tolerances.false_alarm_nights:g} nights for the whole report",
        baseline_nights=count, needed=spec.tolerances.baseline_nights, started=tonight.started, ended=tonight.ended,
        study=tonight.study,
    )


def _exit_code(tonight: Night, rows: Sequence[ReportRow]) -> Literal[0, 1, 2]:
    """An incomplete night never has exit code 0, but its regressions count."""
    if any(row.verdict in ("regression", "changed") for row in rows):
        return 1
    return 0 if tonight.state == "complete" else 2


def _changed_conditions(earlier: Sequence[Night], tonight: Night) -> list[str]:
    changes = changed_conditions(earlier, tonight)
    if not changes:
        return []
    before = comparable(earlier, tonight)
    compared = f"compared with nights up to {before[-1].date}" if before else "compared with no night before"
    return [f"conditions changed, {compared}: {'; '.join(changes)}"]


def _tolerance(spec: NightlySpec) -> Tolerance:
    changes = {measure.name: spec.tolerances.smallest_change_of(measure) for measure in MEASURES}
    return Tolerance(spec.tolerances.false_alarm_nights, spec.tolerances.baseline_nights, changes)


def _reported(history: History, earlier: Sequence[Night], tonight: Night) -> Reported:
    reports = {night.date: history.report(night.date) for night in comparable(earlier, tonight)}
    return {
        (date, row.cell, row.measure_name): row.verdict
        for date, report in reports.items() if report is not None for row in report.rows
    }


Reported = Mapping[tuple[str, str, str], str]
"""Verdicts of earlier reports, by (date, cell, measure)."""


def judged_rows(
    nights: Sequence[Night], tonight: Night, cells: Sequence[str], accepted: Sequence[Accepted], tolerance: Tolerance,
    reported: Reported,
) -> list[ReportRow]:
    """A row for every cell and measure, and one for the first losses of every cell. nights: all earlier nights, under
    any conditions. cells: of tonight's file, in its order."""
    compared = comparable(nights, tonight)
    columns = [(cell, measure) for cell in cells for measure in MEASURES]
    begins = [_begin(compared, cell, measure.name, accepted, tonight.date) for cell, measure in columns]
    past = np.array([[_value(night, *column) for column in columns] for night in compared]).reshape(-1, len(columns))
    past[np.arange(len(compared))[:, None] < np.array(begins, dtype=np.int64)] = np.nan
    now = np.array([_value(tonight, *column) for column in columns])
    alarmed = np.array([
        [reported.get((night.date, cell, measure.name)) in ("regression", "improvement") for cell, measure in columns]
        for night in compared
    ], dtype=np.bool_).reshape(past.shape)
    judgements = judge(past, now, [measure for _, measure in columns], tolerance, alarmed=alarmed)
    dates, conditions = [night.date for night in (*compared, tonight)], changed_conditions(nights, tonight)
    rows = []
    for number, ((cell, measure), judgement) in enumerate(zip(columns, judgements, strict=True)):
        values = list(map(_known, np.append(past[:, number], now[number])))
        row = ReportRow(cell, measure, judgement.verdict, dates[begins[number]:], values[begins[number]:], values[-1])
        rows.append(_judged(row, judgement, compared, tonight, conditions))
    rows += [judged_first_losses(compared, tonight, cell, accepted) for cell in cells]
    return sorted(rows, key=lambda row: cells.index(row.cell))  # a cell's first losses stand after its measures


def _nights_compared(nights: Sequence[Night], tonight: Night, accepted: Sequence[Accepted]) -> int:
    """Number of nights that tonight is compared with, where nothing of them alone was accepted."""
    compared = comparable(nights, tonight)
    return len(compared) - _begin(compared, "", "", accepted, tonight.date)


def _value(night: Night, cell: str, measure: Measure) -> float:
    """NaN where the cell is incomplete or the measure is missing."""
    measured = night.cells.get(cell)
    if measured is None or measured.trouble is not None:
        return math.nan
    return float(measured.values.get(measure.name, math.nan))


def _begin(compared: Sequence[Night], cell: str, measure: str, accepted: Sequence[Accepted], date: str) -> int:
    """Number of compared nights before those that count for this measure of this cell."""
    begin = counts_from(accepted, cell, measure, date)
    return sum(night.date < begin for night in compared)


def _judged(
    row: ReportRow, judgement: Judgement, compared: Sequence[Night], tonight: Night, conditions: Sequence[str]
) -> ReportRow:
    """The row with its judgement. conditions: those that changed tonight."""
    assert row.measure is not None
    since = None if judgement.since is None else [*compared, tonight][judgement.since].date
    is_change = judgement.verdict in ("regression", "improvement")
    commits = _commits(compared, tonight, since or tonight.date) if is_change else []
    cell = tonight.cells.get(row.cell)
    return sentence(replace(
        row, centre=judgement.centre, low=row.measure.possible(judgement.low),
        high=row.measure.possible(judgement.high), change=judgement.change, since=since,
        suspects=[*(conditions if is_change else []), *commits],
        quiet_nights=judgement.quiet_nights,
    ), trouble=None if cell is None else cell.trouble)


def _commits(compared: Sequence[Night], tonight: Night, since: str) -> list[str]:
    """Suspects between the last night before the change and its first night; up to tonight if these two have the same
    revision."""
    before = [night for night in compared if night.date < since]
    if not before:
        return []
    first = next((night for night in (*compared, tonight) if night.date >= since), tonight)
    good = before[-1].revision
    return suspects_between(good, first.revision if first.revision != good else tonight.revision)


def _known(value: float) -> float | None:
    return float(value) if math.isfinite(value) else None


_MOST_KINDS = 3
"""Number of different results under one commit that shows that they do not repeat."""


def judged_first_losses(
    compared: Sequence[Night], tonight: Night, cell: str, accepted: Sequence[Accepted]
) -> ReportRow:
    """The row of the first losses. compared: earlier nights under the conditions of tonight, oldest first.

    Tonight is compared with the oldest losses that count: a change is reported until it is accepted, or until the old
    losses are back. change: the largest relative difference.
    """
    begin = counts_from(accepted, cell, FIRST_LOSSES, tonight.date)
    counted = [night for night in compared if night.date >= begin and _losses(night, cell)]
    nights, steps = [*counted, tonight], len(_losses(tonight, cell))
    row = ReportRow(cell, None, "missing", [night.date for night in nights], [None] * len(nights), None)
    if not steps:
        return replace(row, text="first losses: not taken tonight")
    if not counted:
        return replace(row, verdict="baseline", text=f"first losses: {steps} steps, nothing to compare with yet")
    reference = _Reference.of(counted, cell)
    if reference.is_met_by(tonight, cell):
        recalls = len(_recalls(tonight, cell)) if reference.recalls else 0
        and_recalls = f" and {recalls} recalls after them" if recalls else ""
        return replace(row, verdict="quiet", text=f"first losses: {steps} steps{and_recalls} equal to the last bit")
    unrepeated = _does_not_repeat(nights, cell)
    if unrepeated is not None:
        return replace(row, text=f"first losses: {unrepeated}")
    same = [place for place, night in enumerate(counted) if reference.is_met_by(night, cell)]
    before, first = nights[same[-1]], nights[same[-1] + 1]
    suspects = suspects_between(before.revision, first.revision)
    text, largest = reference.difference(tonight, cell)
    since = "" if first is tonight else f", since {first.date}"
    return replace(
        row, verdict="changed", change=largest, since=first.date, suspects=suspects, text=f"{text}{since}",
        recalls_alone=_losses(tonight, cell) == reference.losses,
    )


@dataclass(frozen=True)
class _Reference:
    """The numbers to compare with. losses: of the oldest night that counts. recalls: of the oldest night with these
    losses that has recalls."""

    losses: tuple[float, ...]
    recalls: Mapping[str, float]

    @classmethod
    def of(cls, counted: Sequence[Night], cell: str) -> _Reference:
        losses = _losses(counted[0], cell)
        taken = (_recalls(night, cell) for night in counted if _losses(night, cell) == losses)
        return cls(losses, next(filter(None, taken), {}))

    def is_met_by(self, night: Night, cell: str) -> bool:
        recalls = _recalls(night, cell)
        is_same_validation = not recalls or not self.recalls or dict(recalls) == dict(self.recalls)
        return _losses(night, cell) == self.losses and is_same_validation

    def difference(self, night: Night, cell: str) -> tuple[str, float]:
        """(description, largest relative difference) of a night that differs from the reference."""
        losses = _losses(night, cell)
        if losses != self.losses:
            step, largest = _difference(self.losses, losses)
            return f"first losses: differ from step {step} on, by up to {largest:.2g} of their size", largest
        was, is_ = self.recalls, _recalls(night, cell)
        names = [name for name in {**was, **is_} if was.get(name) != is_.get(name)]
        name = "m_recall" if "m_recall" in names else names[0]
        largest = max(_relative(was.get(each, 0.0), is_.get(each, 0.0)) for each in names)
        parts = f"{name} is {is_.get(name, math.nan):.6g} instead of {was.get(name, math.nan):.6g}"
        return f"first losses: equal, but the recalls after them differ: {parts}; validation has changed", largest


def _losses(night: Night, cell: str) -> tuple[float, ...]:
    measured = night.cells.get(cell)
    return () if measured is None else tuple(measured.first_losses)


def _recalls(night: Night, cell: str) -> Mapping[str, float]:
    measured = night.cells.get(cell)
    return {} if measured is None else measured.first_recalls


def _does_not_repeat(nights: Sequence[Night], cell: str) -> str | None:
    """Why equality cannot be required; None where it can. Only two different results under one commit may be two states
    of the machine, and the newer one is reported as a change."""
    found: dict[str, set[tuple[float, ...]]] = {}
    for night in nights:
        if night.revision.isalnum() and night.revision != "unknown":
            found.setdefault(night.revision, set()).add((*_losses(night, cell), *_recalls(night, cell).values()))
    for revision, kinds in found.items():
        if len(kinds) >= _MOST_KINDS:
            return (f"{len(kinds)} different ones under commit {revision[:12]}, so they do not repeat here and are not "
                    "judged")
    return None


def _difference(reference: Sequence[float], now: Sequence[float]) -> tuple[int, float]:
    """(first step that differs, counted from 1; largest relative difference)."""
    steps = [n for n, (was, is_) in enumerate(zip(reference, now, strict=False), start=1) if was != is_]
    step = steps[0] if steps else min(len(reference), len(now)) + 1
    largest = max((_relative(was, is_) for was, is_ in zip(reference, now, strict=False)), default=0.0)
    return step, largest


def _relative(was: float, is_: float) -> float:
    if was == is_:
        return 0.0
    if not (math.isfinite(was) and math.isfinite(is_)):
        return math.inf
    return abs(is_ - was) / max(abs(was), abs(is_))
