"""Plan of a study: its cells, trials and epochs, and, from the measured times of each cell, hours, money and memory."""

from __future__ import annotations

import heapq
import itertools
import math
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from vsetune.config.study.cells import Cell, repeated_cells
from vsetune.config.study.evaluation_settings import EvaluationSpec
from vsetune.config.study.resources import Needs, copies_that_fit
from vsetune.config.study.study_spec import StudySpec
from vsetune.config.study.training import TrainingSpec
from vsetune.errors import ConfigError
from vsetune.report.search_budgets import SearchBudget
from vsetune.study.cell_budget import CellBudget, at_once, epochs_of_cell
from vsetune.study.node_types import (
    RAYS_SHARE,
    NodeType,
    occupy,
    own_cpus,
    own_memory,
    refused,
    share_of,
    trials_that_types_allow,
)
from vsetune.study.planning.cell_times import CellTimes, TrialSeconds, cheaper_cadence, trial_seconds, validations_of

STUDY_START_S, WORKER_START_S = 10.0, 8.0
"""Assumed constants, in seconds: until Ray has started and the first trial is handed out; until a worker's process has
imported its modules, once per place."""
WORKER_BYTES = 250 * 2**20
"""Assumed constant: memory of a worker's process in addition to its trial, for Ray and its dependencies."""
REPORT_S = 0.2
"""Assumed constant: seconds that a trial waits while its validation is recorded."""
_OF_MEMORY = 0.95
_BUSY = 0.75
"""Share of the time of steps. If steps compute for a smaller share, other work or slow data delay them."""


@dataclass(frozen=True)
class CellPlan:
    """The plan of one cell with the repeats of its search. times: measured here. trial: seconds of one whole trial.
    validations: of one trial. searches, confirmations: numbers of trials, and hours, usd: of them all; usd is None
    without a price. is_cut_by_seconds: `budget.device_seconds_per_cell` ends a search before its epochs are used up.
    memory_bytes: peak memory of a trial's worker, on a GPU that of its tensors; None if unknown.
    """

    cell: str
    searches: int
    confirmations: int
    epochs: float
    validations: int
    hours: float
    usd: float | None
    trial: TrialSeconds
    times: CellTimes
    is_cut_by_seconds: bool
    memory_bytes: int | None
    repeats: int = 1


