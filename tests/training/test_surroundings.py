"""Random state, device, optimizer and environment."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from vsetune.config.study.training import TrainingSpec
from vsetune.errors import ConfigError
from vsetune.losses.loss_base import Loss, LossInputs, LossOutput, ParameterGroup
from vsetune.networks.network_base import NetworkGroup
from vsetune.training.code_revision import git_revision
from vsetune.training.device import choose_device, effective_precision, product_precision, tower_precision, use_threads
from vsetune.training.random_state import RandomState, undisturbed
from vsetune.training.schedule import rate_factor
from vsetune.training.step import Optimizers

CPU = torch.device("cpu")


def draw() -> tuple[float, float, float]:
    return random.random(), float(np.random.rand()), float(torch.rand(()))


def test_a_random_state_goes_on_where_it_paused_and_keeps_out_of_the_way() -> None:
    straight, paused = RandomState(7, CPU), RandomState(7, CPU)
    with straight.active():
        expected = [draw(), draw()]
    random.seed(1), np.random.seed(1), torch.manual_seed(1)
    with paused.active():
        first = draw()
    outside = draw()
    with paused.active():
        second = draw()
    assert [first, second] == expected
    random.seed(1), np.random.seed(1), torch.manual_seed(1)
    assert draw() == outside


def test_a_saved_random_state_survives_a_checkpoint(tmp_path: Path) -> None:
    state = RandomState(7, CPU)
    with state.active():
        np.random.randn(), draw()  # leaves half of a pair of Gaussians behind
    torch.save(state.state_dict(), tmp_path / "state")
    other = RandomState(8, CPU)
    other.load_state_dict(torch.load(tmp_path / "state", weights_only=True))
    with state.active():
        expected = np.random.randn(), draw()
    with other.active():
        assert (np.random.randn(), draw()) == expected


def test_draws_inside_undisturbed_leave_no_trace() -> None:
    torch.manual_seed(3)
    expected = float(torch.rand(()))
    torch.manual_seed(3)
    with undisturbed(CPU):
        torch.rand(5)
    assert float(torch.rand(())) == expected


def test_auto_takes_what_the_machine_has() -> None:
    assert choose_device("auto").type == ("cuda" if torch.cuda.is_available() else "cpu")


@pytest.mark.parametrize("name", ["tpu", "cuda:99", "meta"])
def test_a_device_that_is_not_here_is_refused(name: str) -> None:
    with pytest.raises(ConfigError, match=f"device: got '{name}'"):
        choose_device(name)


def test_threads_are_limited_and_none_leaves_them_alone() -> None:
    before = torch.get_num_threads()
    use_threads(None)
    assert torch.get_num_threads() == before
    use_threads(1)
    assert torch.get_num_threads() == 1
    use_threads(before)
    with pytest.raises(ConfigError, match="threads: got 0"):
        use_threads(0)


@pytest.mark.parametrize("precision", ["tf32", "bfloat16"])
def test_coarse_numbers_are_for_gpus_only(precision: Any) -> None:
    training = TrainingSpec(precision=precision)
    assert effective_precision(training, CPU) == "float32"
    assert effective_precision(training, torch.device("cuda")) == precision
    with product_precision(training, CPU), tower_precision(training, CPU):
        assert (torch.ones(2, 2) @ torch.ones(2, 2)).dtype == torch.float32


def test_tf32_is_allowed_within_a_step_that_asks_for_it_and_nowhere_else() -> None:
    def allowed() -> tuple[bool, bool]:
        return torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32

    before, gpu = allowed(), torch.device("cuda")
    try:
        with product_precision(TrainingSpec(precision="tf32"), gpu):
            assert allowed() == (True, True)
        assert allowed() == (False, False)
        for precision in ("float32", "bfloat16"):
            with product_precision(TrainingSpec(precision=precision), gpu):
                assert allowed() == (False, False)
    finally:
        torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32 = before


class Learning(Loss):
    """A loss with a temperature for the network's optimizer and a centre at a rate of its own."""

    def __init__(self) -> None:
        super().__init__(warmup_epochs=0)
        self.temperature, self.center = nn.Parameter(torch.ones(())), nn.Parameter(torch.ones(3))

    def parameter_groups(self) -> list[ParameterGroup]:
        return [ParameterGroup([self.temperature], None), ParameterGroup([self.center], 0.5)]

    def forward(self, inputs: LossInputs) -> LossOutput:
        return LossOutput(self.temperature * self.center.sum())


