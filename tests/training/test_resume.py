"""A trial that was interrupted and continued is the same trial, bit for bit (on the CPU)."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from refusals import refused
from torch import Tensor
from trained_here import open_attempt, run_through, train

from vsetune.config.component_specs import LOSSES, NETWORKS
from vsetune.config.study.training import TrialSpec
from vsetune.errors import Preempted
from vsetune.training.attempt import TrainingAttempt
from vsetune.training.checkpoint import CHECKPOINT_FILE

TIMES = {"train_seconds", "load_seconds", "validation_seconds", "device_seconds", "pairs_per_second"}
CASES: dict[str, dict[str, Any]] = {
    "warm-up": {"loss": {"name": "lmh", "warmup_epochs": 1}},
    "semantics": {"loss": {"name": "lseh"}},
    "adaptive margins": {"loss": {"name": "adaptive_margin", "interval": 5, "ratio": 0.1}},
    "decaying fraction": {"loss": {"name": "top_f", "decay_steps": 20}, "batch_unit": "images", "batch_size": 4},
    "learned temperature": {"loss": {"name": "info_nce", "learned": True}, "optimizer": "adamw", "weight_decay": 0.1},
    "sum of losses": {
        "loss": {"name": "sum", "parts": {
            "lmh": {"loss": {"name": "lmh"}}, "nce": {"weight": 0.1, "loss": {"name": "info_nce", "learned": True}},
        }},
    },
    "phases": {
        "loss": {"name": "info_nce", "learned": True},
        "phases": [
            {"epochs": 1}, {"epochs": 0.5, "trains": "loss", "learning_rate_factor": 0.1},
            {"loss": {"softmax_temperature": 0.2}},
        ],
    },
    "augmentation": {
        "network": {"name": "vse_infinity", "embedding_size": 8, "word_size": 6, "pooling_size": 4},
        "loss": {"name": "lmh"},
    },
    "chunks": {
        "network": {"name": "pvse", "embedding_size": 8, "word_size": 6, "dropout": 0.2}, "loss": {"name": "lmh"},
        "chunk_size": 3,
    },
    "photographs": {
        "network": {
            "name": "mse", "embedding_size": 8, "word_size": 6, "image_input": "pixels", "image_size": 32,
            "backbone": {"model": "random", "depths": [1], "widths": [4], "start_epoch": 1},
        },
        "loss": {"name": "lmh"}, "loss_ramp": {"start_epoch": 1, "epochs": 0.5}, "batch_unit": "images",
        "batch_size": 4,
    },
}

CASES |= {  # every other loss, with all that it keeps between steps
    "luwm": {"loss": {"name": "luwm"}}, "irtm": {"loss": {"name": "irtm", "hardest": 3}},
    "pvse": {"loss": {"name": "pvse"}}, "pcme": {"loss": {"name": "pcme"}}, "lsh": {"loss": {"name": "lsh"}},
    "nt_xent": {"loss": {"name": "nt_xent", "learned": True}},
    "clip": {"loss": {"name": "clip"}}, "siglip": {"loss": {"name": "siglip"}},
    "hcl": {"loss": {"name": "hcl", "learned": True}}, "pcme_pp": {"loss": {"name": "pcme_pp"}},
    "order": {
        "loss": {"name": "order"},
        "network": {"name": "vsepp", "embedding_size": 8, "word_size": 6, "absolute": True, "similarity": "order"},
    },
    "contrastive": {"loss": {"name": "contrastive"}}, "margin_based": {"loss": {"name": "margin_based"}},
    "additive_margin": {"loss": {"name": "additive_margin"}},
    "many_to_many": {"loss": {"name": "many_to_many", "semantics": "svd"}},
    "memory": {"loss": {"name": "lseh", "memory_size": 20, "memory_start_epoch": 0}},
    "centres": {
        "loss": {"name": "semantic_center", "quantised_centers": 4, "interval": 2, "ratio": 0.1},
        "phases": [
            {"epochs": 1}, {"epochs": 0.5, "trains": "loss", "loss": {"centers": "quantised"}},
            {"loss": {"centers": "quantised", "adaptive": True}},
        ],
    },
}


NETWORK_LOSSES = {"pcme": "pcme", "pvse": "pvse"}  # others train by LMH


def test_every_loss_is_among_the_cases() -> None:
    assert {case["loss"]["name"] for case in CASES.values()} == {*LOSSES, "sum"}


def wasted(attempt: TrainingAttempt) -> float:
    return attempt.summary()["wasted_epochs"]


def tensors(attempt: TrainingAttempt) -> dict[str, Tensor]:
    state = torch.load(attempt.best_path.with_name(CHECKPOINT_FILE), weights_only=True)["state"]
    return {**state["learner"]["network"], **{f"loss.{k}": v for k, v in state["learner"]["loss"].items()}}


def curve(attempt: TrainingAttempt) -> list[tuple[Any, ...]]:
    return [
        (p.step, p.epoch, p.pairs_seen, p.m_recall, {k: v for k, v in p.metrics.items() if k not in TIMES})
        for p in attempt.history
    ]


def assert_same(a: TrainingAttempt, b: TrainingAttempt) -> None:
    assert curve(a) == curve(b)
    ours, theirs = tensors(a), tensors(b)
    assert ours.keys() == theirs.keys()
    different = [name for name in ours if not torch.equal(ours[name], theirs[name])]
    assert different == []
    assert a.best_path.read_bytes() == b.best_path.read_bytes()


@pytest.mark.parametrize("case", CASES)
def test_a_trial_continued_in_the_middle_of_an_epoch_equals_one_never_interrupted(
    case: str, make_trial: Any, tmp_path: Path
) -> None:
    assert_resumes(make_trial(**CASES[case], validate_every_steps=4, epochs=2.0, learning_rate_step=1), tmp_path)


def test_warm_up_and_decay_continue_where_they_were(make_trial: Any, tmp_path: Path) -> None:
    recipe = {"optimizer": "adamw", "weight_decay": 0.01, "decay_vectors": False, "betas": (0.9, 0.98)}
    phases = [{"epochs": 1.5}, {"learning_rate_factor": 0.2}]  # step 5, where it leaves, still warms up
    schedule = {"warmup_steps": 6, "over": "training"}
    trial = make_trial(**recipe, phases=phases, linear_schedule=schedule, validate_every_steps=4, epochs=2.0)
    assert_resumes(trial, tmp_path)


@pytest.mark.parametrize("epochs", [1.5, 0.5])
def test_both_stages_of_tags_continue_in_their_middle(
    epochs: float, make_trial: Any, small: Any, tmp_path: Path
) -> None:
    first = {"epochs": epochs, "network": {"wod_weight": 0.0, "woc_weight": 0.0}}  # 9 steps or 3; stopped behind 4, 5
    recipe = {"phases": [first, {"learning_rate_factor": 0.2}], "linear_schedule": {"warmup_fraction": 0.1}}
    trial = make_trial(
        network=small("tags"), loss={"name": "irtm", "hardest": 3, "drawn": 5}, validate_every_steps=4, epochs=2.0,
        **recipe,
    )  # 5 images of 21 for every step: the rounds of what is drawn begin anew in the middle of epochs
    assert_resumes(trial, tmp_path)


@pytest.mark.parametrize("network", NETWORKS)
def test_every_network_continues_as_if_never_interrupted(
    network: str, make_trial: Any, small: Any, tmp_path: Path
) -> None:
    settings = small(network) | ({"dropout": 0.3} if network == "pvse" else {})
    loss = {"name": NETWORK_LOSSES.get(network, "lmh")}
    assert_resumes(make_trial(network=settings, loss=loss, validate_every_steps=4, epochs=2.0), tmp_path)


def assert_resumes(trial: TrialSpec, tmp_path: Path) -> None:
    """A trial that dies after its first validation, and later leaves between two, ends as one that ran through."""
    straight = train(trial, tmp_path / "straight")
    first = open_attempt(trial, tmp_path / "broken")
    assert first.advance().step == 4  # of 6 per epoch
    first.close()
    random.seed(99), np.random.seed(99), torch.manual_seed(99)  # another process draws other numbers
    second = AskedToLeave(trial, tmp_path / "broken", device="cpu", threads=1)
    assert (second.number, second.inherited) == (2, 1)
    with refused("VSE-T002", by=Preempted, step=5):
        second.advance()
    random.seed(98), np.random.seed(98), torch.manual_seed(98)
    third = open_attempt(trial, tmp_path / "broken")
    assert (third.number, third.inherited, wasted(third)) == (3, 1, 0.0)
    assert_same(straight, run_through(third))


class AskedToLeave(TrainingAttempt):
    """Its machine is taken away during step 5, between two validations."""

    def _step(self) -> None:
        super()._step()
        if self._progress.step == 5:
            self.leave()


def test_an_attempt_may_leave_before_its_first_step_and_its_first_validation(make_trial: Any, tmp_path: Path) -> None:
    trial = make_trial()
    first = open_attempt(trial, tmp_path / "broken")
    first.leave()
    with refused("VSE-T002", by=Preempted, step=0):
        first.advance()
    assert_same(train(trial, tmp_path / "straight"), train(trial, tmp_path / "broken"))


def test_two_attempts_in_one_process_do_not_disturb_each_other(make_trial: Any, tmp_path: Path) -> None:
    trial = make_trial(**CASES["augmentation"], validate_every_steps=3, epochs=1.0)
    alone, one, two = (open_attempt(trial, tmp_path / name) for name in ("alone", "one", "two"))
    run_through(alone)
    while not one.is_finished:
        one.advance(), two.advance()
    assert_same(alone, one)
    assert_same(alone, two)


def test_an_attempt_leaves_the_random_state_of_its_process_alone(make_trial: Any, tmp_path: Path) -> None:
    before = torch.get_rng_state(), random.getstate(), np.random.get_state()[1].tolist()
    attempt = open_attempt(make_trial(**CASES["augmentation"]), tmp_path)
    attempt.advance()
    assert torch.equal(before[0], torch.get_rng_state())
    assert before[1] == random.getstate()
    assert before[2] == np.random.get_state()[1].tolist()


def test_seeds_and_data_order_change_the_trial(make_trial: Any, tmp_path: Path) -> None:
    points = [open_attempt(make_trial(seed=seed), tmp_path / str(seed)).advance() for seed in (0, 1)]
    assert points[0].metrics["train_loss"] != points[1].metrics["train_loss"]


def test_seconds_and_best_go_on_after_a_restart(make_trial: Any, tmp_path: Path) -> None:
    trial = make_trial()
    point = open_attempt(trial, tmp_path).advance()
    again = open_attempt(trial, tmp_path)
    assert again.summary()["best_m_recall"] == point.m_recall
    assert again.advance().train_seconds > point.train_seconds
    assert wasted(again) == 0


_KILLED = """
import os, signal, sys
from pathlib import Path
from vsetune.config.study.training import TrialSpec
from vsetune.config.component_specs import LOSSES
from vsetune.training.attempt import TrainingAttempt
from vsetune.training import executions

