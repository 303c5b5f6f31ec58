"""The only node that can take some trials leaves while a study runs: the others go on, one line tells what is waited
for, and when such a node comes the study ends as it would have."""

from __future__ import annotations

import io
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path

import psutil
import pytest
import ray
import yaml
from ray._private.authentication.authentication_token_setup import ensure_token_if_auth_enabled
from ray.cluster_utils import Cluster
from ray_heads import end_all, ray_command
from rich.console import Console

from vsetune.records.state import Attempt
from vsetune.records.studies import Studies
from vsetune.study import placement
from vsetune.study.preparation import prepare_study
from vsetune.study.run import run_study

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("default")]
STUDY = {
    "study": "tiny",
    "data": {"path": "data/scenes", "scenes": {"train": 480, "validation": 16, "test": 16}},
    "networks": [{"name": "vsepp", "fixed": {"embedding_size": 16, "word_size": 8}}],
    "losses": [{"name": "lmh"}, {"name": "lseh"}],
    "training": {"epochs": 12, "batch_size": 40, "validate_every_steps": 10, "learning_rate": 1e-3},
    "search": {"configurations": 3, "sampler": "random"}, "scheduler": {"kind": "none"}, "seeds": [0],
    "resources": {"cpus": 1, "cells": {"vsepp.lseh": {"memory_gib": 2}}},
}


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    """A head with 1 GiB, with the token of this process, whose mode cannot be changed once Ray has looked at it."""
    ensure_token_if_auth_enabled()
    found = Cluster(initialize_head=True, head_node_args={
        "num_cpus": 1, "memory": 1 << 30, "include_dashboard": False,
    })
    yield found
    ray.shutdown()
    found.shutdown()


@contextmanager
def large_node(cluster: Cluster) -> Iterator[None]:
    """A node with 4 GiB, killed at the end."""
    process = subprocess.Popen(
        [ray_command(), "start", "--block", f"--address={cluster.address}", "--num-cpus=1", f"--memory={4 << 30}"],
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )
    try:
        yield
    finally:
        end_all(psutil.Process(process.pid))
        process.wait(30)


def until(condition: Callable[[], bool], is_over: threading.Event) -> None:
    while not condition() and not is_over.wait(0.05):
        pass


def test_other_trials_go_on_and_what_is_waited_for_is_told(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VSETUNE_HOME", str(tmp_path))
    monkeypatch.setattr(placement, "REPORTED_AFTER_S", 1.0)
    ray.init(address=cluster.address, log_to_driver=False, logging_level="ERROR")
    file, shown, is_over, is_there = tmp_path / "tiny.yaml", io.StringIO(), threading.Event(), threading.Event()
    file.write_text(yaml.safe_dump(STUDY))
    ended_meanwhile: list[str] = []

    def take_away_and_bring_back() -> None:
        with large_node(cluster):
            until(lambda: ray.cluster_resources().get("CPU") == 2, is_over)
            is_there.set()
            until(lambda: bool(list(tmp_path.glob("runs/tiny/trials/vsepp.lseh-*/checkpoint.pt"))), is_over)
        until(lambda: shown.getvalue().count("finished vsepp.lmh-") == 3 and "waiting for a node" in shown.getvalue(),
              is_over)
        ended_meanwhile.extend(line for line in shown.getvalue().splitlines() if "finished" in line)
        with large_node(cluster):
            is_over.wait()

    weather = threading.Thread(target=take_away_and_bring_back)
    weather.start()
    assert is_there.wait(120)
    console = Console(file=shown, width=300)
    try:
        outcome = run_study(
            prepare_study(file, console), resume=False, retry_failed=False, address=None, console=console
        )
    finally:
        is_over.set()
        weather.join(60)
    assert outcome.ending == "finished", shown.getvalue()
    assert len([line for line in ended_meanwhile if "vsepp.lmh-" in line]) == 3
    assert shown.getvalue().count("waiting for a node: a trial of vsepp.lseh asks for 1 CPUs, 0 GPUs, 2 GiB memory; "
                                  "the nodes of the cluster have: 1 CPUs, 0 GPUs, 1 GiB memory; it goes on") == 1
    assert shown.getvalue().count("a node has room again for trials with 1 CPUs, 0 GPUs, 2 GiB memory") == 1
    attempts = Studies().attempts("tiny")
    assert [trained_twice(each) for each in by_trial(attempts).values()] == [False] * 6
    assert {each.status for each in attempts} == {"finished", "killed"}


def by_trial(attempts: list[Attempt]) -> dict[str, list[Attempt]]:
    return {each.start.trial: [other for other in attempts if other.start.trial == each.start.trial]
            for each in attempts}


def trained_twice(attempts: list[Attempt]) -> bool:
    """Whether an attempt began before where the one before it had got to by its last validation."""
    ordered = sorted(attempts, key=lambda each: each.start.number)
    return any(after.curve[: len(before.curve)] != before.curve for before, after in pairwise(ordered))
