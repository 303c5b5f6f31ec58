"""Shared by all tests: no test writes to the user's home, none starts threads it does not need."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("RAY_AUTH_MODE", "token")
os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")


@pytest.fixture(autouse=True)
def _home_of_its_own(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VSETUNE_HOME", str(tmp_path_factory.mktemp("home")))


@pytest.fixture(scope="session")
def flickr8k() -> Path:
    """The folder of Flickr8k, for the tests that use real data."""
    folder = os.environ.get("VSETUNE_FLICKR8K")
    if not folder:
        pytest.skip("VSETUNE_FLICKR8K is not set; it names the folder with captions.csv and the image archives")
    return Path(folder)
