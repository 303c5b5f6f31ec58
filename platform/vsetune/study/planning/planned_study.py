"""Plan of a study before it runs: how long it takes, whether it fits, what it costs.

Every cell is measured for a moment on this machine; the rest is arithmetic.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from vsetune.board.search_budgets import SearchBudget
from vsetune.config.study.cells import Cell, repeated_cells
from vsetune.config.study.resources import Needs, copies_that_fit
from vsetune.config.study.study_spec import SearchSpec, StudySpec
from vsetune.config.study.training import TrainingSpec
from vsetune.study.cell_budget import CellBudget, at_once, epochs_of_cell
from vsetune.study.node_types import (
    THIS_MACHINE,
    NodeType,
    known_node_types,
    own_memory,
    require_places,
    share_of,
    this_machine,
    trials_that_types_allow,
    unused_gpus,
)
from vsetune.study.planning.cell_times import CellTimes, measure_cells
from vsetune.study.preparation import PreparedStudy
from vsetune.training.schedule import next_validation, total_steps

STUDY_START_S = 20.0
"""Assumed constant, in seconds: until Ray has started and its workers have imported their modules."""
WORKER_BYTES = 250 * 2**20
"""Assumed constant: memory of a worker's process in addition to its trial, for Ray and its dependencies."""
REPORT_S = 0.2
"""Assumed constant: seconds that a trial waits while its validation is recorded."""
_NO_LIMIT = 2**31
_OF_MEMORY = 0.95
_BUSY = 0.75
"""Share of the time of steps. If steps compute for a smaller share, other work delays them."""


@dataclass(frozen=True)
class CellPlan:
    """The plan of one cell with the repeats of its search. times: measured here. validations, trial_seconds: of one
    whole trial. searches, confirmations: numbers of trials, and hours, usd: of them all; usd is None without a price.
    is_cut_by_seconds: `budget.device_seconds_per_cell` ends a search before its epochs are used up. memory_bytes: peak
    memory of a trial's worker, on a GPU that of its tensors; None if unknown.
    """

    cell: str
    repeats: int
    searches: int
    confirmations: int
    epochs: float
    validations: int
    trial_seconds: float
    hours: float
    usd: float | None
    times: CellTimes
    is_cut_by_seconds: bool
    memory_bytes: int | None


@dataclass(frozen=True)
class StudyPlan:
    """The plan of a study. All numbers are of the cells that could be measured. hours: wall-clock time on `workers`
    places. device_hours: sum over all trials. unmeasured: cell to problem. remarks: what does not fit, is left unused
    or differs from the budget, a line each."""

    study: str
    cells: Sequence[CellPlan]
    trials: int
    epochs: float
    hours: float
    device_hours: float
    workers: int
    usd: float | None
    unmeasured: Mapping[str, str]
    remarks: Sequence[str]


def plan_study(
    prepared: PreparedStudy, *, where: str, seconds_per_cell: float, workers: int | None,
    on_progress: Callable[[str], None] = lambda text: None,
) -> StudyPlan:
    """where: opens messages. seconds_per_cell: of the steps that are timed. workers: trials at a time; None: as many as
    this machine, or all nodes of the cluster that $VSETUNE_CLUSTER describes, have room for. ConfigError if a trial has
    no place here, or nowhere."""
    study, here, types = prepared.spec, this_machine(), known_node_types()
    cells = [cell for cell in prepared.cells if cell.repeat == 1]
    needs = [study.resources.needs_of(cell.network_name, cell.loss_name) for cell in cells]
    at = f"{where}: resources"
    require_places(needs, [here], [], where=at, advice="measure on a machine that has it")
    require_places(needs, types or [here], [], where=at, advice="lower `resources`, or add a node that has it")
    limit = workers or study.resources.concurrent_trials or _NO_LIMIT
    beside = min(len(cells), limit, *(trials_that_types_allow([here], each) for each in needs))
    measured = measure_cells(study, cells, seconds=seconds_per_cell, at_once=beside, on_progress=on_progress)
    return plan_of_times(study, cells, measured, types or [replace(here, most=workers or 1)], limit=limit)


