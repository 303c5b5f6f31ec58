from __future__ import annotations

import pytest
import torch
from refusals import refused

from vsetune.config.study.training import TrialSpec
from vsetune.data.batches.batch import Batch
from vsetune.errors import NumericError
from vsetune.losses.loss_base import LossOutput, Selection
from vsetune.networks.inputs import CaptionInputs, ImageInputs
from vsetune.training.loop import StepWindow
from vsetune.training.step import StepResult


def batch(images: int) -> Batch:
    ids = torch.arange(images)
    return Batch(ImageInputs(torch.zeros(images, 1, 1), ids), CaptionInputs(ids[:, None], ids), ids, ids, ids)


def result(loss: float, norm: float = 1.0, selection: Selection | None = None, **parts: float) -> StepResult:
    tensors = {name: torch.tensor(value) for name, value in parts.items()}
    return StepResult(torch.tensor(loss), torch.tensor(norm), LossOutput(torch.tensor(loss), tensors, selection))


@pytest.fixture
def trial(make_trial) -> TrialSpec:
    return make_trial(batch_size=4)


def window(trial: TrialSpec, device: str = "cpu") -> StepWindow:
    return StepWindow(trial, torch.device(device), where="attempt 1", seconds_before=10)


def test_every_number_is_averaged_over_the_steps_that_have_it(trial: TrialSpec) -> None:
    steps = window(trial)
    steps.add(batch(4), result(1.0, 2.0), step=1, learning_rate=0.1)
    steps.add(batch(4), result(2.0, 4.0, margin=0.2), step=2, learning_rate=0.1)
    assert steps.means() == pytest.approx({"train_loss": 1.5, "gradient_norm": 3.0, "loss_margin": 0.2})
    assert steps.pairs_per_second(seconds_now=14.0) == 2.0


@pytest.mark.parametrize(("loss", "norm"), [(float("nan"), 1.0), (1.0, float("inf"))])
def test_a_number_that_is_not_finite_stops_the_cpu_at_once(trial: TrialSpec, loss: float, norm: float) -> None:
    steps = window(trial)
    steps.add(batch(4), result(1.0), step=1, learning_rate=0.1)
    with refused("VSE-T003", by=NumericError, where="attempt 1", step=2, loss="lmh", rate=0.1):
        steps.add(batch(4), result(loss, norm), step=2, learning_rate=0.1)


def test_on_a_gpu_losses_are_looked_at_now_and_then_and_the_first_bad_step_is_named(trial: TrialSpec) -> None:
    steps = window(trial, "cuda")  # only decides how often to look; the numbers here are on the CPU
    for step in range(1, 11):
        steps.add(batch(4), result(float("nan") if step >= 4 else 1.0), step=step, learning_rate=0.1)
    with refused("VSE-T003", step=4):
        steps.means()


@pytest.mark.parametrize(("is_proxy", "prefix"), [(False, ""), (True, "proxy_")])
def test_unique_negatives_are_counted_on_every_tenth_full_batch(trial: TrialSpec, is_proxy: bool, prefix: str) -> None:
    # the hub of the specification: image queries choose 2, 2, 1, 2, caption queries 2, 2, 1, 1
    scores = torch.tensor([[0.6, 0.1, 0.5, 0.1], [0.1, 0.6, 0.55, 0.2], [0.2, 0.3, 0.7, 0.1], [0.1, 0.2, 0.4, 0.5]])
    hub = Selection(scores, ~torch.eye(4, dtype=torch.bool), None, None, is_proxy=is_proxy)
    same = Selection(torch.eye(4), hub.negatives, None, None, is_proxy=is_proxy)
    steps = window(trial)
    steps.add(batch(3), result(1.0, selection=hub), step=0, learning_rate=0.1)
    for step in range(1, 11):
        steps.add(batch(4), result(1.0, selection=hub if step == 1 else same), step=step, learning_rate=0.1)
    names = {f"{prefix}unique_negatives_captions", f"{prefix}unique_negatives_images"}
    assert {name: value for name, value in steps.means().items() if name in names} == dict.fromkeys(names, 2.0)
    steps.add(batch(4), result(1.0, selection=hub), step=11, learning_rate=0.1)
    again = window(trial)
    again.load_state_dict(steps.state_dict())
    assert steps.state_dict()["counts"] == again.state_dict()["counts"] == {
        "train_loss": 12, "gradient_norm": 12, **dict.fromkeys(names, 2),
    }
