"""Whole studies on a real local Ray: everything promised is there, also after a worker was killed."""

from __future__ import annotations

import os
import shutil
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import psutil
import pytest
import ray
import torch
from plugin_folders import NEGATIVES, SPEC, write_loss, write_network
from refusals import refused
from whole_studies import ONE_TRIAL, run, write_study

from vsetune.config.plugins import forget_plugins
from vsetune.records.state import Attempt
from vsetune.records.studies import Studies
from vsetune.study.recorded import find_attempt, load_recorded
from vsetune.study.run import StudyOutcome

pytestmark = pytest.mark.filterwarnings("default")  # Ray and its dependencies warn about themselves

ONE_WORKER = {"concurrent_trials": 1}
"""For studies that do not need two at once: each worker process imports torch first."""


@pytest.fixture(scope="module", autouse=True)
def cluster() -> Iterator[None]:
    """One Ray for all tests of this file."""
    ray.init(address="local", num_cpus=2, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
    yield
    ray.shutdown()


def attempts() -> list[Attempt]:
    return Studies().attempts("tiny")


def test_a_study_that_the_cluster_has_no_room_for_leaves_nothing_behind_so_that_the_corrected_file_is_a_new_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_loss(tmp_path / "half_hinge")
    losses = [{"name": "lmh"}, {"name": "half_hinge"}]
    too_large = {"plugins": ["half_hinge/"], "losses": losses, "resources": {"cpus": 64}}
    with refused("VSE-S032", where="resources"):
        run(write_study(tmp_path, **ONE_TRIAL | too_large))
    forget_plugins()
    assert Studies().studies() == []
    assert not (Path(os.environ["VSETUNE_HOME"]) / "runs").exists()
    monkeypatch.setattr("vsetune.study.run.place_trials", lambda *_, **__: None)
    assert run(write_study(tmp_path, **ONE_TRIAL))[0].was_interrupted


def test_successive_halving_stops_trials_and_counts_them_as_pruned(tmp_path: Path) -> None:
    rates = {"learning_rate": {"low": 1e-6, "high": 1e-2, "log": True}}
    outcome, _ = run(write_study(
        tmp_path, losses=[{"name": "lmh", "search": {"margin": "default"}}], resources=ONE_WORKER,
        search={"configurations": 4, "sampler": "random", "training": rates},
        training={"epochs": 6, "batch_size": 40, "learning_rate": 1e-2},
        scheduler={"kind": "asha", "grace_epochs": 1, "reduction_factor": 2},
    ))
    pruned = [each for each in attempts() if each.status == "pruned"]
    assert len(pruned) == outcome.counts["pruned"] >= 1
    assert sum(outcome.counts.values()) > 4, "what they left over went to further configurations"
    assert abs(sum(each.curve[-1][0] for each in attempts()) - 4 * 6) <= 3
    assert all(each.curve[-1][0] < 6 and (each.error or "").startswith("asha: ") for each in pruned)


def kill_worker_after_first_checkpoint(trial: Path) -> None:
    deadline = time.monotonic() + 120
    while not (trial / "checkpoint.pt").exists() and time.monotonic() < deadline:
        time.sleep(0.02)
    for process in psutil.Process().children(recursive=True):
        if "Trainable" in process.name() or "Trainable" in " ".join(process.cmdline()):
            process.kill()


REFUSES_FRACTIONS = SPEC.replace(
    "from vsetune.config.spec", "from pydantic import field_validator\n\nfrom vsetune.config.spec", 1
) + '''
    ramp_steps: float = tunable(200.0, Range(low=50, high=400), ge=1, description="steps of the ramp")

    @field_validator("ramp_steps")
    @classmethod
    def _whole(cls, steps: float) -> float:
        if not steps.is_integer():
            raise ValueError("need whole steps")
        return steps
'''
TROUBLED = {
    "losses": [
        {"name": "lmh", "search": "none", "training": {"epochs": 20}},
        {"name": "lsh", "search": "none", "training": {"learning_rate": 3e36, "gradient_clip": None}},
        {"name": "lseh", "search": "none"}, {"name": "info_nce", "search": "none"}, {"name": "half_hinge"},
    ],
    "plugins": ["half_hinge/"], "baseline": "lmh", "resources": {**ONE_WORKER, "retries": 1},
}
"""Trouble of its cells, in order: a killed worker, numbers that are not finite, a damaged checkpoint, storage that
refuses, a space without another valid configuration."""


class Troubled(NamedTuple):
    home: Path
    path: Path
    outcome: StudyOutcome
    shown: str


@pytest.fixture(scope="module")
def run_troubled(tmp_path_factory: pytest.TempPathFactory) -> Troubled:
    """A study in which every cell meets trouble of its own."""
    home = tmp_path_factory.mktemp("troubled")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("VSETUNE_HOME", str(home))
        patch.setenv("MLFLOW_TRACKING_URI", "none")
        write_loss(home / "half_hinge", spec=REFUSES_FRACTIONS)
        path = write_study(home, **TROUBLED)
        trial_folder(home, "lseh").mkdir(parents=True)
        (trial_folder(home, "lseh") / "checkpoint.pt").write_bytes(b"torn")
        trial_folder(home, "info_nce").write_text("a file stands where the trial wants its folder")
        killer = threading.Thread(target=kill_worker_after_first_checkpoint, args=(trial_folder(home, "lmh"),))
        killer.start()
        try:
            return Troubled(home, path, *run(path))
        finally:
            killer.join()
            forget_plugins()


@pytest.fixture
def troubled(run_troubled: Troubled, monkeypatch: pytest.MonkeyPatch) -> Iterator[Troubled]:
    """That study, at its home."""
    monkeypatch.setenv("VSETUNE_HOME", str(run_troubled.home))
    yield run_troubled
    forget_plugins()


def trial_folder(home: Path, loss: str) -> Path:
    return home / "runs" / "tiny" / "trials" / f"vsepp.{loss}-c000-s0"


def test_a_worker_killed_in_the_middle_costs_an_attempt_and_no_trial(troubled: Troubled) -> None:
    assert "died" in troubled.shown
    first, second = (each for each in attempts() if each.start.loss == "lmh")
    assert (first.status, second.status) == ("killed", "finished")
    assert (first.start.number, second.start.number) == (1, 2)
    epochs = [epoch for epoch, _ in second.curve]
    assert epochs == sorted(set(epochs))
    assert epochs[-1] == 20.0
    assert second.curve[: len(first.curve)] == first.curve


def test_a_diverging_trial_fails_alone(troubled: Troubled) -> None:
    assert troubled.outcome.counts == {"finished": 3, "failed": 2, "open": 1}
    failed, _ = (each for each in attempts() if each.status == "failed")
    assert failed.start.loss == "lsh"
    assert failed.error is not None
    assert failed.error.startswith("numeric:")
    assert "failed   vsepp.lsh" in troubled.shown


def test_a_damaged_checkpoint_is_set_aside_and_the_trial_starts_again(troubled: Troubled) -> None:
    assert "interrupted vsepp.lseh-c000-s0: storage: " in troubled.shown
    assert (trial_folder(troubled.home, "lseh") / "checkpoint.pt.damaged-1").read_bytes() == b"torn"


def test_storage_that_refuses_leaves_a_trial_open_and_resuming_finishes_it(troubled: Troubled) -> None:
    assert troubled.outcome.ending == "interrupted"
    assert "goes on from its checkpoint in 2 s" in troubled.shown
    assert "left open for --resume" in troubled.shown
    (trouble,) = [each for each in troubled.outcome.troubles if each.is_open]
    assert trouble.trial == "vsepp.info_nce-c000-s0"
    assert trouble.reason.startswith("storage: ")
    trial_folder(troubled.home, "info_nce").unlink()
    resumed, shown = run(troubled.path, resume=True)
    assert "tiny: goes on; 5 of 6 trials have ended" in shown
    assert (dict(resumed.counts), resumed.ending) == ({"finished": 4, "failed": 2}, "partly failed")


def test_a_cell_that_cannot_sample_fails_alone_with_a_board_and_stays_so_when_resumed(troubled: Troubled) -> None:
    outcome, before = troubled.outcome, attempts()
    (trouble,) = [each for each in outcome.troubles if "refused" in each.trial]
    for words in ("for cell vsepp.half_hinge: 100 draws in a row", "loss.ramp_steps", "need whole steps"):
        assert words in trouble.reason
    assert outcome.board is not None
    assert [row.loss for row in outcome.board.rows if "cannot_draw" in row.flags] == ["half_hinge"]
    assert outcome.page is not None
    assert "need whole steps" in outcome.page.read_text(encoding="utf-8")
    again, _ = run(troubled.path, resume=True)
    assert [each for each in again.troubles if "refused" in each.trial] == [trouble]
    assert attempts() == before


def test_a_study_of_plugins_runs_two_trials_at_once_resumes_and_is_read_from_its_own_copy(tmp_path: Path) -> None:
    """Other people's loss and network: searched, summed, tagged; afterwards their folders may change or vanish."""
    loss, network = write_loss(tmp_path / "half_hinge"), write_network(tmp_path / "mine" / "bag")
    path = write_study(
        tmp_path, plugins=["half_hinge/", "mine/"], networks=[{"name": "bag"}], baseline="half_hinge",
        losses=[{"name": "half_hinge"}, {"loss": [{"name": "half_hinge"}, {"name": "lmh"}]}],
        search={"configurations": 1},
    )
    try:
        outcome, shown = run(path)
        assert (dict(outcome.counts), "[2/2]" in shown) == ({"finished": 2}, True)
        trials = Path(os.environ["VSETUNE_HOME"]) / "runs" / "tiny" / "trials"
        assert len(list(trials.glob("*/best.safetensors"))) == 2
        assert not list(trials.glob("*/checkpoint.pt")), "recorded trials need no checkpoint to continue from"
        for each in attempts():
            assert set(each.start.resolved["plugins"]) == {"loss.half_hinge", "network.bag"}
        write_loss(loss, negatives=NEGATIVES.replace("-1.0", "-2.0"))
        with refused("VSE-S006", study="tiny", source=loss):
            run(path, resume=True)
        shutil.rmtree(loss)
        shutil.rmtree(network)
        forget_plugins()
        assert dict(run(path, resume=True)[0].counts) == {"finished": 2}
        forget_plugins()
        store = Studies()
        attempt = find_attempt(store, "tiny/bag.half_hinge-c000-s0", finished=True)
        trained = load_recorded(store, attempt, device=torch.device("cpu"), into=tmp_path)
        assert type(trained.network).__name__ == "Bag"
        assert type(trained.network).__module__.startswith("vsetune_plugins.bag_")
    finally:
        forget_plugins()