def plan_of_times(
    study: StudySpec, cells: Sequence[Cell], measured: Mapping[str, CellTimes | str], types: Sequence[NodeType], *,
    limit: int = _NO_LIMIT,
) -> StudyPlan:
    """measured: by cell, its times or the problem in measuring them. types: the possible kinds of nodes; every cell
    fits one of them. limit: trials at a time. The hours are those of places that are never empty, or of the cell whose
    trials must wait for one another the longest."""
    needs_of = {cell.name: study.resources.needs_of(cell.network_name, cell.loss_name) for cell in cells}
    remarks = unused_gpus(needs_of.values(), [kind.resources for kind in types if kind.most])
    remarks += _remark_on_waiting(measured)
    plans, longest_s, busy_s, together = list[CellPlan](), 0.0, 0.0, 0
    searching = sum(bool(cell.domains) for cell in repeated_cells(study, cells))
    for cell in cells:
        times, needs = measured[cell.name], needs_of[cell.name]
        if isinstance(times, str):
            continue
        plan = plan_cell(study, cell, times, usd_per_hour(needs, types))
        places = min(limit, trials_that_types_allow(types, needs))
        busy_s += plan.hours * 3600 / places
        confirmations = plan.confirmations // plan.repeats
        waves = waves_of(study.search, plan.searches // plan.repeats, places, searching)
        longest_s = max(longest_s, (len(waves) + math.ceil(confirmations / places)) * plan.trial_seconds)
        together = min(places, together + plan.repeats * max(*waves, confirmations))
        plans.append(plan)
        remarks += _remarks_on(study, cell, plan, places, types)
    prices = [plan.usd for plan in plans if plan.usd is not None]
    return StudyPlan(
        study.study, plans, trials=sum(plan.searches + plan.confirmations for plan in plans),
        epochs=sum(plan.epochs for plan in plans), hours=(STUDY_START_S + max(busy_s, longest_s)) / 3600,
        device_hours=sum(plan.hours for plan in plans), workers=together,
        usd=sum(prices) if prices and len(prices) == len(plans) else None,
        unmeasured={name: problem for name, problem in measured.items() if isinstance(problem, str)}, remarks=remarks,
    )


def plan_cell(study: StudySpec, cell: Cell, times: CellTimes, price: float | None) -> CellPlan:
    """The plan of a cell and its repeats, as if no trial is pruned: epochs that pruned trials save are trained by
    others. price: dollars per hour of one trial's place, None if unknown."""
    training, most_s = TrainingSpec.model_validate(cell.training), study.budget.device_seconds_per_cell
    validations = validations_of(training, times.steps_per_epoch)
    steps = total_steps(training, times.steps_per_epoch)
    counted = steps * times.step + validations * (times.validation + REPORT_S)  # against the budget in seconds
    seconds = times.start + counted + times.test
    searches, repeats = CellBudget.of(study, cell).room(0), repeated_cells(study, [cell])
    affordable = searches if most_s is None else max(1, math.ceil(most_s / counted))
    searched, confirmations = min(searches, affordable) * len(repeats), sum(len(each.seeds) - 1 for each in repeats)
    hours = (searched + confirmations) * seconds / 3600
    peak, is_on_gpu = times.peak_memory_bytes, study.resources.needs_of(cell.network_name, cell.loss_name).gpus > 0
    return CellPlan(
        cell.name, len(repeats), searched, confirmations, epochs=(searched + confirmations) * training.epochs,
        validations=validations, trial_seconds=seconds, hours=hours, usd=None if price is None else hours * price,
        times=times, is_cut_by_seconds=affordable < searches,
        memory_bytes=peak if peak is None or is_on_gpu else peak + WORKER_BYTES,
    )


def validations_of(training: TrainingSpec, steps_per_epoch: int) -> int:
    """Number of validations of a whole trial."""
    count = step = 0
    while step < total_steps(training, steps_per_epoch):
        step, count = next_validation(training, step=step, steps_per_epoch=steps_per_epoch), count + 1
    return max(1, count)


def waves_of(search: SearchSpec, trials: int, places: int, cells: int) -> list[int]:
    """How many trials a search runs at a time, wave after wave. places: those of all `cells` that are searched."""
    waves: list[int] = []
    while (begun := sum(waves)) < trials:
        waves.append(min(places, trials - begun, at_once(search, begun, places // max(1, cells))))
    return waves


def usd_per_hour(needs: Needs, types: Iterable[NodeType]) -> float | None:
    """Price of one trial's share of its nodes, the mean over all places; None if there is no place, or one of them has
    no price."""
    process = needs.of_process
    priced = [
        (kind.most * copies, kind.usd_per_hour, needs.workers * share_of(kind.resources, process))
        for kind in types if kind.most and (copies := copies_that_fit(kind.resources, process))
    ]
    if not priced or any(price is None for _, price, _ in priced):
        return None
    total = sum(count * price * share for count, price, share in priced if price is not None)
    return total / sum(count for count, _, _ in priced)


def _remarks_on(
    study: StudySpec, cell: Cell, plan: CellPlan, places: int, types: Sequence[NodeType]
) -> list[str]:
    """Lines on a validation that was timed in part, on trials that do not fit their place, and on a search that trains
    more or fewer epochs than its budget. The memory of other machines is unknown."""
    found, share, whole = [], plan.times.scored_share, float(cell.training["epochs"])
    if share < 1:
        found.append(f"a validation was timed on {100 * share:.2g} % of its pairs; the memory of all may be more")
    needs, peak = study.resources.needs_of(cell.network_name, cell.loss_name), (plan.memory_bytes or 0) / 2**30
    is_here = [(kind.name, kind.most) for kind in types] == [(THIS_MACHINE, 1)]
    room = needs.memory_gib or (_OF_MEMORY * own_memory()[0] / 2**30 / places if is_here else math.inf)
    if peak > room and not needs.gpus:
        found.append(
            f"a trial holds {peak:.2g} GiB, and {places} at a time have room for {room:.2g} GiB each; set "
            f"resources.memory_gib: {math.ceil(10 * peak) / 10:g}, or resources.concurrent_trials lower"
        )
    searched = plan.searches // plan.repeats * whole
    budget = SearchBudget(epochs_of_cell(study, cell), whole, searched, is_out_of_time=plan.is_cut_by_seconds)
    if budget.why:
        found.append(f"its search is given {budget.epochs:g} epochs and trains {searched:g}, since {budget.why}")
    return [f"cell {cell.name}: {line}" for line in found]


def _remark_on_waiting(measured: Mapping[str, CellTimes | str]) -> list[str]:
    """A line if steps waited so much that the hours hold only for a machine as busy as during the measurement."""
    shares = [times.worked_share for times in measured.values() if isinstance(times, CellTimes)]
    if not shares or (share := sum(shares) / len(shares)) >= _BUSY:
        return []
    return [
        f"steps computed in {100 * share:.0f} % of their time and waited in the rest, for other work of this machine: "
        "the hours hold for a machine as busy as it was; plan again when it is idle"
    ]
