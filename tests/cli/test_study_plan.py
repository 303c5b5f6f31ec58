"""`vsetune study plan`: a real tiny cell measured, one line for whoever asks for what there is not."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from vsetune.study.node_types import NodeType


def test_a_study_is_planned_by_real_steps_of_its_cell(
    vsetune: Callable[..., Any], study: Callable[..., Path], home: Path
) -> None:
    file = study(search={"configurations": 3}, seeds=[0, 1], training={"epochs": 2, "batch_size": 40})
    said = vsetune("study", "plan", str(file), "--seconds-per-cell", "0.3", "--workers", "2", "--json")
    assert said.code == 0
    plan = json.loads(said.out)
    (cell,) = plan["cells"]
    assert (plan["trials"], plan["epochs"], plan["usd"], plan["workers"]) == (4, 8.0, None, 2)
    assert cell["search"]["loss.margin"].keys() >= {"low", "high"}
    times = cell["times"]
    assert (times["steps_per_epoch"], times["encoded_share"], times["scored_share"]) == (3, 1.0, 1.0)
    assert min(times[name] for name in ("step", "opening", "validation", "test", "checkpoint", "first_start")) > 0
    assert times["steps_timed"] >= 2
    assert 0 < times["worked_share"] <= 1
    assert times["peak_memory_bytes"] > 2**26
    assert plan["device_hours"] == pytest.approx(4 * cell["trial_seconds"] / 3600)
    assert "tiny: about 4 trials, 8 epochs, " in said.lines[-1]
    assert "no price known" in said.lines[-1]
    assert {path.name for path in home.iterdir()} == {"data", "cache"}  # nothing is recorded
    left = {path.parent.name for path in (home / "cache").rglob("*") if path.is_file()}
    assert left == {"banks", "locks"}  # nothing left behind but the arrays that the study will read


def test_a_cell_that_cannot_be_measured_is_a_line_and_exit_code_1(
    vsetune: Callable[..., Any], study: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.executable", "/bin/false")
    said = vsetune("study", "plan", str(study()))
    assert said.code == 1
    assert "vsepp.lmh" in said.out
    assert "cell vsepp.lmh: could not be measured: exit code 1" in said.lines
    assert "without 1 cell that could not be measured" in said.lines[-1]


@pytest.mark.parametrize("command", ["plan", "validate"])
def test_a_gpu_of_this_machine_that_no_trial_uses_is_told_with_the_line_to_write(
    command: str, vsetune: Callable[..., Any], study: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.executable", "/bin/false")  # nothing is measured
    monkeypatch.setattr("vsetune.study.planning.planned_study.this_machine", machine_with_a_gpu)
    told = "trials train on CPUs (resources.gpus: 0), and a GPU is not used"
    (line,) = [line for line in vsetune("study", command, str(study())).lines if told in line]
    assert "write in the study file `resources: {gpus: 1}`" in line
    quiet = vsetune("study", command, str(study(resources={"gpus": 0.5})))
    assert not [line for line in quiet.lines if "not used" in line]


def machine_with_a_gpu() -> NodeType:
    return NodeType("this machine", {"CPU": 2.0, "GPU": 1.0, "memory": 2.0**34}, most=1, usd_per_hour=None)


@pytest.mark.parametrize(("changes", "told"), [
    ({"resources": {"gpus": 1.5}}, "study.yaml: resources.gpus: got 1.5, need 0, a fraction of a GPU or 1"),
    ({"resources": {"cpus": 4096}}, "study.yaml: resources: one trial asks for 4096 CPUs, 0 GPUs; no node type has"),
    ({"data": {"path": "nowhere"}}, "nowhere"),
    ({"study": "a/b"}, "study.yaml: study: "),
])
def test_what_cannot_be_planned_is_told_in_one_line(
    vsetune: Callable[..., Any], study: Callable[..., Path], changes: dict[str, Any], told: str
) -> None:
    said = vsetune("study", "plan", str(study(**changes)))
    assert said.code == 2
    assert told in said.lines[-1]
