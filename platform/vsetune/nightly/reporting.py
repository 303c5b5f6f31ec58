"""The report of a night: its rows, headline, notes and exit code, and the comparison of its first losses."""

from __future__ import annotations

import logging
import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Literal

import numpy as np

from vsetune.errors import UsageError, one_line
from vsetune.nightly.history import Accepted, History
from vsetune.nightly.judging import RECENT, judge
from vsetune.nightly.night import ALARMS, CHANGES, FIRST_LOSSES, MEASURES, Measure, Night, NightReport, ReportRow
from vsetune.nightly.nightly_spec import NightlySpec, Tolerances
from vsetune.nightly.past_nights import changed_conditions, comparable, counts_from, interruptions
from vsetune.nightly.report_words import headline, sentence
from vsetune.nightly.suspects import suspects_between

_log = logging.getLogger(__name__)


def report_of(spec: NightlySpec, nights: Sequence[Night], tonight: Night, history: History) -> NightReport:
    """The report of tonight against the history. Failures give a report too. nights: the history before tonight ran."""
    earlier = [night for night in nights if night.date < tonight.date]
    compared, changed = comparable(earlier, tonight), changed_conditions(earlier, tonight)
    notes = [*history.problems, *tonight.problems, *interruptions(earlier, tonight.date)]
    if changed:
        before = f"nights up to {compared[-1].date}" if compared else "no night before"
        notes += [f"conditions changed, compared with {before}: {'; '.join(changed)}"]
    rows: Sequence[ReportRow] = ()
    count = 0
    exit_code: Literal[0, 1, 2] = 2
    if tonight.state == "failed":
        reason = next(iter(tonight.problems), "nothing was measured")
        line, notes = f"could not run: {reason}", [note for note in notes if note != reason]
    else:
        try:
            rows = judge_night(spec, earlier, tonight, history)
            count = len(_counted(compared, history.accepted(), "", "", tonight))
            line, exit_code = _headline(spec, tonight, rows), _exit_code(tonight, rows)
        except Exception as error:  # a night that cannot be judged is reported like one that could not run
            _log.debug("nightly %s: the night of %s cannot be judged", spec.nightly, tonight.date, exc_info=error)
            later = f"; the same command with --date {tonight.date} then judges what was measured"
            line = f"tonight cannot be judged: {one_line(error)}{later if isinstance(error, UsageError) else ''}"
    notes += [
        f"{row.cell}: {row.text}" for row in rows
        if row.measure is None and row.verdict == "missing" and _numbers(tonight, row.cell)
    ]
    return NightReport(
        nightly=spec.nightly, date=tonight.date, revision=tonight.revision, exit_code=exit_code, headline=line,
        notes=tuple(dict.fromkeys([*notes, *history.problems])), rows=tuple(rows),
        promise=f"at most one false alarm in {spec.tolerances.false_alarm_nights:g} nights for the whole report",
        baseline_nights=count, needed=spec.tolerances.baseline_nights, started=tonight.started, ended=tonight.ended,
        study=tonight.study,
    )


def _headline(spec: NightlySpec, tonight: Night, rows: Sequence[ReportRow]) -> str:
    line = headline(rows, needed=spec.tolerances.baseline_nights)
    return line if tonight.state == "complete" else f"the night is not complete; {line}"


def _exit_code(tonight: Night, rows: Sequence[ReportRow]) -> Literal[0, 1, 2]:
    """An incomplete night never has exit code 0, but its regressions count."""
    if any(row.verdict in ALARMS for row in rows):
        return 1
    return 0 if tonight.state == "complete" else 2


