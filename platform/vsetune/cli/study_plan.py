"""`vsetune study plan`: cells, spaces, epochs, hours, money and memory of a study before anything of it runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Column

from vsetune.cli.components import searched_text
from vsetune.cli.output import FittingTable, counted, interruptible, messages, print_json, results, say
from vsetune.config.study.cells import Cell

if TYPE_CHECKING:
    from vsetune.study.planning.cell_times import Progress
    from vsetune.study.planning.planned_study import CellPlan, StudyPlan

PLAN_EXAMPLE = "Example: vsetune study plan studies/quickstart.yaml"
_WIDE = 120
"""Width of a terminal in which the table has room for the searched settings; otherwise they stand below it."""


def plan_study(
    file: Annotated[Path, typer.Argument(help="study file (YAML)", show_default=False)],
    seconds_per_cell: Annotated[
        float, typer.Option(min=0.1, max=3600, help="of steps and validation that are timed of every cell")
    ] = 10.0,
    workers: Annotated[
        int | None, typer.Option(
            min=1, max=100_000, help="trials at a time; default: as many as this machine, or all nodes there can be of "
            "the cluster that $VSETUNE_CLUSTER describes, have room for", show_default=False,
        )
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", metavar="", help="the same as JSON")] = False,
) -> None:
    """Say what a study will take before it runs: cells, spaces, epochs, hours, money, memory.

    Takes a few real training steps of every cell at its defaults on this machine and times a validation, of a part of
    the split where all of it takes too long; the rest is arithmetic: the budget of the cell, its confirming seeds, what
    trials occupy and how many run at a time. Money needs the prices of a cluster file ($VSETUNE_CLUSTER). Nothing is
    recorded; embedded data are made if the study asks for them and they are missing.

    Exit codes: 0, 1 some cell could not be measured, 2 the input is wrong.
    """
    from vsetune.study.node_types import known_node_types, unused_gpus
    from vsetune.study.planning.cell_times import measure_cells
    from vsetune.study.planning.planned_study import plan_study as plan_of
    from vsetune.study.planning.trial_places import places_for, require_places, this_machine
    from vsetune.study.preparation import prepare_study

    with interruptible("nothing was recorded"):
        prepared = prepare_study(file, messages)
        study, cells, here = prepared.spec, prepared.cells, this_machine()
        needs = [study.resources.needs_of(cell.network_name, cell.loss_name) for cell in cells]
        require_places(needs, [here], where=str(file), advice="measure on a machine that has it")
        types = known_node_types()
        require_places(needs, types or [here], where=str(file), advice="lower `resources`, or add a node that has it")
        unused = unused_gpus(needs, [kind.resources for kind in types or [here] if kind.most])
        limit = workers or study.resources.concurrent_trials
        at_once = min(len(cells), limit or len(cells), *(places_for(each, [here]) for each in needs))
        with messages.status("measuring") as status:
            measured = measure_cells(
                study, cells, seconds=seconds_per_cell, at_once=at_once,
                on_progress=lambda progress: status.update(_told(progress, len(cells))),
            )
    plan = plan_of(study, cells, measured, types or [replace(here, most=workers or 1)], limit=limit)
    if as_json:
        print_json(_plain(plan, cells, at_once))
    else:
        spaces = {cell.name: searched_text(cell) for cell in cells}
        is_wide = results.width >= _WIDE
        results.print(_table(plan, spaces if is_wide else None))
        for name, space in () if is_wide else spaces.items():
            results.print(f"{name}: {space}", soft_wrap=True, highlight=False, markup=False)
    for line in [*unused, *plan.remarks]:
        say(line)
    for name, problem in plan.unmeasured.items():
        say(f"cell {name}: {problem}")
    say(_summary(plan))
    raise typer.Exit(1 if plan.unmeasured else 0)


def _told(progress: Progress, cells: int) -> str:
    return f"measuring: {progress.ended} of {cells} cells; now {', '.join(progress.running) or 'none'}"


def _table(plan: StudyPlan, spaces: Mapping[str, str] | None) -> FittingTable:
    """spaces: what is searched, by cell; None leaves the column out."""
    right = ["trials", "epochs", "s a\nstep", "s a vali-\ndation", "hours", "of it\nvali-\ndating", "GiB"]
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
    trials = f"{row.searches} + {row.confirmations}" if row.confirmations else str(row.searches)
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
        f"{plan.study}: about {plan.trials} trials, {plan.epochs:g} epochs, {_duration(plan.hours)} on {plan.workers} "
        f"workers ({plan.device_hours:.2f} hours of trials), {money}{without}"
    )


def _duration(hours: float) -> str:
    return f"{hours:.1f} hours" if hours >= 2 else f"{60 * hours:.1f} minutes"


def _plain(plan: StudyPlan, cells: Sequence[Cell], at_once: int) -> dict[str, object]:
    spaces = {cell.name: {name: domain.to_plain() for name, domain in cell.domains.items()} for cell in cells}
    rows = [asdict(row) | {"trial_seconds": row.trial.total, "search": spaces[row.cell]} for row in plan.cells]
    return asdict(plan) | {"cells": rows, "measured_at_once": at_once}
