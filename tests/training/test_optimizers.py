"""One pass over parameters and moments: the same numbers up to rounding, and states of earlier versions go on."""

from __future__ import annotations

import copy
from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch
from torch import Tensor, nn
from torch.optim import Adam, AdamW

from vsetune.config.study.training import TrainingSpec
from vsetune.losses.loss_base import Loss
from vsetune.networks.network_base import NetworkGroup
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