executions.MARK_EVERY_S = 0.0
attempt = TrainingAttempt(TrialSpec.model_validate_json(sys.argv[1]), Path(sys.argv[2]), device="cpu", threads=1)
attempt.advance()
learn, steps = attempt._learner.step, []

def step(batch, *drawn):
    steps.append(batch.pairs)
    if len(steps) == 4:
        os.kill(os.getpid(), signal.SIGKILL)
    return learn(batch, *drawn)

object.__setattr__(attempt._learner, "step", step)
attempt.advance()
"""


def test_a_killed_process_continues_and_its_lost_work_is_counted(make_trial: Any, tmp_path: Path) -> None:
    trial = make_trial(epochs=2.0)
    arguments = [sys.executable, "-c", _KILLED, trial.model_dump_json(), str(tmp_path / "killed")]
    assert subprocess.run(arguments, check=False).returncode == -signal.SIGKILL

    second = open_attempt(trial, tmp_path / "killed")
    assert (second.number, second.inherited) == (2, 1)
    assert wasted(second) == pytest.approx(3 * 8 / 42)
    assert_same(train(trial, tmp_path / "straight"), run_through(second))
    summary = second.finish()
    assert summary["epochs"] == 2.0
    assert summary["wasted_epochs"] == wasted(second)
    assert summary["wasted_seconds"] > 0
    assert wasted(open_attempt(trial, tmp_path / "killed")) == wasted(second)  # not counted twice
