"""The stand-in device is used by whoever asks for it, and by nobody else."""

from __future__ import annotations

from torch import nn

from gpu.waits import stand_in_device


def test_pytorch_does_not_choose_it_by_itself() -> None:
    stand_in_device()
    layer = nn.DataParallel(nn.Linear(2, 2))
    assert next(layer.parameters()).device.type == "cpu"
