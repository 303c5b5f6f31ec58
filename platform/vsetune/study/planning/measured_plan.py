"""Plan of a prepared study from steps that are timed on this machine."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from vsetune.config.study.cells import Cell
from vsetune.study.node_types import known_node_types, trials_that_types_allow, unused_gpus
from vsetune.study.planning.cell_times import Progress, measure_cells
from vsetune.study.planning.planned_study import StudyPlan, plan_study, require_places, this_machine
from vsetune.study.preparation import PreparedStudy


@dataclass(frozen=True)
class MeasuredPlan:
    """cells: one for all repeats of its search. measured_at_once: cells that were timed at the same time. unused: a
    line on each kind of GPU that no trial uses."""

    plan: StudyPlan
    cells: Sequence[Cell]
    measured_at_once: int
    unused: Sequence[str]


def measured_plan(
    prepared: PreparedStudy, *, where: str, seconds_per_cell: float, workers: int | None,
    on_progress: Callable[[Progress, int], None] = lambda progress, cells: None,
) -> MeasuredPlan:
    """where: opens messages. seconds_per_cell: of steps and validation that are timed. workers: trials at a time; None:
    as many as this machine, or all nodes of the cluster that $VSETUNE_CLUSTER describes, have room for. on_progress:
    called with the progress and the number of cells. ConfigError if a trial has no place here, or nowhere."""
    study, here = prepared.spec, this_machine()
    cells = [cell for cell in prepared.cells if cell.repeat == 1]
    needs = [study.resources.needs_of(cell.network_name, cell.loss_name) for cell in cells]
    require_places(needs, [here], where=where, advice="measure on a machine that has it")
    types = known_node_types()
    require_places(needs, types or [here], where=where, advice="lower `resources`, or add a node that has it")
    unused = unused_gpus(needs, [kind.resources for kind in types or [here] if kind.most])
    limit = workers or study.resources.concurrent_trials
    at_once = min(len(cells), limit or len(cells), *(trials_that_types_allow([here], each) for each in needs))
    measured = measure_cells(
        study, cells, seconds=seconds_per_cell, at_once=at_once,
        on_progress=lambda progress: on_progress(progress, len(cells)),
    )
    plan = plan_study(study, cells, measured, types or [replace(here, most=workers or 1)], limit=limit)
    return MeasuredPlan(plan, cells, at_once, unused)
