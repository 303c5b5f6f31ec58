"""One night's cells at the current checkout, against the last night without an alarm, for `git bisect run`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Literal

from rich.console import Console

from vsetune.errors import UsageError
from vsetune.nightly.history import History
from vsetune.nightly.night import BY_NAME, FIRST_LOSSES, STEP_TIMES, Night, ReportRow, known_option
from vsetune.nightly.nightly_spec import NightlySpec
from vsetune.nightly.reporting import judge_night
from vsetune.nightly.tonight import NightPlan, measured_night
from vsetune.training.environment import package_versions
from vsetune.version import git_revision

_EDITED = "+changes"


def checked_rows(
    spec: NightlySpec, history: History, *, measure: str | None, cell: str | None, where: str, console: Console,
) -> list[ReportRow]:
    """The rows of the checkout, of one measure or cell where named. UsageError where it cannot be compared.

    First losses and step times are measured without training whole trials. Trials have the seeds of the good night.
    """
    nights = history.nights()
    good = _last_good(nights, history)
    if cell is not None:
        known_option("--cell", cell, good.cells)
    if measure is not None:
        known_option("--measure", measure, {*BY_NAME, FIRST_LOSSES})
    trains = measure is None or measure not in (FIRST_LOSSES, *STEP_TIMES)
    now, revision = datetime.now(UTC), git_revision()
    unlike = f"-{now:%Y%m%d%H%M%S}" if revision.endswith(_EDITED) or revision == "unknown" else ""
    of_cell = "" if cell is None else f"-{cell.replace('.', '-')}"
    night = replace(
        good, date=f"{good.date} check", revision=revision, cells={}, conditions={},
        study=f"nightly-{spec.nightly}-check-{revision[:12]}{of_cell}{unlike}",
    )
    plan = NightPlan(spec, night.date, where, None, console)
    problems: list[str] = []
    night = measured_night(plan, night, problems, cell=cell, trains=trains)
    if night.state != "complete":
        raise UsageError("VSE-G541", "{revision}: {problem}", revision=revision[:12], problem=problems[0])
    here = {} if trains else {f"package_{name}": version for name, version in package_versions().items()}
    here.pop("package_vsetune", None)
    is_, then = {**night.conditions, **here}, dict(good.conditions)
    changed = [name for name in sorted(is_ | (then if trains else {})) if is_.get(name) != then.get(name)]
    if changed:
        raise UsageError(
            "VSE-G542", "conditions differ from those of the good night {date}, so nothing can be compared: {changed}",
            date=good.date, changed="; ".join(f"{name}: {is_.get(name)}, was {then.get(name)}" for name in changed[:5]),
        )
    rows = judge_night(spec, nights, replace(night, conditions=then), history)
    return [row for row in rows if measure in (None, row.measure_name) and cell in (None, row.cell)]


def side_of(rows: Sequence[ReportRow]) -> Literal["good", "bad", "cannot be judged"]:
    """What the rows say of the checkout as a whole."""
    verdicts = {row.verdict for row in rows}
    if verdicts & {"regression", "changed"}:
        return "bad"
    return "good" if verdicts & {"quiet", "improvement"} else "cannot be judged"


def _last_good(nights: Sequence[Night], history: History) -> Night:
    for night in reversed(nights):
        report = history.report(night.date)
        if night.state == "complete" and report is not None and report.exit_code == 0:
            return night
    raise UsageError(
        "VSE-G540", "nightly {name}: has no complete night without an alarm to compare with; run nights first",
        name=history.folder.name,
    )