def judge_night(spec: NightlySpec, nights: Sequence[Night], tonight: Night, history: History) -> list[ReportRow]:
    """The rows of tonight against the nights before it. DataError: the accepted changes cannot be read."""
    compared = comparable(nights, tonight)
    reports = {night.date: history.report(night.date) for night in compared}
    alarmed = {
        (date, row.cell, row.measure_name) for date, report in reports.items() if report is not None
        for row in report.rows if row.verdict in ("regression", "improvement")
    }
    rows = judged_rows(compared, tonight, history.accepted(), spec.tolerances, alarmed)
    conditions = changed_conditions(nights, tonight)
    return [
        replace(row, suspects=(*conditions, *row.suspects)) if row.measure and row.verdict in CHANGES else row
        for row in rows
    ]


def judged_rows(
    compared: Sequence[Night], tonight: Night, accepted: Sequence[Accepted], tolerances: Tolerances,
    alarmed: Collection[tuple[str, str, str]],
) -> list[ReportRow]:
    """A row for every cell and measure of tonight, and one for the first losses of every cell.

    compared: earlier nights under the conditions of tonight, oldest first. alarmed: (date, cell, measure) of changes
    that were reported.
    """
    columns = [(cell, measure) for cell in tonight.cells for measure in MEASURES]
    counted = [_counted(compared, accepted, cell, measure.name, tonight) for cell, measure in columns]
    past = np.full((len(compared), len(columns)), np.nan)
    is_alarm = np.zeros(past.shape, np.bool_)
    for number, (cell, measure) in enumerate(columns):
        is_alarm[:, number] = [(night.date, cell, measure.name) in alarmed for night in compared]
        begin = len(compared) - len(counted[number])
        past[begin:, number] = [_value(night, cell, measure) for night in counted[number]]
    now = np.array([_value(tonight, cell, measure) for cell, measure in columns])
    judgements = judge(past, now, [measure for _, measure in columns], tolerances, is_alarm)
    rows = []
    for number, ((cell, measure), found) in enumerate(zip(columns, judgements, strict=True)):
        values = [float(value) if math.isfinite(value) else None for value in (*past[:, number], now[number])]
        count = min(len(counted[number]), RECENT) + 1
        since = None if found.since is None else [*compared, tonight][found.since].date
        row = ReportRow(
            cell, measure, found.verdict, tuple(night.date for night in (*compared, tonight)[-count:]),
            tuple(values[-count:]), values[-1], found.centre, measure.possible(found.low), measure.possible(found.high),
            found.change, since, _commits(compared, tonight, since) if found.verdict in CHANGES else (),
        )
        rows.append(replace(row, text=sentence(row, measure, tonight.cells[cell].trouble)))
    rows += [judged_first_losses(compared, tonight, cell, accepted) for cell in tonight.cells]
    return sorted(rows, key=lambda row: list(tonight.cells).index(row.cell))  # first losses stand after the measures


def _counted(
    compared: Sequence[Night], accepted: Sequence[Accepted], cell: str, measure: str, tonight: Night
) -> list[Night]:
    """The nights that count for a measure of a cell."""
    begin = counts_from(accepted, cell, measure, tonight.date)
    return [night for night in compared if night.date >= begin]


def _value(night: Night, cell: str, measure: Measure) -> float:
    """NaN where the cell is incomplete or the measure is missing."""
    measured = night.cells.get(cell)
    return math.nan if measured is None or measured.trouble else measured.values.get(measure.name, math.nan)


def _commits(compared: Sequence[Night], tonight: Night, since: str | None) -> list[str]:
    """Suspects between the last night before the change and its first night; up to tonight if these two have the same
    revision."""
    before = [night for night in compared if night.date < (since or tonight.date)]
    if not before:
        return []
    first = [*compared, tonight][len(before)]
    good = before[-1].revision
    return suspects_between(good, first.revision if first.revision != good else tonight.revision)


_MOST_KINDS = 3
"""Number of different results under one commit that shows that they do not repeat."""
Numbers = Mapping[int | str, float]
"""First losses by step, counted from 1, and the recalls after them by name."""


