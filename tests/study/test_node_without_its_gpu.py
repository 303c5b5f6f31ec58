"""A node whose GPU Ray counts and PyTorch does not find (a driver that broke): its trials wait for another node."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from vsetune.study.trainable import AttemptTrainable, SpoiltProcess
from vsetune.training.failures import FINAL


def test_a_gpu_that_is_not_there_interrupts_the_trial_and_replaces_the_worker(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    trial = {"trial": "vsepp.lmh-c000-s0"}
    worker = AttemptTrainable({"trial": trial, "needs": {"gpus": 0.5}, "folder": str(tmp_path)})
    with pytest.raises(SpoiltProcess, match=r"device: Ray gives the trial a GPU .* PyTorch finds none") as caught:
        worker.step()
    worker.cleanup()
    assert caught.value.kind == "device"
    assert caught.value.kind not in FINAL
