"""Gradients written by hand against plain autograd, the formulas of a CPU against those of a GPU (decision 0034)."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

import pytest
import torch
from network_cases import CASES
from torch import Tensor
from torch.autograd.function import BackwardCFunction

from vsetune.networks.gsmn import matching
from vsetune.networks.network_base import Network
from vsetune.networks.parts.cpu import pairs
from vsetune.networks.parts.network_devices import PLAIN_AUTOGRAD
from vsetune.quality.network_learning import Drawn, loss_of, scores

every_case = pytest.mark.parametrize("case", CASES)


IN_BLOCKS = ("scan", "sgraf", "gsmn", "cgmn", "pcme", "tags dropout", "vsepp absolute")
"""Begin cases that score pairs in blocks and recompute what would not fit into memory; dropout is drawn by block."""
LIMITS = {
    "_NUMBERS_PER": 40, "_NUMBERS_KEPT": 0, "_MOST_KEPT": 0, "_MOST_IMAGES": 3, "_MOST_CAPTIONS": 3, "_CAPTIONS_PER": 3,
}


@pytest.mark.parametrize(("case", "training", "way"), [
    (case, training, way) for case in CASES for training in (True, False) if training or "=" not in case
    for way in ("plain autograd", "as on a GPU", "in small blocks")
    if way != "in small blocks" or case.startswith(IN_BLOCKS)
])
def test_every_way_to_the_gradient_gives_the_same_scores_and_gradients(
    case: str, training: bool, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pairs, "_FEW", 0.9)  # of 16 scores at most 12 get a gradient
    monkeypatch.setattr(matching, "_PAIRS_AT_ONCE", 5)
    expected = outcome(CASES[case].trained().train(training), CASES[case].draw(4))
    if way == "plain autograd":
        monkeypatch.setenv(PLAIN_AUTOGRAD, "1")
    elif way == "as on a GPU":
        for module in modules_with("is_on_cpu"):
            monkeypatch.setattr(module, "is_on_cpu", lambda tensor: False)
    else:
        for start, limit in LIMITS.items():
            for module in modules_with(start):
                for name in (name for name in vars(module) if name.startswith(start)):
                    monkeypatch.setattr(module, name, limit)
    found = outcome(CASES[case].trained().train(training), CASES[case].draw(4))
    torch.testing.assert_close(found[:2], expected[:2], rtol=1e-12, atol=1e-12)
    assert found[2].keys() == expected[2].keys()
    for name, gradient in found[2].items():
        torch.testing.assert_close(gradient, expected[2][name], rtol=1e-9, atol=1e-10, msg=f"gradient of {name}")


@pytest.mark.parametrize("case", ["vsepp", "scan", "sgraf_saf", "sgraf_sgr", "gsmn", "tags dropout=0.0 mlm_weight=0.0"])
def test_a_parameter_that_changes_before_its_gradient_is_refused_or_changes_nothing(
    case: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pairs, "_FEW", 0.9)  # of 16 scores at most 12 get a gradient
    network, drawn = CASES[case].trained().train(), CASES[case].draw(4)
    torch.manual_seed(0)
    expected = torch.autograd.grad(loss_of(network, drawn), list(network.parameters()), allow_unused=True)
    refused = []
    for parameter in network.parameters():
        torch.manual_seed(0)
        loss, before = loss_of(network, drawn), parameter.detach().clone()
        with torch.no_grad():
            parameter.add_(0.1)
        try:
            found = torch.autograd.grad(loss, list(network.parameters()), allow_unused=True)
        except RuntimeError as error:
            refused.append(str(error))
        else:
            torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-12)
        with torch.no_grad():
            parameter.copy_(before)
    assert refused
    assert all("modified by an inplace operation" in message for message in refused)


def outcome(network: Network, drawn: Drawn) -> tuple[Tensor, Tensor, dict[str, Tensor]]:
    """Scores, loss and the gradient of every parameter that has one."""
    torch.manual_seed(0)  # the same words dropped, the same samples
    loss = loss_of(network, drawn)
    loss.backward()
    gradients = {name: value.grad for name, value in network.named_parameters() if value.grad is not None}
    torch.manual_seed(0)
    return scores(network, drawn).detach(), loss.detach(), gradients


def modules_with(start: str) -> list[ModuleType]:
    """The modules of networks that have a name which begins like this."""
    named = [module for name, module in sys.modules.items() if name.startswith("vsetune.networks")]
    return [module for module in named if any(name.startswith(start) for name in vars(module))]


@pytest.mark.parametrize("case", [case for case in CASES if "=" not in case])
def test_the_switch_leaves_no_gradient_written_by_hand(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    has_none = case == "tags" or case.startswith("dual_encoder")  # tags samples dropout anew; dual_encoder is torch's
    assert bool(written_by_hand(loss_of(CASES[case].trained().train(), CASES[case].draw(3)))) != has_none
    monkeypatch.setenv(PLAIN_AUTOGRAD, "1")
    assert not written_by_hand(loss_of(CASES[case].trained().train(), CASES[case].draw(3)))


def written_by_hand(loss: Tensor) -> set[str]:
    """Names of the autograd functions of ours that the loss was made by."""
    seen: set[Any] = set()
    waiting = [loss.grad_fn]
    while waiting:
        node = waiting.pop()
        if node is not None and node not in seen:
            seen.add(node)
            waiting += [following for following, _ in node.next_functions]
    return {node.name() for node in seen if isinstance(node, BackwardCFunction)}


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-8), (torch.float32, 1e-3)])
@every_case
def test_a_few_steps_on_a_gpu_and_on_a_cpu_give_the_same_losses(
    case: str, dtype: torch.dtype, tolerance: float
) -> None:
    losses = {}
    for device in ("cpu", "cuda"):
        network = CASES[case].trained().to(device, dtype).eval()  # draws nothing, which devices do differently
        drawn = tuple(moved(part, device, dtype) for part in CASES[case].draw(6))
        optimizer = torch.optim.SGD(network.parameters(), lr=1e-2)
        losses[device] = []
        for _ in range(4):
            loss = loss_of(network, drawn)
            losses[device].append(loss.item())
            optimizer.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(network.parameters(), 2.0)
            optimizer.step()
    assert losses["cuda"] == pytest.approx(losses["cpu"], rel=tolerance)


def moved(inputs: Any, device: str, dtype: torch.dtype) -> Any:
    return type(inputs)(**{
        name: value if value is None else value.to(device, dtype if value.is_floating_point() else value.dtype)
        for name, value in vars(inputs).items()
    })