def judged_first_losses(
    compared: Sequence[Night], tonight: Night, cell: str, accepted: Sequence[Accepted]
) -> ReportRow:
    """The row of the first losses. compared: earlier nights under the conditions of tonight, oldest first.

    Tonight is compared with the oldest numbers that count: a change is reported until it is accepted, or until the old
    numbers are back. change: the largest relative difference.
    """
    counted = [
        night for night in _counted(compared, accepted, cell, FIRST_LOSSES, tonight) if 1 in _numbers(night, cell)
    ]
    nights, now = [*counted, tonight], _numbers(tonight, cell)
    dates = tuple(night.date for night in nights[-RECENT - 1:])
    row = ReportRow(cell, None, "missing", dates, (None,) * len(dates), None)
    steps = sum(isinstance(name, int) for name in now)
    if not steps:
        return replace(row, text="first losses: not taken tonight")
    if not counted:
        return replace(row, verdict="baseline", text=f"first losses: {steps} steps, nothing to compare with yet")
    reference = _reference([_numbers(night, cell) for night in counted])
    differing = [_differing(reference, _numbers(night, cell)) for night in nights]
    if not differing[-1]:
        recalls = sum(name in reference for name in now) - steps
        after = f" and {recalls} recalls after them" if recalls else ""
        return replace(row, verdict="quiet", text=f"first losses: {steps} steps{after} equal to the last bit")
    unrepeated = _does_not_repeat(nights, cell)
    if unrepeated is not None:
        return replace(row, text=f"first losses: {unrepeated}")
    same = max((number for number, names in enumerate(differing) if not names), default=0)
    before, first = nights[same], nights[same + 1]
    name = differing[-1][0]
    largest = max((_relative(reference[each], now[each]) for each in differing[-1] if each in {*reference} & {*now}),
                  default=0.0)
    what = f"differ from step {name} on" if isinstance(name, int) else f"equal, but {name} after them differs"
    since = "" if first is tonight else f", since {first.date}"
    return replace(
        row, verdict="changed", change=largest, since=first.date,
        suspects=tuple(suspects_between(before.revision, first.revision)),
        text=f"first losses: {what}, by up to {100 * largest:.2g} %{since}",
    )


def _numbers(night: Night, cell: str) -> Numbers:
    numbers: dict[int | str, float] = {}
    if (measured := night.cells.get(cell)) is not None:
        numbers.update(enumerate(measured.first_losses, 1))
        numbers.update(measured.first_recalls.items())
    return numbers


def _reference(counted: Sequence[Numbers]) -> Numbers:
    """The oldest losses, and the recalls of the oldest night with these losses that has recalls."""
    oldest = counted[0]
    same = [numbers for numbers in counted if not any(isinstance(name, int) for name in _differing(oldest, numbers))]
    return next((numbers for numbers in same if _has_recalls(numbers)), oldest)


def _has_recalls(numbers: Numbers) -> bool:
    return any(isinstance(name, str) for name in numbers)


def _differing(was: Numbers, now: Numbers) -> list[int | str]:
    """The first steps that differ, or the recalls where all losses are equal and both have recalls."""
    names = [name for name in {**was, **now} if was.get(name) != now.get(name)]
    if any(isinstance(name, int) for name in names):
        return [name for name in names if isinstance(name, int)]
    return names if _has_recalls(was) and _has_recalls(now) else []


def _does_not_repeat(nights: Sequence[Night], cell: str) -> str | None:
    """Why equality cannot be required; None where it can. Three different results under one commit show that they do
    not repeat. Two may be two states of the machine; the newer one is reported as a change."""
    found: dict[str, set[tuple[float, ...]]] = {}
    for night in nights:
        if night.revision.isalnum() and night.revision != "unknown":
            found.setdefault(night.revision, set()).add(tuple(_numbers(night, cell).values()))
    for revision, kinds in found.items():
        if len(kinds) >= _MOST_KINDS:
            return f"{len(kinds)} different ones under commit {revision[:12]}, so they do not repeat and are not judged"
    return None


def _relative(was: float, is_: float) -> float:
    if not (math.isfinite(was) and math.isfinite(is_)):
        return math.inf
    return abs(is_ - was) / max(abs(was), abs(is_))
