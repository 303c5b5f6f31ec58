"""`vsetune study plan`: what a study takes, before anything runs."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Column

from vsetune.cli.options import Json, StudyFile
from vsetune.cli.output import (
    FittingTable,
    as_problem,
    complain,
    counted,
    inform,
    interruptible,
    print_json,
    results,
    stderr,
)
from vsetune.config.study.study_spec import StudySpec

if TYPE_CHECKING:
    from vsetune.study.planning.claims import Claims
    from vsetune.study.planning.planned_study import CellPlan, StudyPlan


app = typer.Typer()


@app.command("plan", epilog="Example: vsetune study plan studies/quickstart.yaml --points 1")
def plan_study(
    file: StudyFile,
    seconds_per_cell: Annotated[
        float, typer.Option(min=0.1, max=3600, help="of the steps that are timed of every cell")
    ] = 10.0,
    workers: Annotated[
        int | None, typer.Option(
            min=1, max=100_000, help="trials at a time; default: as many as this machine, or all nodes there can be of "
            "the cluster that $VSETUNE_CLUSTER describes, have room for", show_default=False,
        )
    ] = None,
    points: Annotated[
        float | None, typer.Option(min=0.01, max=100, help="also plan the searches and seeds that show a difference of "
                                   "so many points of M-Recall", show_default=False)
    ] = None,
    percent: Annotated[
        float | None, typer.Option(min=0.1, max=99, help="the same for so many per cent fewer epochs to a target",
                                   show_default=False)
    ] = None,
    like: Annotated[
        str | None, typer.Option(metavar="STUDY", help="take the deviations between searches and seeds from this "
                                 "recorded study, in place of assumed ones", show_default=False)
    ] = None,
    as_json: Json = False,
) -> None:
    """Estimate the cost of a study before it runs: trials, epochs, hours, money, memory.

    Takes a few real training steps and one validation of every cell at its defaults on this machine; the rest is
    arithmetic: the budget of the cell, its confirming seeds, how many trials run at a time. Left out are trials that
    `scheduler` stops early and what `evaluation` asks for beside recalls. Money needs the prices of a cluster file
    ($VSETUNE_CLUSTER). Nothing is recorded; generated data are made if the study asks for them and they are missing.

    Exit codes: 0, 1 some cell could not be measured, 2 the input is wrong.
    """
    from vsetune.study.planning.claims import ASSUMED, claims_of, recorded_spread
    from vsetune.study.planning.planned_study import plan_study
    from vsetune.study.preparation import prepare_study

    spread = ASSUMED if like is None else recorded_spread(like)
    with interruptible("nothing was recorded"):
        prepared = prepare_study(file, stderr)
        cells = [cell for cell in prepared.cells if cell.repeat == 1]
        with stderr.status("measuring") as status:
            plan = plan_study(
                prepared, where=str(file), seconds_per_cell=seconds_per_cell, workers=workers,
                on_progress=status.update,
            )
    claims = claims_of(prepared.spec, cells, plan, points=points, per_cent=percent, spread=spread)
    if as_json:
        print_json(asdict(plan) | {"claims": asdict(claims)})
    else:
        results.print(_table(plan))
    for line in plan.remarks:
        complain("warning", line)
    for name, problem in plan.unmeasured.items():
        complain("failed", as_problem(problem).at(f"cell {name}"))
    if any(cell.domains for cell in cells):
        inform("trials: searches x configurations + confirming seeds; hours: of a cell's trials one after another")
        inform("\n".join(_claim_lines(prepared.spec, claims, points=points, percent=percent, like=like)))
    inform(_summary(plan))
    raise typer.Exit(1 if plan.unmeasured else 0)


def _table(plan: StudyPlan) -> FittingTable:
    right = ["trials", "epochs", "s per\nstep", "s per\nvali-\ndation", "hours", "vali-\ndating", "GiB", "$"]
    numbers = {row.cell: _numbers(row) for row in plan.cells}
    numbers |= {name: ["?"] * (len(right) - 1) + [""] for name in plan.unmeasured}
    return FittingTable(
        ["cell", *(Column(name, justify="right") for name in right)], [[name, *row] for name, row in numbers.items()],
        title=f"{plan.study}: {counted(len(numbers), 'cell', 'cells')}",
    )


def _numbers(row: CellPlan) -> list[str]:
    searches = f"{row.repeats} x {row.searches // row.repeats}" if row.repeats > 1 else str(row.searches)
    return [
        f"{searches} + {row.confirmations}" if row.confirmations else searches, f"{row.epochs:g}",
        f"{row.times.step:.3g}", f"{row.times.validation:.3g}", f"{row.hours:.3g}",
        f"{100 * row.validations * row.times.validation / row.trial_seconds:.0f} %",
        "" if row.memory_bytes is None else f"{row.memory_bytes / 2**30:.2f}",
        "" if row.usd is None else f"{row.usd:.2f}",
    ]


def _summary(plan: StudyPlan) -> str:
    """One sentence."""
    money = "no price known" if plan.usd is None else f"${plan.usd:.2f}"
    missing = counted(len(plan.unmeasured), "cell", "cells")
    without = f", without {missing} that could not be measured" if plan.unmeasured else ""
    duration = f"{plan.hours:.1f} hours" if plan.hours >= 2 else f"{60 * plan.hours:.1f} minutes"
    return (
        f"{plan.study}: about {plan.trials} trials, {plan.epochs:g} epochs, {duration} with {plan.workers} trials at a "
        f"time ({plan.device_hours:.2f} hours of trials), {money}{without}"
    )


def _claim_lines(
    study: StudySpec, claims: Claims, *, points: float | None, percent: float | None, like: str | None
) -> list[str]:
    """What the study could claim of its tuned losses, and what a wanted difference takes."""
    found = "no claim about tuned losses: that takes search.repeats of 3 or more, and two seeds or more"
    if claims.points is not None:
        found = (
            f"would show, with 80 % probability, differences of {claims.points:.2g} points of M-Recall or "
            f"{claims.per_cent:.2g} % fewer epochs between tuned losses"
        )
    height, pace = claims.spread
    source = f"recorded by {like}" if like else "assumed; --like STUDY takes recorded ones"
    lines = [
        f"{study.study}: {counted(study.search.repeats, 'search', 'searches')} of each loss: {found}",
        f"standard deviations between searches and seeds: {height.search:.2g} and {height.seed:.2g} points, "
        f"{100 * pace.search:.2g} and {100 * pace.seed:.2g} % of epochs ({source})",
    ]
    if points is None and percent is None:
        return lines
    asked = " and ".join([
        *([] if points is None else [f"{points:g} points"]), *([] if percent is None else [f"{percent:g} % of epochs"]),
    ])
    if (wanted := claims.wanted) is None:
        return [*lines, f"{asked}: more searches than are practical; tune with more configurations, or train longer"]
    hours = "" if wanted.hours is None else f", {wanted.hours:.3g} hours of trials"
    return [*lines, (
        f"{asked}: search.repeats: {wanted.repeats} and {wanted.seeds + 1} seeds: {wanted.trials} trials, "
        f"{wanted.epochs:g} epochs{hours}"
    )]
