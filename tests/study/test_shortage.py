"""Trials that no node has room for any more are told of, once, and are in nobody's way."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from vsetune.config.study.resources import Needs
from vsetune.study.capacity import Capacity
from vsetune.study.node_types import NodeType
from vsetune.study.placement import REPORTED_AFTER_S, Shortage

SMALL, LARGE = Needs(cpus=1), Needs(cpus=4)
NEEDS = {"vsepp.lmh": SMALL, "vsepp.lseh": LARGE}


class Cluster:
    """Nodes and a clock that the test moves."""

    def __init__(self, *cpus: float) -> None:
        self.cpus, self.now, self.said = list(cpus), 0.0, list[str]()

    def nodes(self) -> Sequence[tuple[str, Mapping[str, float]]]:
        return [("", {"CPU": each}) for each in self.cpus]

    def capacity(self, *types: NodeType) -> Capacity:
        return Capacity(self.nodes, types, clock=lambda: self.now)

    def shortage(self, *types: NodeType, unfinished: Sequence[str] = tuple(NEEDS)) -> Shortage:
        return Shortage(self.capacity(*types), NEEDS, lambda: list(unfinished), self.said.append,
                        clock=lambda: self.now)

    def after(self, seconds: float, shortage: Shortage) -> list[str]:
        """What is said by then."""
        self.said.clear()
        until = self.now + seconds
        while self.now < until:
            self.now += 1.0
            shortage.look()
        return list(self.said)


def test_trials_that_lost_their_node_for_good_are_told_once_and_once_more_when_one_comes() -> None:
    cluster = Cluster(1, 4)
    shortage = cluster.shortage()
    assert cluster.after(100, shortage) == []
    cluster.cpus = [1]
    assert cluster.after(REPORTED_AFTER_S - 10, shortage) == [], "it may be replaced"
    (line,) = cluster.after(1000, shortage)
    assert line.startswith(
        "waiting for a node: a trial of vsepp.lseh asks for 4 CPUs, 0 GPUs; the nodes of the cluster have: 1 CPUs, 0 "
        "GPUs; it goes on when one comes"
    )
    cluster.cpus = [1, 8]
    assert cluster.after(10, shortage) == ["a node has room again for trials with 4 CPUs, 0 GPUs"]
    cluster.cpus = []
    assert [line.split(" asks")[0] for line in cluster.after(100, shortage)] == [
        "waiting for a node: a trial of vsepp.lmh", "waiting for a node: a trial of vsepp.lseh",
    ]


def test_a_node_that_is_soon_replaced_is_not_told() -> None:
    cluster = Cluster(4)
    shortage = cluster.shortage()
    for cpus in ([], [4], [], [4]):
        cluster.cpus = list(cpus)
        assert cluster.after(REPORTED_AFTER_S - 10, shortage) == []


def test_what_the_cluster_may_add_is_named() -> None:
    cluster = Cluster()
    kinds = [NodeType("gpu", {"CPU": 8.0, "GPU": 1.0}, 2, None), NodeType("tiny", {"CPU": 1.0}, 2, None)]
    told = cluster.after(100, cluster.shortage(*kinds))
    assert [line.split("; ")[1:] for line in told] == [
        ["the nodes of the cluster have: none",
         "the cluster may add gpu (8 CPUs, 1 GPUs) or tiny (1 CPUs, 0 GPUs)"],
        ["the nodes of the cluster have: none", "the cluster may add gpu (8 CPUs, 1 GPUs)"],
    ]


def test_a_cell_that_has_nothing_left_to_run_waits_for_nothing() -> None:
    cluster = Cluster(1)
    assert cluster.after(100, cluster.shortage(unfinished=["vsepp.lmh"])) == []


def test_a_trial_without_a_place_keeps_no_other_from_free_nodes() -> None:
    cluster = Cluster(1)
    capacity = cluster.capacity()
    assert (capacity.has_place(SMALL), capacity.has_place(LARGE)) == (True, False)
    assert capacity.allows([LARGE], SMALL)
    assert not capacity.allows([LARGE, SMALL], SMALL)
    assert not capacity.allows([LARGE], LARGE)
    growing = cluster.capacity(NodeType("large", {"CPU": 4.0}, 1, None))
    assert growing.has_place(LARGE)
