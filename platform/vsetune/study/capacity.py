"""Capacity of a cluster: how many trials it has room for, now and when it grows."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import ray

from vsetune.config.study.resources import Needs, copies_that_fit, trials_that_fit
from vsetune.study.node_types import NodeType, occupy, refused, type_of

Node = Mapping[str, float]
_LOOK_EVERY_S = 1.0


def connected_nodes() -> Sequence[tuple[str, Node]]:
    """(node type or an empty text, amounts by Ray's names) of every node that accepts work, of the cluster that this
    process is connected to. A node that is being drained counts until it has left."""
    return [(type_of(node.get("Labels", {})), node["Resources"]) for node in ray.nodes() if node["Alive"]]


@dataclass
class Capacity:
    """Whether another trial may be handed out. Looks at the cluster once a second.

    If node types show that the cluster can grow, more trials are handed out than there is room for: Ray's autoscaler
    adds nodes for trials that wait for a place. No more trials wait than run, but one may always wait. So the search
    samples later trials with more results. Trials whose nodes have all left wait for such nodes and do not
    count here.

    look: see `connected_nodes`. types: kinds of nodes that the cluster may have; empty for a fixed cluster. limit:
    trials at a time by the study's settings, None for no limit.
    """

    look: Callable[[], Sequence[tuple[str, Node]]]
    types: Sequence[NodeType] = ()
    limit: int | None = None
    clock: Callable[[], float] = time.monotonic
    _nodes: Sequence[tuple[str, Node]] = field(default=(), init=False)
    _next_look: float = field(default=float("-inf"), init=False)

    def allows(self, in_flight: Sequence[Needs], another: Needs) -> bool:
        """Whether one more trial may be handed out. in_flight: the needs of handed-out trials that have not ended."""
        if self.limit is not None and len(in_flight) >= self.limit:
            return False
        nodes = self._look()
        trials = [*filter(self.has_place, in_flight), another]
        waiting = unplaced(trials, [node for _, node in nodes])
        if not waiting:
            return True
        running = len(trials) - len(waiting)
        return len(waiting) <= max(1, running) and not unplaced(waiting, self._growth(nodes))

    def has_place(self, needs: Needs) -> bool:
        """Whether such a trial fits an empty node, either an existing one or one that may be added."""
        return refused(needs, self.types, self.nodes()) is None

    def nodes(self) -> list[Node]:
        """The total resources of the nodes that accept work."""
        return [node for _, node in self._look()]

    def room(self, needs: Needs) -> int:
        """How many trials with these needs may run at a time, on the present nodes and those that may be added."""
        nodes = self._look()
        fitting = trials_that_fit([*(node for _, node in nodes), *self._growth(nodes)], needs)
        return fitting if self.limit is None else min(self.limit, fitting)

    def _look(self) -> Sequence[tuple[str, Node]]:
        now = self.clock()
        if now >= self._next_look:
            self._nodes, self._next_look = self.look(), now + _LOOK_EVERY_S
        return self._nodes

    def _growth(self, nodes: Sequence[tuple[str, Node]]) -> list[Node]:
        """The nodes that could still be added. Present nodes of unknown type are not counted against any type."""
        there = Counter(name for name, _ in nodes)
        return [kind.resources for kind in self.types for _ in range(max(0, kind.most - there[kind.name]))]


def unplaced(trials: Iterable[Needs], nodes: Iterable[Node]) -> list[Needs]:
    """The trials that do not fit these nodes by first-fit decreasing: the largest first, each of its processes on the
    first node with room."""
    free = [dict(node) for node in nodes]
    left: list[Needs] = []
    counts = Counter(trials)
    for needs in sorted(counts, key=lambda each: (each.gpus, each.cpus, each.memory_gib), reverse=True):
        process = needs.of_process
        fitting = [copies_that_fit(node, process) for node in free]
        placed = min(counts[needs], sum(fitting) // needs.workers)
        processes = placed * needs.workers
        for node, most in zip(free, fitting, strict=True):
            here = min(processes, most)
            if here:
                processes -= here
                occupy(node, process, count=here)
        left += [needs] * (counts[needs] - placed)
    return left
