from __future__ import annotations

import pytest
import torch
from refusals import refused

from vsetune.data.devices import device_named


def test_the_cpu_is_always_there() -> None:
    assert device_named("cpu", key="device") == device_named(torch.device("cpu"), key="device") == torch.device("cpu")


@pytest.mark.parametrize("name", ["tpu?", "meta", ""])
def test_a_device_that_is_none_is_refused_with_what_there_is(name: str) -> None:
    with refused("VSE-D073", key="features.device", device=name, choices="cpu or cuda"):
        device_named(name, key="features.device", choices="cpu or cuda")


@pytest.mark.parametrize(("gpus", "here"), [(0, "no GPU is visible here"), (2, "there are 2 GPUs here")])
def test_a_gpu_that_is_not_here_is_refused(gpus: int, here: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: gpus)
    with refused("VSE-D074", key="device", device="cuda:2", here=here):
        device_named("cuda:2", key="device")


def test_a_gpu_that_is_here_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    assert device_named("cuda:1", key="device") == torch.device("cuda:1")
