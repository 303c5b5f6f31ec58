from __future__ import annotations

import pytest
import torch

from vsetune.config.study.training import TrainingSpec
from vsetune.data.batches.batch import Batch
from vsetune.errors import NumericError
from vsetune.losses.loss_base import LossOutput, Selection
from vsetune.training.step import StepResult
from vsetune.training.window import NegativeSampler, StepWindow


def result(loss: float, norm: float = 1.0, **parts: float) -> StepResult:
    tensors = {name: torch.tensor(value) for name, value in parts.items()}
    return StepResult(torch.tensor(loss), torch.tensor(norm), LossOutput(torch.tensor(loss), tensors))


def window(device: str = "cpu") -> StepWindow:
    where = "study s trial t attempt 1"
    return StepWindow(device=torch.device(device), where=where, loss_name="lmh", seconds_before=10)


def test_every_number_is_averaged_over_the_steps_that_have_it() -> None:
    steps = window()
    steps.add(result(1.0, 2.0), step=1, learning_rate=0.1, pairs=4)
    steps.add(result(2.0, 4.0, margin=0.2), step=2, learning_rate=0.1, pairs=4)
    steps.note({"unique": 5.0})
    assert steps.means() == pytest.approx({"train_loss": 1.5, "gradient_norm": 3.0, "loss_margin": 0.2, "unique": 5.0})
    assert steps.pairs_per_second(seconds_now=14.0) == 2.0


@pytest.mark.parametrize(("loss", "norm"), [(float("nan"), 1.0), (1.0, float("inf"))])
def test_a_number_that_is_not_finite_stops_the_cpu_at_once(loss: float, norm: float) -> None:
    steps = window()
    steps.add(result(1.0), step=1, learning_rate=0.1, pairs=4)
    with pytest.raises(NumericError, match="attempt 1 step 2: loss lmh"):
        steps.add(result(loss, norm), step=2, learning_rate=0.1, pairs=4)


def test_on_a_gpu_losses_are_looked_at_now_and_then_and_the_first_bad_step_is_named() -> None:
    steps = window("cuda")  # only decides how often to look; the numbers here are on the CPU
    for step in range(1, 11):
        steps.add(result(float("nan") if step >= 4 else 1.0), step=step, learning_rate=0.1, pairs=4)
    with pytest.raises(NumericError, match="step 4: loss lmh is nan"):
        steps.means()


def batch(images: int) -> Batch:
    ids = torch.arange(images)
    return Batch(torch.zeros(images, 1, 1), ids, ids, ids[:, None], ids, ids, ids, None)


def output(*, is_proxy: bool) -> LossOutput:
    # the hub of the specification: image queries choose 2, 2, 1, 2, caption queries 2, 2, 1, 1
    scores = torch.tensor([[0.6, 0.1, 0.5, 0.1], [0.1, 0.6, 0.55, 0.2], [0.2, 0.3, 0.7, 0.1], [0.1, 0.2, 0.4, 0.5]])
    selection = Selection(scores, ~torch.eye(4, dtype=torch.bool), None, None, is_proxy=is_proxy)
    return LossOutput(torch.tensor(0.0), {}, selection)


def test_unique_negatives_are_counted_on_every_tenth_full_batch() -> None:
    sampler = NegativeSampler(TrainingSpec(batch_size=4))
    assert sampler.look(batch(3), output(is_proxy=False)) == {}
    looks = [sampler.look(batch(4), output(is_proxy=False)) for _ in range(11)]
    assert [bool(look) for look in looks] == [True] + 9 * [False] + [True]
    assert looks[0] == {"unique_negatives_captions": 2.0, "unique_negatives_images": 2.0}


def test_counts_of_losses_that_select_nothing_are_called_proxies() -> None:
    counts = NegativeSampler(TrainingSpec(batch_size=4)).look(batch(4), output(is_proxy=True))
    assert counts.keys() == {"proxy_unique_negatives_captions", "proxy_unique_negatives_images"}
