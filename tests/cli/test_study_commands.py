"""`vsetune study confirm`, `explain`, `plan`: results, JSON, and one line for a mistake."""

from __future__ import annotations

import io
import json

import pytest
from rich.console import Console

from vsetune.config.study.study_spec import StudySpec
from vsetune.records.events import AttemptStart, StudyRecord, ValidationPoint
from vsetune.study.node_types import NodeType
from vsetune.study.preparation import prepare_study

CONFIG = {"study": "tiny", "data": {"path": "data"}, "networks": [{"name": "vsepp"}], "losses": [{"name": "lmh"}]}
RECORD = StudyRecord("tiny", "beef", StudySpec.model_validate(CONFIG).to_plain())


def test_what_cannot_be_confirmed_is_refused(vsetune, opened, home) -> None:
    opened(RECORD)
    assert vsetune("study", "confirm", "tinny").refused("study tinny", str(home), "tiny")
    assert vsetune("study", "confirm", "tiny.yaml").refused("VSE-X011", "tiny.yaml")
    assert vsetune("study", "confirm", "tiny").refused("data")


def test_a_study_that_still_searches_is_not_confirmed(vsetune, opened, study) -> None:
    file = study()
    opened(prepare_study(file, Console(file=io.StringIO())).record())
    for name in ("tiny", str(file)):
        assert vsetune("study", "confirm", name, "--seeds", "2").refused("study tiny", "vsepp.lmh")


def test_the_page_of_a_search_is_written_under_the_home(vsetune, opened, home) -> None:
    study = opened(RECORD)
    assert vsetune("study", "explain", "tiny").refused("VSE-X030", "study tiny")
    assert vsetune("study", "explain", "tinny").refused("study tinny", str(home), "tiny")
    run = study.start_attempt(AttemptStart(
        "tiny", "vsepp.lmh-c000-s0", "vsepp.lmh", "vsepp", "lmh", 1, 0, "search", {"loss.margin": 0.2}, {},
    ))
    study.record_points(run, [ValidationPoint(10, 1.0, 100, 41.5, 1.0)])
    said = vsetune("study", "explain", "tiny")
    assert said.code == 0, said.err
    page = home / "searches" / "tiny.html"
    assert said.out.strip() == str(page)
    assert "41.5" in page.read_text()
    assert "Winner: vsepp.lmh-c000-s0: M-Recall 41.50 % at epoch 1.00, open, with loss.margin 0.2" in said.err
    assert "best M-Recall (x: failed)" in said.err


def test_a_study_is_planned_by_real_steps_of_its_cell(vsetune, study, home) -> None:
    file = study(search={"configurations": 3}, seeds=[0, 1], training={"epochs": 2, "batch_size": 40})
    said = vsetune("study", "plan", str(file), "--seconds-per-cell", "30", "--workers", "2", "--json")
    assert said.code == 0
    plan = json.loads(said.out)
    (cell,) = plan["cells"]
    assert (plan["trials"], plan["epochs"], plan["usd"], plan["workers"]) == (4, 8.0, None, 2)
    times = cell["times"]
    assert (times["steps_per_epoch"], times["steps_timed"], times["scored_share"]) == (3, 2, 1.0)
    assert min(times[name] for name in ("start", "step", "validation", "test", "worked_share")) > 0
    assert times["peak_memory_bytes"] > 2**26
    assert plan["device_hours"] == pytest.approx(4 * cell["trial_seconds"] / 3600)
    assert "tiny: about 4 trials, 8 epochs, " in said.lines[-1]
    assert "no price known" in said.lines[-1]
    assert {path.name for path in home.iterdir()} == {"data", "cache"}  # nothing is recorded
    left = {path.parent.name for path in (home / "cache").rglob("*") if path.is_file()}
    assert left == {"banks", "locks"}  # nothing left behind but the arrays that the study will read


@pytest.mark.parametrize(("ends", "why"), [("exit 3", "exit code 3"), ("kill -9 $$", "it was killed (out of memory?)")])
def test_a_cell_that_cannot_be_measured_is_a_line_and_exit_code_1(
    ends, why, vsetune, study, tmp_path, monkeypatch
) -> None:
    python = tmp_path / "python"
    python.write_text(f"#!/bin/sh\n{ends}\n")
    python.chmod(0o755)
    monkeypatch.setattr("sys.executable", str(python))
    said = vsetune("study", "plan", str(study()))
    assert said.code == 1
    assert "vsepp.lmh" in said.out
    (line,) = [line for line in said.lines if line.startswith("failed ")]
    assert "cell vsepp.lmh: " in line
    assert why in line
    assert "without 1 cell" in said.lines[-1]


@pytest.mark.parametrize("command", ["plan", "validate"])
def test_a_gpu_of_this_machine_that_no_trial_uses_is_a_warning_with_the_line_to_write(
    command, vsetune, study, monkeypatch
) -> None:
    monkeypatch.setattr("sys.executable", "/bin/false")  # nothing is measured
    monkeypatch.setattr("vsetune.study.node_types.this_machine", machine_with_a_gpu)
    monkeypatch.setattr("vsetune.study.planning.planned_study.this_machine", machine_with_a_gpu)
    (line,) = [line for line in vsetune("study", command, str(study())).lines if line.startswith("warning ")]
    assert "`resources: {gpus: 1}`" in line
    quiet = vsetune("study", command, str(study(resources={"gpus": 0.5})))
    assert not [line for line in quiet.lines if line.startswith("warning ")]


def machine_with_a_gpu() -> NodeType:
    return NodeType("this machine", {"CPU": 2.0, "GPU": 1.0, "memory": 2.0**34}, most=1, usd_per_hour=None)


@pytest.mark.parametrize(("changes", "words", "said"), [
    ({"resources": {"gpus": 1.5}}, ["plan"], ["study.yaml: resources.gpus: ", "1.5"]),
    ({"resources": {"cpus": 4096}}, ["plan"], ["study.yaml: resources: ", "4096 CPUs"]),
    ({"data": {"path": "nowhere"}}, ["plan"], ["nowhere"]),
    ({"study": "a/b"}, ["plan"], ["study.yaml: study: "]),
])
def test_what_cannot_be_planned_is_refused(vsetune, study, changes, words, said) -> None:
    command, *options = words
    assert vsetune("study", command, str(study(**changes)), *options).refused(*said)