@dataclass(frozen=True)
class StudyPlan:
    """The plan of a study. All numbers are of the cells that could be measured. hours: wall-clock time on `workers`
    places. device_hours: sum over all trials. unmeasured: cell to problem. remarks: warnings, and costs that the
    numbers leave out, a line each."""

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
    study: StudySpec, cells: Sequence[Cell], measured: Mapping[str, CellTimes | str], types: Sequence[NodeType], *,
    limit: int | None,
) -> StudyPlan:
    """The plan of a study. measured: by cell, its times or the problem in measuring them. types: the possible kinds of
    nodes; every cell fits one of them. limit: trials at a time, None for as many as there is room for."""
    known = {cell.name: found for cell in cells if isinstance(found := measured[cell.name], CellTimes)}
    needs = {cell.name: study.resources.needs_of(cell.network_name, cell.loss_name) for cell in cells}
    plans = {
        cell.name: plan_cell(study, cell, known[cell.name], usd_per_hour(needs[cell.name], types))
        for cell in cells if cell.name in known
    }
    works = [
        CellWork(needs[cell.name], float(cell.training["epochs"]), plans[cell.name].trial.total,
                 plans[cell.name].searches // plans[cell.name].repeats, len(repeat.seeds) - 1)
        for cell in cells if cell.name in plans for repeat in repeated_cells(study, [cell])
    ]
    first = max((times.first_start - times.start for times in known.values()), default=0.0)
    places = trials_that_types_allow(types, min(needs.values()))
    places = places if limit is None else min(limit, places)
    whole = schedule(
        works, types, limit=limit, first=WORKER_START_S + max(0.0, first),
        at_once=lambda begun, searching: at_once(study.search, begun, places // searching),
    )
    hours = (STUDY_START_S + whole.seconds) / 3600
    remarks = _remarks_on_waiting(known, hours)
    for cell in cells:
        if cell.name in plans:
            remarks += _remarks_on(cell, plans[cell.name], needs) + _remark_on_budget(study, cell, plans[cell.name])
    prices = [plan.usd for plan in plans.values()]
    return StudyPlan(
        study.study, list(plans.values()),
        trials=sum(plan.searches + plan.confirmations for plan in plans.values()),
        epochs=sum(plan.epochs for plan in plans.values()), hours=hours,
        device_hours=sum(plan.hours for plan in plans.values()), workers=whole.workers,
        usd=None if None in prices or not prices else sum(price for price in prices if price is not None),
        unmeasured={name: problem for name, problem in measured.items() if isinstance(problem, str)},
        remarks=[*remarks, *_remarks_on_memory(plans, needs, types, limit), *_left_out(study)],
    )


def plan_cell(study: StudySpec, cell: Cell, times: CellTimes, price: float | None) -> CellPlan:
    """The plan of a cell and its repeats, as if no trial is pruned: epochs that pruned trials save are trained by
    others. price: dollars per hour of one trial's place, None if unknown."""
    training = TrainingSpec.model_validate(cell.training)
    trial = trial_seconds(
        training, times, report=REPORT_S, checkpoint_share=study.resources.checkpoint_share
    )
    searches, most_s = searched_trials(study, cell), study.budget.device_seconds_per_cell
    affordable = searches if most_s is None else max(1, math.ceil(most_s / (trial.total - trial.start - trial.ending)))
    repeats = repeated_cells(study, [cell])
    searches, affordable = searches * len(repeats), affordable * len(repeats)
    confirmations = sum(len(each.seeds) - 1 for each in repeats)
    trials = min(searches, affordable) + confirmations
    hours = trials * trial.total / 3600
    return CellPlan(
        cell.name, min(searches, affordable), confirmations, epochs=trials * training.epochs,
        validations=validations_of(training, times.steps_per_epoch), hours=hours,
        usd=None if price is None else hours * price, trial=trial, times=times,
        is_cut_by_seconds=affordable < searches, repeats=len(repeats), memory_bytes=_memory(study, cell, times),
    )


def _memory(study: StudySpec, cell: Cell, times: CellTimes) -> int | None:
    if times.peak_memory_bytes is None or study.resources.needs_of(cell.network_name, cell.loss_name).gpus:
        return times.peak_memory_bytes
    return times.peak_memory_bytes + WORKER_BYTES


def searched_trials(study: StudySpec, cell: Cell) -> int:
    """Number of whole trials that the search of a cell asks for."""
    return CellBudget.of(study, cell).room(0)


def _remarks_on(cell: Cell, plan: CellPlan, needs: Mapping[str, Needs]) -> list[str]:
    times, peak = plan.times, plan.memory_bytes
    found = []
    if plan.trial.validating > plan.trial.training > 0:
        found.append(_dear_validation(cell, plan))
    if times.is_scaled:
        found.append(
            f"cell {cell.name}: a validation was timed on {100 * times.encoded_share:.3g} % of the split's items and "
            f"{100 * times.scored_share:.3g} % of its pairs, and scaled; the memory of a whole one may be more"
        )
    asked = needs[cell.name].memory_gib
    if asked and peak is not None and not needs[cell.name].gpus and peak > asked * 2**30:
        found.append(
            f"cell {cell.name}: a trial holds {peak / 2**30:.2g} GiB, and trials are placed as if they took "
            f"resources.memory_gib {asked:g}; set it to {math.ceil(10 * peak / 2**30) / 10:g}"
        )
    if plan.is_cut_by_seconds:
        found.append(
            f"cell {cell.name}: budget.device_seconds_per_cell ends its search after about "
            f"{plan.searches // plan.repeats} trials"
        )
    return found


def _remark_on_budget(study: StudySpec, cell: Cell, plan: CellPlan) -> list[str]:
    """A line on why the search trains more or fewer epochs than its budget; none if it does not."""
    whole = float(cell.training["epochs"])
    budget = SearchBudget(epochs_of_cell(study, cell), whole, plan.searches // plan.repeats * whole)
    if plan.is_cut_by_seconds or not budget.why:
        return []
    remark = f"its search is given {budget.epochs:g} epochs and trains {budget.trained:g}, since {budget.why}"
    return [f"cell {cell.name}: {remark}"]


def _dear_validation(cell: Cell, plan: CellPlan) -> str:
    """A line on validations that take longer than the training, with the setting to change."""
    times, training = plan.times, TrainingSpec.model_validate(cell.training)
    every = training.validate_every_steps
    remark = (
        f"cell {cell.name}: validating takes {plan.trial.validating / plan.trial.training:.3g} times as long as "
        f"training ({plan.validations} validations a trial, {times.validation:.3g} s each; a step takes "
        f"{times.step:.3g} s)"
    )
    if every is None or every >= times.steps_per_epoch:
        return f"{remark}; it validates at the end of epochs only already: need a smaller data.validation_split"
    enough = cheaper_cadence(times)
    wanted = "null" if enough is None or enough <= every else str(enough)
    return (
        f"{remark}; set training.validate_every_steps: {wanted} at network {cell.network_name}, so that its losses "
        f"stay comparable (now {every})"
    )


def _remarks_on_memory(
    plans: Mapping[str, CellPlan], needs: Mapping[str, Needs], types: Sequence[NodeType], limit: int | None
) -> list[str]:
    """A line if the trials that run at once on this machine would not fit its memory. None for other machines, whose
    memory is unknown."""
    if [(kind.name, kind.most) for kind in types] != [(THIS_MACHINE, 1)]:
        return []
    has, _ = own_memory()
    for name, plan in plans.items():
        peak, places = plan.memory_bytes, min(trials_that_types_allow(types, needs[name]), limit or 2**31)
        if peak is not None and not needs[name].gpus and peak * places > _OF_MEMORY * has:
            return [
                f"cell {name}: {places} trials at a time would hold {peak * places / 2**30:.3g} GiB, this machine has "
                f"{has / 2**30:.3g}; set resources.memory_gib: {math.ceil(10 * peak / 2**30) / 10:g}, or "
                "resources.concurrent_trials lower"
            ]
    return []


def _remarks_on_waiting(known: Mapping[str, CellTimes], hours: float) -> list[str]:
    """A line if steps waited so much that the times are valid only for a machine as busy as during the measurement."""
    if not known:
        return []
    share = sum(times.worked_share for times in known.values()) / len(known)
    if share >= _BUSY:
        return []
    return [
        f"steps computed in {100 * share:.0f} % of their time and waited in the rest, for other work of this machine "
        f"or for data: the hours hold for a machine as busy as it was, an idle one would take {60 * hours * share:.3g} "
        "minutes or more; plan again when it is idle"
    ]


def _left_out(study: StudySpec) -> list[str]:
    found = []
    if study.evaluation != EvaluationSpec():
        found.append("evaluation: what it asks for beside recalls, once at the end of a trial, is not in the hours")
    if study.scheduler.kind != "none":
        found.append(
            f"scheduler.kind {study.scheduler.kind}: trials that it stops make room for others: there may be more "
            "trials, and epochs that differ by up to half a trial in every cell"
        )
    return found


THIS_MACHINE = "this machine"


@dataclass(frozen=True)
class CellWork:
    """The trials of a cell. epochs: of one trial. seconds: of one in a process that has run others before. searches,
    confirmations: numbers of trials."""

    needs: Needs
    epochs: float
    seconds: float
    searches: int
    confirmations: int


@dataclass(frozen=True)
class Schedule:
    """A simulated study. seconds: from the first start of a trial to the last end. workers: most trials at a time."""

    seconds: float
    workers: int


@dataclass
class _Progress:
    """Progress of a cell. searches, confirmations: trials that have not begun. running, begun: trials of its search.
    promised: epochs of the begun trials of its search."""

    work: CellWork
    searches: int
    confirmations: int
    running: int = 0
    begun: int = 0
    promised: float = field(default=0.0)


def this_machine() -> NodeType:
    """This machine with the resources that Ray would find here."""
    resources = {"CPU": float(own_cpus()), "memory": RAYS_SHARE * own_memory()[1]}
    if _has_driver_of_gpus():
        resources |= _gpus()
    return NodeType(THIS_MACHINE, resources, most=1, usd_per_hour=None)


def _has_driver_of_gpus() -> bool:
    """Whether torch could find a GPU here. Loading torch to ask takes longer than all else that a command asks of this
    machine, so a Linux without a driver's device (NVIDIA, its WSL, AMD) does not ask."""
    if not sys.platform.startswith("linux"):
        return True
    return any(Path("/dev").glob("nvidia*")) or any(Path(device).exists() for device in ("/dev/dxg", "/dev/kfd"))


def _gpus() -> dict[str, float]:
    """The GPUs that torch finds, by Ray's names."""
    import torch

    resources = {}
    if torch.cuda.is_available():
        resources["GPU"] = float(torch.cuda.device_count())
        for word in torch.cuda.get_device_name().replace("-", " ").split():
            resources[f"accelerator_type:{word}"] = 1.0  # Ray names one of them
    return resources


def require_places(needs: Iterable[Needs], types: Sequence[NodeType], *, where: str, advice: str) -> None:
    """ConfigError, which ends with the advice, if some trial fits no node."""
    for each in sorted(set(needs)):
        reason = refused(each, types, [])
        if reason is not None:
            raise ConfigError(
                "VSE-S032", "{where}: one trial asks for {needs}; {hint}", where=f"{where}: resources", needs=reason,
                hint=advice,
            )


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


def schedule(
    cells: Sequence[CellWork], types: Iterable[NodeType], *, at_once: Callable[[int, int], int], limit: int | None,
    first: float,
) -> Schedule:
    """Simulates the trials of a study on all possible nodes, handed out in the ledger's order: confirmations of cells
    whose search is over, else the cell with the fewest promised epochs. No trial is stopped.

    at_once: most trials of a cell's search at a time, from the number that it has begun and that of the cells that
    search. limit: trials at a time, None for no limit. first: extra seconds of the first trial of a place. Every cell
    must fit the nodes.
    """
    free = [dict(kind.resources) for kind in types for _ in range(kind.most)]
    left = [_Progress(work, work.searches, work.confirmations) for work in cells]
    running: list[tuple[float, int, _Progress, bool, list[dict[str, float]]]] = []
    order, now, workers = itertools.count(), 0.0, 0
    while True:
        while len(running) < (limit or len(running) + 1):
            chosen = _next(left, at_once)
            places = [] if chosen is None else _places(free, chosen[0].work.needs)
            if chosen is None or not places:
                break
            cell, is_search = chosen
            _begin(cell, is_search)
            for node in places:
                occupy(node, cell.work.needs.of_process)
            extra = first if len(running) >= workers else 0.0
            heapq.heappush(running, (now + cell.work.seconds + extra, next(order), cell, is_search, places))
            workers = max(workers, len(running))
        if not running:
            return Schedule(now, workers)
        now, _, cell, is_search, places = heapq.heappop(running)
        cell.running -= is_search
        for node in places:
            occupy(node, cell.work.needs.of_process, count=-1)


def _places(free: Iterable[dict[str, float]], needs: Needs) -> list[dict[str, float]]:
    """The node of each process of a trial, the first ones with room; none if there are too few."""
    found: list[dict[str, float]] = []
    for node in free:
        found += [node] * min(needs.workers - len(found), copies_that_fit(node, needs.of_process))
        if len(found) == needs.workers:
            return found
    return []


def _next(cells: Iterable[_Progress], at_once: Callable[[int, int], int]) -> tuple[_Progress, bool] | None:
    """The cell whose trial comes next, and whether that trial is one of its search; None if none may begin now."""
    cells = list(cells)
    for cell in cells:
        if cell.confirmations and not cell.searches and not cell.running:
            return cell, False
    searching = sum(bool(cell.searches or cell.running) for cell in cells)
    return min(
        ((cell, True) for cell in cells if cell.searches and cell.running < at_once(cell.begun, searching)),
        key=lambda each: each[0].promised, default=None,
    )


def _begin(cell: _Progress, is_search: bool) -> None:
    if not is_search:
        cell.confirmations -= 1
        return
    cell.searches -= 1
    cell.running += 1
    cell.begun += 1
    cell.promised += cell.work.epochs
