"""Runs one night: tonight's study, the first losses, the comparison with the history, the report.

Every night gives a report. What could not be run or judged is reported in one line, and the exit code is 2.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from rich.console import Console

from vsetune.errors import StorageError, StudyConflict, UsageError, VsetuneError, one_line
from vsetune.home.hashes import fingerprint_of
from vsetune.nightly.delivering import deliver
from vsetune.nightly.first_steps import take_first_steps
from vsetune.nightly.history import History, nightly_folder
from vsetune.nightly.measuring import cell_nights, conditions_of, unmeasured
from vsetune.nightly.night import BY_NAME, STEP_TIMES, Night, NightReport
from vsetune.nightly.nightly_spec import NightlySpec
from vsetune.nightly.reporting import report_of
from vsetune.records.state import Attempt
from vsetune.study.places import tracking_uri
from vsetune.study.preparation import PreparedStudy, prepare_spec
from vsetune.study.run import StudyOutcome, run_study
from vsetune.training.environment import processor_name
from vsetune.version import git_revision

_log = logging.getLogger(__name__)
_LONGEST_PROBLEM = 2000


@dataclass(frozen=True)
class NightPlan:
    """A night to run. where: the file that error messages name first. address: of a Ray cluster, see `run_study`."""

    spec: NightlySpec
    date: str
    where: str
    address: str | None
    console: Console


def run_night(
    spec: NightlySpec, *, date: str, where: str, again: bool, address: str | None, console: Console
) -> NightReport:
    """Run the night of an ISO date, or resume it where an earlier process stopped; returns its report, delivered. A
    night that was measured but not judged is only judged.

    again: replace a complete night of that date. StudyConflict: the night is complete, or another process is running
    it. DataError: a newer version of vsetune wrote it. StorageError: the history cannot be written at all.
    """
    plan, history = NightPlan(spec, date, where, address, console), History(nightly_folder(spec.nightly))
    with history.held():
        history.require_readable(date)
        nights = history.nights()
        existing = next((night for night in nights if night.date == date), None)
        newer = max((night.date for night in nights if night.date > date), default=None)
        if existing is not None and existing.state == "complete" and not again:
            judged = history.report(date)
            if newer is not None or (judged is not None and judged.rows):
                raise StudyConflict(
                    "VSE-G012", "nightly {name}: the night of {date} is complete; --again replaces it, `vsetune "
                    "nightly history {name}` shows it", name=spec.nightly, date=date,
                )
            night = existing  # its process was killed, or failed, before it was judged
        elif newer is not None:
            reason = f"the history has a night of {newer}, tonight would be {date}; set the clock or a later --date"
            begun = _begun(plan, None, again=False)
            night = replace(begun, state="failed", problems=(f"the clock went back: {reason}",))
        else:
            night = _ran(plan, _begun(plan, existing, again=again), history)
        report = report_of(spec, nights, night, history)
        if newer is not None and existing is not None:
            return report  # it would replace the report of that night
        return _delivered(report, history, plan, [*(each for each in nights if each.date != date), night])


def _begun(plan: NightPlan, existing: Night | None, *, again: bool) -> Night:
    """The night as the history has it while it runs. Its state and empty end show that it is not finished."""
    goes_on = existing is not None and not again
    study = existing.study if existing is not None and goes_on else _study_name(plan, existing)
    return Night(
        date=plan.date, started=existing.started if existing is not None and goes_on else _now(), ended="",
        state="partial", revision=git_revision(), conditions={}, cells={},
        seeds=tuple(plan.spec.seeds_of(plan.date)), study=study,
    )


def _study_name(plan: NightPlan, replaced: Night | None) -> str:
    """Name of the night's study. A night that is run again is another study: `nightly-NAME-DATE`, then
    `nightly-NAME-DATE-2`, ..."""
    name = f"nightly-{plan.spec.nightly}-{plan.date}"
    if replaced is None or not replaced.study.startswith(name):
        return name
    number = replaced.study.removeprefix(name).removeprefix("-")
    return f"{name}-{int(number) + 1 if number.isdigit() else 2}"


def _ran(plan: NightPlan, night: Night, history: History) -> Night:
    """The night with its measurements, written to the history. Every failure is one of its problems."""
    problems: list[str] = []
    try:
        history.keep(night)
        night = measured_night(plan, night, problems)
    except Exception as error:  # any failure must reach the report
        if not isinstance(error, UsageError | VsetuneError | OSError):
            _log.exception("nightly %s: the night of %s failed", plan.spec.nightly, plan.date)
        kind = "" if isinstance(error, VsetuneError) else f"{type(error).__name__}: "
        other = "; --again begins the night anew" if isinstance(error, StudyConflict) else ""
        problems.append(f"{kind}{one_line(error, most=_LONGEST_PROBLEM)}{other}")
        night = replace(night, state="failed")
    night = replace(night, ended=_now(), problems=tuple(dict.fromkeys(problems)))
    try:
        history.keep(night)
    except StorageError as error:
        night = replace(night, problems=(*night.problems, f"the night is not in the history: {error}"))
    return night


def measured_night(
    plan: NightPlan, night: Night, problems: list[str], *, cell: str | None = None, trains: bool = True
) -> Night:
    """The night with its measurements; what is missing is added to the problems. cell: only this one. trains: whole
    trials; otherwise the first steps alone."""
    spec, console = plan.spec, plan.console
    chosen = spec if cell is None else spec.model_copy(update={"cells": [cell]})
    prepared = prepare_spec(chosen.study(night.study, list(night.seeds)), console, where=plan.where)
    names = [each.name for each in prepared.cells]
    with console.status("taking the first steps"):
        first = take_first_steps(
            prepared.spec, prepared.cells, steps=spec.first_steps.steps, seed=spec.first_steps.seed
        )
    outcome = run_study(
        replace(prepared, calibrates=True), resume=True, retry_failed=True, address=plan.address, console=console
    ) if trains else None
    attempts = outcome.attempts if outcome is not None else ()
    cells = cell_nights(attempts, names, seeds=len(night.seeds) if trains else 0, target=spec.target, first=first)
    taken = list(BY_NAME) if trains else STEP_TIMES
    problems += [line for name in names for line in unmeasured(name, cells[name], first, taken)]
    problems += _of_the_run(outcome, night.study) if outcome is not None else []
    complete = [name for name in names if cells[name].trouble is None]
    has_losses = not any("problem" in each for each in first.values())
    is_whole = has_losses and len(complete) == len(names) and not (outcome is not None and outcome.undelivered)
    return replace(
        night, state="complete" if is_whole else "partial" if complete else "failed", cells=cells,
        conditions=conditions_of_night(spec, prepared, attempts),
    )


def _of_the_run(outcome: StudyOutcome, study: str) -> list[str]:
    lines = [f"trial {one.trial} {'is open' if one.is_open else 'failed'}: {one.reason}" for one in outcome.troubles]
    if outcome.was_interrupted:
        by = f" by {outcome.stopped_by}" if outcome.stopped_by else ""
        lines.append(f"interrupted{by}; the same command goes on with it")
    if outcome.undelivered:
        lines.append(
            f"{outcome.undelivered} events are not in MLflow yet ({outcome.outage}); export them with: "
            f"vsetune tracking flush {study}"
        )
    return lines


def _delivered(report: NightReport, history: History, plan: NightPlan, nights: Sequence[Night]) -> NightReport:
    """The report, stored and sent, with a note for each failure."""
    uri = None
    try:
        uri = tracking_uri(plan.spec.tracking)
    except UsageError as error:
        report = replace(report, notes=tuple(dict.fromkeys([*report.notes, one_line(error)])))
    complete = max((night.ended for night in nights if night.state == "complete"), default="")
    return deliver(report, history.keep_report, plan.spec.report, last_complete=complete, tracking_uri=uri)


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


_LONGEST = 60


def conditions_of_night(
    spec: NightlySpec, prepared: PreparedStudy, attempts: Sequence[Attempt]
) -> dict[str, str]:
    """Conditions by name: `settings.KEY` of the file, `plugin.KEY`, `data`, `first_steps_on` (the processor here), and
    the conditions that the workers reported. The code is not included: a night looks for changes caused by the code.
    """
    settings = {f"settings.{key}": _shown(value) for key, value in spec.settings().items()}
    plugins = {f"plugin.{plugin.key}": plugin.sha256[:16] for plugin in prepared.plugins}
    here = {"data": prepared.data_fingerprint, "first_steps_on": processor_name()}
    return dict(sorted((settings | plugins | here | conditions_of(attempts)).items()))


def _shown(value: Any) -> str:
    """A short setting as it is, so that a change is readable; a long one as its fingerprint."""
    text = json.dumps(value, sort_keys=True)
    return text if len(text) <= _LONGEST else fingerprint_of({"value": value})
