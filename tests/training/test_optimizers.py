"""Steps of the optimizers in one pass, states of earlier versions, and rates and decay of groups and losses."""

from __future__ import annotations

import copy
from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch
from refusals import refused
from torch import Tensor, nn
from torch.optim import Adam, AdamW

from vsetune.config.study.training import TrainingSpec
from vsetune.errors import ConfigError
from vsetune.losses.loss_base import Loss, LossInputs, LossOutput, ParameterGroup
from vsetune.networks.network_base import NetworkGroup
from vsetune.training.schedule import rate_factor
from vsetune.training.step import Optimizers

SIZES = [(7, 5), (5,), (1024, 33), ()]
NO_LOSS = cast(Loss, SimpleNamespace(parameter_groups=list))


def parameters() -> list[nn.Parameter]:
    torch.manual_seed(0)
    return [nn.Parameter(torch.randn(size)) for size in SIZES]


def ours(owned: list[nn.Parameter], **settings: Any) -> Optimizers:
    return Optimizers(TrainingSpec(**settings), [NetworkGroup(owned)], NO_LOSS)


def train(owned: list[nn.Parameter], step: Any, steps: range) -> None:
    for number in steps:
        generator = torch.Generator().manual_seed(number)
        for parameter in owned:
            parameter.grad = torch.randn(parameter.shape, generator=generator)
        step()


def numbers(owned: list[nn.Parameter]) -> Tensor:
    return torch.cat([parameter.detach().flatten() for parameter in owned])


@pytest.mark.parametrize(("name", "plain"), [("adam", Adam), ("adamw", AdamW)])
def test_steps_are_those_of_plain_adam_up_to_rounding(name: str, plain: type[Adam] | type[AdamW]) -> None:
    owned, twins = parameters(), parameters()
    optimizers = ours(owned, optimizer=name, learning_rate=1e-2, weight_decay=0.1)
    twin = plain(twins, lr=1e-2, weight_decay=0.1, fused=False)
    train(owned, optimizers.step, range(20))
    train(twins, twin.step, range(20))
    torch.testing.assert_close(numbers(owned), numbers(twins), rtol=1e-5, atol=1e-6)


def test_threads_do_not_change_a_bit() -> None:
    found, threads = [], torch.get_num_threads()
    try:
        for count in (1, 2, 3):
            torch.set_num_threads(count)
            owned = parameters()
            train(owned, ours(owned).step, range(3))
            found.append(numbers(owned))
    finally:
        torch.set_num_threads(threads)
    assert torch.equal(found[0], found[1])
    assert torch.equal(found[0], found[2])


@pytest.mark.parametrize("fused", [True, False, None])
def test_a_saved_state_goes_on_in_one_pass_whatever_took_its_steps(fused: bool | None) -> None:
    owned = parameters()
    optimizers = ours(owned)
    train(owned, optimizers.step, range(3))
    state = copy.deepcopy(optimizers.state_dict())
    for group in state["network"]["param_groups"]:
        group["fused"] = fused
    resumed = [nn.Parameter(parameter.detach().clone()) for parameter in owned]
    again = ours(resumed)
    again.load_state_dict(state)
    assert [group["fused"] for group in again.state_dict()["network"]["param_groups"]] == [True]
    train(owned, optimizers.step, range(3, 6))
    train(resumed, again.step, range(3, 6))
    assert torch.equal(numbers(owned), numbers(resumed))


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
    with refused("VSE-T009", by=ConfigError):
        Optimizers(TrainingSpec(), [], Plain(warmup_epochs=0))
