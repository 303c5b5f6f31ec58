from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest

from vsetune.config.spec.loading import parse_spec
from vsetune.config.study.cells import resolve_cells
from vsetune.config.study.resources import Needs, ResourceSpec
from vsetune.config.study.study_spec import StudySpec
from vsetune.study.capacity import Capacity, unplaced
from vsetune.study.node_types import NodeType, refused
from vsetune.study.placement import require_places
from vsetune.study.preparation import PreparedStudy

SMALL, LARGE, GPU = {"CPU": 2.0}, {"CPU": 8.0}, {"CPU": 4.0, "GPU": 1.0, "accelerator_type:H100": 1.0}


class Cluster:
    """Nodes that the test changes, and a clock that moves whenever it is read."""

    def __init__(self, *nodes: tuple[str, Mapping[str, float]]) -> None:
        self.there: list[tuple[str, Mapping[str, float]]] = list(nodes)
        self.now = 0.0

    def nodes(self) -> Sequence[tuple[str, Mapping[str, float]]]:
        return self.there

    def clock(self) -> float:
        self.now += 10.0
        return self.now


def handed_out(capacity: Capacity, needs: Needs, running: int) -> int:
    """How many trials are in flight once no more is allowed."""
    in_flight = [needs] * running
    while capacity.allows(in_flight, needs):
        in_flight.append(needs)
        assert len(in_flight) < 10_000
    return len(in_flight)


def test_a_study_says_that_it_does_not_use_the_gpus_of_its_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster(("", SMALL), ("", GPU))
    monkeypatch.setattr("vsetune.study.placement.capacity_of", lambda resources, needs: Capacity(cluster.nodes))
    plain = {"study": "tiny", "data": {"path": "x"}, "networks": [{"name": "vsepp"}], "losses": [{"name": "lmh"}]}
    for gpus, lines in ((0, 1), (0.5, 0)):
        spec = parse_spec(plain | {"resources": {"gpus": gpus}}, StudySpec, where="test")
        assert len(require_places(PreparedStudy(spec, resolve_cells(spec, where="test"), "f"))) == lines


def test_a_fixed_cluster_runs_what_fits_on_its_nodes_and_nothing_waits() -> None:
    cluster = Cluster(("", SMALL), ("", {"CPU": 1.0}), ("", LARGE))
    capacity = Capacity(cluster.nodes, clock=cluster.clock)
    assert handed_out(capacity, Needs(cpus=1), 0) == 11
    assert handed_out(capacity, Needs(cpus=2), 0) == 5  # the odd core is of no use
    assert handed_out(Capacity(cluster.nodes, limit=3, clock=cluster.clock), Needs(), 0) == 3


def test_the_processes_of_a_trial_may_be_on_several_nodes() -> None:
    nodes = [{"CPU": 3.0}, {"CPU": 1.0}, {"CPU": 5.0}]
    pair, four = Needs(cpus=4, workers=2), Needs(cpus=4, workers=4)
    assert unplaced([pair], nodes) == []  # two cores of the first node and two of the last
    assert unplaced([pair, pair], nodes) == [pair]  # no core of a fourth process
    assert unplaced([four, four, four], nodes) == [four]
    assert unplaced([Needs(cpus=6)], nodes) == [Needs(cpus=6)]
    assert refused(four, (), nodes[:2]) is None
    three = Needs(cpus=6, workers=3)
    assert (refused(three, (), nodes[:2]) or "").startswith(f"{three}; the nodes of the cluster have: ")
    types = [NodeType("worker", SMALL, 2, None)]
    assert refused(four, types, ()) is None
    five = Needs(cpus=5, workers=5)
    assert refused(five, types, ()) == f"{five}; no node type has room for it: {types[0]}"


def test_fractions_of_a_gpu_add_up_and_an_accelerator_must_be_the_one_asked_for() -> None:
    cluster = Cluster(("", GPU), ("", {"CPU": 4.0, "GPU": 1.0, "accelerator_type:A100": 1.0}))
    capacity = Capacity(cluster.nodes, clock=cluster.clock)
    assert handed_out(capacity, Needs(gpus=1 / 3), 0) == 6
    assert handed_out(capacity, Needs(gpus=0.5, accelerator="H100"), 0) == 2
    assert handed_out(capacity, Needs(gpus=0.5, accelerator="L4"), 0) == 0


def test_concurrency_follows_nodes_that_come_and_go() -> None:
    cluster = Cluster()
    capacity = Capacity(cluster.nodes, [NodeType("worker", SMALL, 4, None)], clock=cluster.clock)
    seen = []
    for nodes in (0, 1, 2, 4, 2, 4):
        cluster.there = [("worker", SMALL)] * nodes
        seen.append(handed_out(capacity, Needs(), 0))
    assert seen == [1, 4, 8, 8, 8, 8]  # at most as many wait as run, and never more than the types can give
    assert handed_out(capacity, Needs(), 12) == 12


def test_room_is_on_the_nodes_there_are_and_on_those_that_may_come_within_the_limit() -> None:
    cluster = Cluster(("worker", SMALL), ("", LARGE))
    grows = Capacity(cluster.nodes, [NodeType("worker", SMALL, 4, None)], clock=cluster.clock)
    fixed = Capacity(cluster.nodes, clock=cluster.clock)
    assert (grows.room(Needs()), fixed.room(Needs()), fixed.room(Needs(cpus=2))) == (16, 10, 5)
    assert Capacity(cluster.nodes, limit=3, clock=cluster.clock).room(Needs()) == 3
    cluster.there = [("", LARGE)]
    assert fixed.room(Needs()) == 8


def test_nobody_waits_for_a_type_of_which_all_nodes_are_there() -> None:
    cluster = Cluster(("worker", SMALL))
    capacity = Capacity(cluster.nodes, [NodeType("worker", SMALL, 1, None)], clock=cluster.clock)
    assert handed_out(capacity, Needs(), 0) == 2


def test_the_largest_trials_find_their_place_first() -> None:
    large, small = Needs(cpus=6), Needs(cpus=2)
    assert unplaced([small, large, small], [LARGE, SMALL]) == []
    assert unplaced([small, large, large], [LARGE, SMALL]) == [large]


def test_a_network_or_a_cell_may_ask_for_more_than_the_others() -> None:
    resources = ResourceSpec.model_validate({
        "cpus": 1, "memory_gib": 2,
        "cells": {"gsmn": {"cpus": 2, "gpus": 0.5}, "gsmn.lseh": {"accelerator": "H100", "gpus": 1}},
    })
    assert resources.needs_of("vsepp", "lmh") == Needs(1, 0.0, 2.0)
    assert resources.needs_of("gsmn", "lmh") == Needs(2, 0.5, 2.0)
    assert resources.needs_of("gsmn", "lseh") == Needs(2, 1.0, 2.0, "H100")
    assert resources.unknown_cells(["gsmn"], ["lmh"]) == ["gsmn.lseh"]
