"""`vsetune study plan` and `simulate`: what a study takes, and what its settings would find, before anything runs."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Column

from vsetune.cli import messages
from vsetune.cli.options import Json, StudyFile, require_known
from vsetune.cli.output import (
    FittingTable,
    as_problem,
    complain,
    counted,
    inform,
    interruptible,
    print_json,
    results,
    searched_text,
    stderr,
)
from vsetune.config.study.cells import Cell
from vsetune.config.study.study_spec import StudySpec
from vsetune.errors import UsageError
from vsetune.records.studies import Studies
from vsetune.study.study_file import load_study

if TYPE_CHECKING:
    from vsetune.study.planning.cell_times import Progress
    from vsetune.study.planning.claims import Claims
    from vsetune.study.planning.planned_study import CellPlan, StudyPlan
    from vsetune.study.simulation.simulated_search import SimulatedSearch, SimulationSettings, Trainings
    from vsetune.study.simulation.simulated_studies import SearchSummary


app = typer.Typer()

_WIDE = 120
"""Width of a terminal in which the table has room for the searched settings; otherwise they stand below it."""


@app.command("plan", epilog="Example: vsetune study plan studies/quickstart.yaml --points 1")
def plan_study(
    file: StudyFile,
    seconds_per_cell: Annotated[
        float, typer.Option(min=0.1, max=3600, help="of steps and validation that are timed of every cell")
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
    """Estimate the cost of a study before it runs: cells, spaces, epochs, hours, money, memory.

    Takes a few real training steps of every cell at its defaults on this machine and times a validation, of a part of
    the split where all of it takes too long; the rest is arithmetic: the budget of the cell, its confirming seeds, what
    trials occupy and how many run at a time. Money needs the prices of a cluster file ($VSETUNE_CLUSTER). Nothing is
    recorded; generated data are made if the study asks for them and they are missing.

    Exit codes: 0, 1 some cell could not be measured, 2 the input is wrong.
    """
    from vsetune.study.planning.claims import ASSUMED, claims_of, recorded_spread
    from vsetune.study.planning.measured_plan import measured_plan
    from vsetune.study.preparation import prepare_study

    spread = ASSUMED if like is None else recorded_spread(like)
    with interruptible("nothing was recorded"):
        prepared = prepare_study(file, stderr)
        study = prepared.spec
        with stderr.status("measuring") as status:
            measured = measured_plan(
                prepared, where=str(file), seconds_per_cell=seconds_per_cell, workers=workers,
                on_progress=lambda progress, cells: status.update(_progress_text(progress, cells)),
            )
    plan, cells = measured.plan, measured.cells
    claims = claims_of(study, cells, plan, points=points, per_cent=percent, spread=spread)
    if as_json:
        print_json(_plain(plan, cells, measured.measured_at_once) | {"claims": asdict(claims)})
    else:
        spaces = {cell.name: searched_text(cell) for cell in cells}
        is_wide = results.width >= _WIDE
        results.print(_table(plan, spaces if is_wide else None))
        for name, space in () if is_wide else spaces.items():
            results.print(f"{name}: {space}", soft_wrap=True)
    for line in measured.unused:
        complain("warning", line)
    for line in plan.remarks:
        inform(line)
    for name, problem in plan.unmeasured.items():
        complain("failed", as_problem(problem).at(f"cell {name}"))
    if any(cell.domains for cell in cells):
        inform("trials: searches x configurations + confirming seeds; hours: of a cell's trials one after another")
        inform("\n".join(_claim_lines(study, claims, points=points, percent=percent, like=like)))
    inform(_summary(plan))
    raise typer.Exit(1 if plan.unmeasured else 0)


def _progress_text(progress: Progress, cells: int) -> str:
    return f"measuring: {progress.ended} of {cells} cells; now {', '.join(progress.running) or 'none'}"


def _table(plan: StudyPlan, spaces: Mapping[str, str] | None) -> FittingTable:
    """spaces: what is searched, by cell; None leaves the column out."""
    right = ["trials", "epochs", "s per\nstep", "s per\nvali-\ndation", "hours", "vali-\ndating", "GiB"]
    right += [] if plan.usd is None else ["$"]
    left: list[Column | str] = ["cell", *([] if spaces is None else [Column("searched", overflow="fold")])]
    numbers = {row.cell: [*_numbers(row), *([] if plan.usd is None else [f"{row.usd:.2f}"])] for row in plan.cells}
    shown = numbers | {name: ["?"] * len(right) for name in plan.unmeasured}
    return FittingTable(
        [*left, *(Column(name, justify="right") for name in right)],
        [[name, *([] if spaces is None else [spaces[name]]), *row] for name, row in shown.items()],
        title=f"{plan.study}: {counted(len(shown), 'cell', 'cells')}",
    )


def _numbers(row: CellPlan) -> list[str]:
    times, peak = row.times, row.memory_bytes
    searches = f"{row.repeats} x {row.searches // row.repeats}" if row.repeats > 1 else str(row.searches)
    trials = f"{searches} + {row.confirmations}" if row.confirmations else searches
    return [
        trials, f"{row.epochs:g}", f"{times.step:.3g}", f"{times.validation:.3g}{'*' if times.is_scaled else ''}",
        f"{row.hours:.3g}", f"{100 * row.trial.validating / row.trial.total:.0f} %",
        "" if peak is None else f"{peak / 2**30:.2f}",
    ]


def _summary(plan: StudyPlan) -> str:
    """One sentence."""
    money = "no price known" if plan.usd is None else f"${plan.usd:.2f}"
    missing = counted(len(plan.unmeasured), "cell", "cells")
    without = f", without {missing} that could not be measured" if plan.unmeasured else ""
    return (
        f"{plan.study}: about {plan.trials} trials, {plan.epochs:g} epochs, {_duration(plan.hours)} with "
        f"{plan.workers} trials at a time ({plan.device_hours:.2f} hours of trials), {money}{without}"
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


def _duration(hours: float) -> str:
    return f"{hours:.1f} hours" if hours >= 2 else f"{60 * hours:.1f} minutes"


def _plain(plan: StudyPlan, cells: Sequence[Cell], at_once: int) -> dict[str, object]:
    spaces = {cell.name: {name: domain.to_plain() for name, domain in cell.domains.items()} for cell in cells}
    rows = [asdict(row) | {"trial_seconds": row.trial.total, "search": spaces[row.cell]} for row in plan.cells]
    return asdict(plan) | {"cells": rows, "measured_at_once": at_once}


@app.command("simulate", epilog="Example: vsetune study simulate studies/quickstart.yaml --workers 8")
def simulate_study(
    file: StudyFile,
    workers: Annotated[int, typer.Option(min=1, max=10_000, help="trials at a time")] = 8,
    seeds: Annotated[int, typer.Option(min=1, max=1000, help="searches per landscape")] = 10,
    epoch_seconds: Annotated[
        float, typer.Option(min=0.001, max=1e6, help="of one epoch; budgets in seconds and hours depend on it")
    ] = 60.0,
    landscape: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="only this one; may be repeated. Default: all")
    ] = None,
    curves: Annotated[
        str | None, typer.Option(metavar="STUDY", help="recorded curves of this study in place of made-up ones")
    ] = None,
    as_json: Json = False,
) -> None:
    """Simulate the search of a study in virtual time: what it would find and cost, before anything is trained.

    Takes `search`, `scheduler`, `budget` and `training.epochs` of the file through the code that runs a study, one cell
    at a time, on made-up trainings whose best configuration is known. Networks, losses, their ranges and data play no
    part; a validation is made after each epoch, with a noise of 0.5 points. A target that is the best of a baseline is
    54 % here, where the best configuration reaches 60.

    With --curves those cells of the file are searched that STUDY has recorded with the
    same space: a configuration gets the curve of the nearest whole trial there, as it was.
    """
    from vsetune.study.simulation.simulated_search import (
        MISS_FACTOR,
        SimulationSettings,
        promised_epochs,
        require_affordable,
    )
    from vsetune.study.simulation.simulated_studies import simulate, summaries

    study = load_study(file)
    chosen = _made_up(landscape or []) if curves is None else _recorded(study, curves, landscape or [], file)
    settings = SimulationSettings(workers=workers, epoch_seconds=epoch_seconds)
    if not isinstance(study.search.target, str):
        settings = replace(settings, target=study.search.target)
    require_affordable(study, settings, where=str(file))
    found = []
    with interruptible("nothing was recorded"), stderr.status("simulating") as status:
        for search in simulate(study, chosen, seeds=seeds, settings=settings):
            found.append(search)
            status.update(f"simulating: {len(found)} of {len(chosen) * seeds} searches, at {search.landscape}")
    miss_epochs = MISS_FACTOR * promised_epochs(study, settings)
    rows = summaries(found, miss_epochs=miss_epochs)
    if study.search.objective == "epochs_to_target":
        _show_targets(study, found, chosen, settings, as_json=as_json)
        return
    if as_json:
        print_json({"study": study.study, "miss_epochs": miss_epochs, "landscapes": [asdict(row) for row in rows]})
        return
    results.print(_simulated_table(study, rows, workers=workers))
    inform(
        f"hit: the pick is truly within 0.5 points of the {'optimum' if curves is None else 'best recorded'} "
        "(95 % interval); found: a whole trial is; epochs to hit: trained by all trials "
        f"until then, geometric mean, a miss as {miss_epochs:g}; costly: something truly better by > 0.5 was pruned"
    )


def _made_up(names: list[str]) -> list[Trainings]:
    """Synthetic trainings with these names, or all of them where no name is given."""
    from vsetune.study.simulation.landscapes import LANDSCAPES

    known = {require_known(name, LANDSCAPES, "landscape", at="--landscape") for name in names or LANDSCAPES}
    return [each for name, each in LANDSCAPES.items() if name in known]


def _recorded(study: StudySpec, source: str, names: list[str], file: Path) -> list[Trainings]:
    """Trainings recorded by the study `source`, each reported in one line."""
    from vsetune.study.simulation.recorded_curves import recorded_landscapes

    if names:
        raise UsageError(messages.ONE_OF_TWO(option="--landscape", got=names[0], other=f"--curves {source}"))
    if study.search.objective == "epochs_to_target" and isinstance(study.search.target, str):
        raise UsageError(messages.OPEN_TARGET(file=file))
    found = recorded_landscapes(study, Studies(), source, where=str(file))
    for landscape in found:
        inform(landscape.says())
    return [*found]


def _show_targets(
    study: StudySpec, found: list[SimulatedSearch], chosen: list[Trainings], settings: SimulationSettings, *,
    as_json: bool,
) -> None:
    """For studies that search for epochs to a target, where the M-Recall of the winner is not the objective."""
    from vsetune.study.simulation.simulated_studies import NEAR_SOONEST, target_summaries

    rows = target_summaries(
        found, target=settings.target, epochs=study.training.epochs, landscapes={each.name: each for each in chosen},
    )
    if as_json:
        plain = [
            {key: None if isinstance(value, float) and not math.isfinite(value) else value
             for key, value in asdict(row).items()} for row in rows
        ]
        print_json({"study": study.study, "target": settings.target, "landscapes": plain})
        return
    names = ("fastest", "pick", "times the\nfastest", "near", "ends at", "trials")
    shown = [
        (
            row.name, f"{row.soonest:.1f}", f"{row.pick:.1f}", f"{row.ratio:.2f}", f"{row.near:.2f}",
            f"{row.height:.1f}", f"{row.trials:.1f}",
        )
        for row in rows
    ]
    results.print(FittingTable(
        ["landscape", *(Column(name, justify="right") for name in names)], shown,
        title=f"{study.study}: {_settings_of(study)}; {settings.workers} workers",
    ))
    inform(
        f"true epochs to M-Recall {settings.target:g} % ({max(each.top for each in found):g} is the best), medians: of "
        "the fastest configuration and "
        f"of the pick; near: share of picks within {NEAR_SOONEST:g} times the fastest; ends at: M-Recall after a "
        "whole training of the pick"
    )


def _simulated_table(study: StudySpec, rows: list[SearchSummary], *, workers: int) -> FittingTable:
    right = (
        "hit", "found", "epochs\nto hit", "below\nthe best", "costly", "epochs", "trials", "pruned", "failed", "hours",
    )
    return FittingTable(
        ["landscape", *(Column(name, justify="right") for name in right)], [_row(row) for row in rows],
        title=f"{study.study}: {_settings_of(study)}; {workers} workers, {rows[0].searches} searches a landscape",
        sections=[place for place, row in enumerate(rows) if row.name == "all"],
    )


def _row(row: SearchSummary) -> list[str]:
    low, high = row.hits_within
    return [
        row.name, f"{row.hits:.2f} ({low:.2f}-{high:.2f})", f"{row.found:.2f}", f"{row.epochs_to_hit:.0f}",
        "-" if row.shortfall is None else f"{row.shortfall:.2f}", f"{row.costly:.2f}", f"{row.epochs:.0f}",
        f"{row.trials:.1f}", f"{row.pruned:.1f}", f"{row.failed:.1f}", f"{row.seconds / 3600:.1f}",
    ]


def _settings_of(study: StudySpec) -> str:
    search, scheduler, budget = study.search, study.scheduler, study.budget
    grace = scheduler.grace_in(study.training.epochs)
    kinds = {
        "none": "no pruning", "median": f"median (grace {grace:g})",
        "patience": f"patience {scheduler.patience_epochs:g} over the median (grace {grace:g})",
    }
    halving = f"{scheduler.kind} (grace {grace:g}, factor {scheduler.reduction_factor:g})"
    most = budget.epochs_per_cell or search.configurations * study.training.epochs
    parts = [
        f"{search.start} start, then {search.sampler}" if search.learns else search.sampler,
        kinds.get(scheduler.kind, halving), f"{most:g} epochs a cell, {study.training.epochs:g} a trial",
    ]
    if budget.device_seconds_per_cell is not None:
        parts.append(f"{budget.device_seconds_per_cell:g} device-seconds a cell")
    return ", ".join(parts)