class Plain(Loss):
    def forward(self, inputs: LossInputs) -> LossOutput:
        return LossOutput(inputs.similarity.sum())


def rates(optimizers: Optimizers) -> dict[str, list[float]]:
    return {
        name: [group["lr"] for group in state["param_groups"]] for name, state in optimizers.state_dict().items()
    }


def test_a_loss_learns_with_the_network_or_by_sgd_of_its_own() -> None:
    network = [NetworkGroup(list(nn.Linear(2, 3).parameters()))]
    training = TrainingSpec(optimizer="adamw", weight_decay=0.1, learning_rate=0.01)
    optimizers = Optimizers(training, network, Learning())
    groups = optimizers.state_dict()["network"]["param_groups"]
    assert [(len(group["params"]), group["weight_decay"]) for group in groups] == [(2, 0.1), (1, 0.0)]
    assert rates(optimizers) == {"network": [0.01, 0.01], "loss": [0.5]}
    optimizers.set_learning_rate(0.1, drop=0.5)
    assert optimizers.learning_rate == pytest.approx(0.0005)
    assert rates(optimizers) == {"network": pytest.approx([0.0005, 0.0005]), "loss": [0.25]}


def test_weight_decay_of_matrices_alone_leaves_vectors_and_keeps_rates_of_groups() -> None:
    layer, norm = nn.Linear(2, 3), nn.LayerNorm(3)
    network = [NetworkGroup([*layer.parameters(), *norm.parameters()], factor=0.5)]
    training = TrainingSpec(
        optimizer="adamw", weight_decay=0.01, decay_vectors=False, betas=(0.9, 0.98), epsilon=1e-6, learning_rate=0.01
    )
    optimizers = Optimizers(training, network, Plain(warmup_epochs=0))
    groups = optimizers.state_dict()["network"]["param_groups"]
    assert [(len(group["params"]), group["weight_decay"]) for group in groups] == [(1, 0.01), (3, 0.0)]
    assert {(*group["betas"], group["eps"], group["lr"]) for group in groups} == {(0.9, 0.98, 1e-6, 0.005)}
    before = layer.weight.detach().clone(), layer.bias.detach().clone()
    for parameter in network[0].parameters:
        parameter.grad = torch.zeros_like(parameter)
    optimizers.step()  # without gradients nothing but the decay is left
    assert torch.allclose(layer.weight, before[0] * (1 - 0.005 * 0.01), rtol=1e-7)
    assert torch.equal(layer.bias, before[1])


def test_the_rate_of_a_loss_of_its_own_follows_the_schedule_too() -> None:
    network = [NetworkGroup(list(nn.Linear(2, 3).parameters()))]
    training = TrainingSpec(learning_rate=0.01, linear_schedule={"warmup_steps": 0}, epochs=1)
    optimizers = Optimizers(training, network, Learning())
    optimizers.set_learning_rate(1.0, drop=rate_factor(training, 0.5, steps_per_epoch=4))
    assert rates(optimizers) == {"network": pytest.approx([0.005, 0.005]), "loss": pytest.approx([0.25])}


def test_sgd_of_a_loss_is_one_plain_step_at_its_rate() -> None:
    loss = Learning()
    optimizers = Optimizers(TrainingSpec(), [NetworkGroup(list(nn.Linear(2, 3).parameters()))], loss)
    optimizers.zero_grad()
    (loss.temperature * loss.center.sum()).backward()
    optimizers.step()
    assert loss.center.tolist() == [0.5, 0.5, 0.5]


def test_a_frozen_network_with_a_loss_that_learns_nothing_is_refused() -> None:
    assert set(Optimizers(TrainingSpec(), [], Learning()).state_dict()) == {"network", "loss"}
    with pytest.raises(ConfigError, match="loss that learns nothing; use `trains: all`"):
        Optimizers(TrainingSpec(), [], Plain(warmup_epochs=0))


def test_code_outside_a_repository_has_no_revision(tmp_path: Path) -> None:
    assert git_revision(tmp_path) == "unknown"


@pytest.mark.parametrize(("told", "revision"), [
    ("0123456789abcdef", "0123456789abcdef"), ("0123456+changes", "0123456+changes"), ("main; rm", "unknown"),
])
def test_code_without_a_repository_is_of_the_revision_that_its_job_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, told: str, revision: str
) -> None:
    monkeypatch.setenv("VSETUNE_REVISION", told)
    assert git_revision(tmp_path) == revision
