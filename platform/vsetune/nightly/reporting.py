"""The report of a night: its rows, its headline, its notes and its exit code."""

from __future__ import annotations

import logging
import math
from collections.abc import Sequence
from typing import Literal

from vsetune.config.spec.foreign_text import one_line
from vsetune.errors import UsageError
from vsetune.nightly.history import History
from vsetune.nightly.judged import Told, judged_rows, nights_in_line
from vsetune.nightly.judging.tolerance import Tolerance
from vsetune.nightly.lines import changed_conditions, interruptions, line_of
from vsetune.nightly.measures import FIRST_LOSSES, MEASURES
from vsetune.nightly.night import Night
from vsetune.nightly.nightly_spec import NightlySpec
from vsetune.nightly.report import NightReport, ReportRow
from vsetune.nightly.sentences import headline

_log = logging.getLogger(__name__)
_ALIKE = 0.2
"""Autocorrelation at which limits of drifts are 1.2 times as far as those of independent nights."""
_SURE = 1.5
"""Standard errors of it, beside the doubt that is taken off already: one independent measure in 100 has so much."""


def report_of(
    spec: NightlySpec, nights: Sequence[Night], tonight: Night, history: History, notes: Sequence[str]
) -> NightReport:
    """Tonight against the history; a report in every case. nights: all of the history before tonight was run."""
    earlier = [night for night in nights if night.date < tonight.date]
    told = [*notes, *tonight.problems, *interruptions(earlier, tonight.date), *_new_line(earlier, tonight)]
    if tonight.state == "failed":
        return unjudged_report(spec, tonight, (tonight.problems or ("nothing was measured",))[0], told)
    try:
        accepted = history.accepted()
        rows = judged_rows(
            earlier, tonight, list(tonight.cells), accepted, _tolerance(spec), _told(history, earlier, tonight)
        )
        count = nights_in_line(earlier, tonight, accepted)
    except Exception as error:  # a night that cannot be judged is told like one that could not run
        _log.debug("nightly %s: the night of %s cannot be judged", spec.nightly, tonight.date, exc_info=error)
        later = f"; the same command with --date {tonight.date} then judges what was measured"
        reason = f"tonight cannot be judged: {one_line(error)}{later if isinstance(error, UsageError) else ''}"
        return unjudged_report(spec, tonight, reason, told)
    line = headline(rows, needed=spec.tolerances.baseline_nights)
    if tonight.state == "partial":
        line = f"the night is not complete; {line}"
    told += [*history.problems, *(row.suspects_note for row in rows if row.suspects_note), *_alike(rows)]
    return _report(spec, tonight, line, told, rows, count, _exit_code(tonight, rows))


def unjudged_report(spec: NightlySpec, tonight: Night, reason: str, notes: Sequence[str]) -> NightReport:
    """Exit code 2: nothing was compared, for this reason."""
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
    """A night that is not whole is never a good one, but what it found counts."""
    if any(row.verdict in ("regression", "changed") for row in rows):
        return 1
    return 0 if tonight.state == "complete" else 2


def _new_line(earlier: Sequence[Night], tonight: Night) -> list[str]:
    changes = changed_conditions(earlier, tonight)
    if not changes:
        return []
    before = line_of(earlier, tonight)
    begins = f"goes on with the line of {before[-1].date}" if before else "a new line begins"
    return [f"conditions changed, {begins}: {'; '.join(changes)}"]


def _alike(rows: Sequence[ReportRow]) -> list[str]:
    """A line where nights are so much like those before them that limits are clearly wider for it."""
    found: dict[str, float] = {}
    for row in rows:
        nights = sum(value is not None for value in row.values)
        if row.measure is not None and row.autocorrelation >= max(_ALIKE, _SURE / math.sqrt(max(nights, 1))):
            found[row.measure.text] = max(row.autocorrelation, found.get(row.measure.text, 0.0))
    if not found:
        return []
    measures = ", ".join(f"{text} ({value:.2f})" for text, value in found.items())
    return [f"quiet nights are like those before them, by the autocorrelation of {measures}: limits are wider for it, "
            "and slow changes are found later"]


def _tolerance(spec: NightlySpec) -> Tolerance:
    changes = {measure.name: spec.tolerances.smallest_change_of(measure) for measure in MEASURES}
    return Tolerance(spec.tolerances.false_alarm_nights, spec.tolerances.baseline_nights, changes)


def _told(history: History, earlier: Sequence[Night], tonight: Night) -> Told:
    """The verdicts that people were given on the nights of the line."""
    told = {}
    for night in line_of(earlier, tonight):
        plain = history.report_plain(night.date)
        for row in (plain or {}).get("rows", ()):
            measure = (row.get("measure") or {}).get("name", FIRST_LOSSES)
            told[night.date, str(row.get("cell")), str(measure)] = str(row.get("verdict"))
    return told
