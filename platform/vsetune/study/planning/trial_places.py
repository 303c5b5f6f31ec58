"""Planned places of trials, on this machine or on a cluster described by a file; their duration and price."""

from __future__ import annotations

import heapq
import itertools
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import psutil
import torch

from vsetune.config.study.resources import Needs, copies_that_fit
from vsetune.errors import ConfigError
from vsetune.study.node_types import NodeType, refused, share_of

THIS_MACHINE = "this machine"
_OF_MEMORY = 0.7
"""Share of the memory that Ray leaves for trials; the rest is its object store."""


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
    resources = {"CPU": float(os.cpu_count() or 1), "memory": _OF_MEMORY * psutil.virtual_memory().available}
    if torch.cuda.is_available():
        resources["GPU"] = float(torch.cuda.device_count())
        for word in torch.cuda.get_device_name().replace("-", " ").split():
            resources[f"accelerator_type:{word}"] = 1.0  # Ray names one of them
    return NodeType(THIS_MACHINE, resources, most=1, usd_per_hour=None)


def require_places(needs: Iterable[Needs], types: Sequence[NodeType], *, where: str, advice: str) -> None:
    """ConfigError, which ends with the advice, if some trial fits no node."""
    for each in sorted(set(needs)):
        reason = refused(each, types, [])
        if reason is not None:
            raise ConfigError(f"{where}: resources: one trial asks for {reason}; {advice}")


def places_for(needs: Needs, types: Iterable[NodeType]) -> int:
    """How many such trials all possible nodes have room for at a time."""
    return sum(kind.most * copies_that_fit(kind.resources, needs) for kind in types)


def usd_per_hour(needs: Needs, types: Iterable[NodeType]) -> float | None:
    """Price of one trial's share of its node, the mean over all places; None if there is no place, or one of them has
    no price."""
    priced = [
        (kind.most * copies_that_fit(kind.resources, needs), kind.usd_per_hour, share_of(kind.resources, needs))
        for kind in types if kind.most and copies_that_fit(kind.resources, needs)
    ]
    places = sum(count for count, _, _ in priced)
    if not places:
        return None
    total = 0.0
    for count, price, share in priced:
        if price is None:
            return None
        total += count * price * share
    return total / places


def schedule(
    cells: Sequence[CellWork], types: Iterable[NodeType], *, at_once: Callable[[int], int], limit: int | None,
    first: float,
) -> Schedule:
    """Simulates the trials of a study on all possible nodes, handed out in the ledger's order: confirmations of cells
    whose search is over, else the cell with the fewest promised epochs. No trial is stopped.

    at_once: most trials of a cell's search at a time, from the number that it has begun. limit: trials at a time, None
    for no limit. first: extra seconds of the first trial of a place. Every cell must fit a node.
    """
    free = [dict(kind.resources) for kind in types for _ in range(kind.most)]
    left = [_Progress(work, work.searches, work.confirmations) for work in cells]
    running: list[tuple[float, int, _Progress, bool, int]] = []
    order, now, workers = itertools.count(), 0.0, 0
    while True:
        while len(running) < (limit or len(running) + 1):
            chosen = _next(left, at_once)
            place = None if chosen is None else _fitting(free, chosen[0].work.needs)
            if chosen is None or place is None:
                break
            cell, is_search = chosen
            _begin(cell, is_search)
            _take(free[place], cell.work.needs, -1)
            extra = first if len(running) >= workers else 0.0
            heapq.heappush(running, (now + cell.work.seconds + extra, next(order), cell, is_search, place))
            workers = max(workers, len(running))
        if not running:
            return Schedule(now, workers)
        now, _, cell, is_search, place = heapq.heappop(running)
        cell.running -= is_search
        _take(free[place], cell.work.needs, +1)


def _next(cells: Iterable[_Progress], at_once: Callable[[int], int]) -> tuple[_Progress, bool] | None:
    """The cell whose trial comes next, and whether that trial is one of its search; None if none may begin now."""
    cells = list(cells)
    for cell in cells:
        if cell.confirmations and not cell.searches and not cell.running:
            return cell, False
    return min(
        ((cell, True) for cell in cells if cell.searches and cell.running < at_once(cell.begun)),
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


def _fitting(nodes: Sequence[dict[str, float]], needs: Needs) -> int | None:
    return next((number for number, node in enumerate(nodes) if copies_that_fit(node, needs)), None)


def _take(node: dict[str, float], needs: Needs, sign: int) -> None:
    for name, amount in _amounts(needs):
        node[name] = node.get(name, 0.0) + sign * amount


def _amounts(needs: Needs) -> Iterator[tuple[str, float]]:
    yield "CPU", float(needs.cpus)
    yield "GPU", needs.gpus
    yield "memory", needs.memory_gib * 2**30
