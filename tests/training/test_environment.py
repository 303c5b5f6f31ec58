"""What is recorded of the code, the machine and the data behind a result."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

import vsetune
from vsetune.training import environment
from vsetune.training.environment import describe_environment


def test_the_revision_is_that_of_the_whole_package(make_trial: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A changed loss or network counts as a change, wherever in the package it is."""
    asked: list[Path] = []
    monkeypatch.setattr(environment, "git_revision", lambda folder: asked.append(folder) or "abc")
    described = describe_environment(make_trial().training, device=torch.device("cpu"), data_fingerprint="0")
    assert described["git_revision"] == "abc"
    assert asked == [Path(vsetune.__file__).parent]
