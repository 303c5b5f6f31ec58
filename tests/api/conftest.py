"""A small data set and a finished study on it, without Ray, made once for all tests of the Python interface."""

from __future__ import annotations

from pathlib import Path

import pytest
from small_study import small_study
from trials_here import without_ray

import vsetune
from vsetune.api.recorded import RecordedStudy


@pytest.fixture(scope="session")
def home_of_study(tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("small")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("VSETUNE_HOME", str(home))
        patch.setenv("MLFLOW_TRACKING_URI", "none")
        without_ray(patch)
        small_study().run(progress=False)
    return home


@pytest.fixture
def finished(home_of_study: Path, monkeypatch: pytest.MonkeyPatch) -> RecordedStudy:
    """The study, in the home where it ran."""
    monkeypatch.setenv("VSETUNE_HOME", str(home_of_study))
    return vsetune.open_study("small")


@pytest.fixture
def with_data(home_of_study: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home that has the data set."""
    monkeypatch.setenv("VSETUNE_HOME", str(home_of_study))
    return home_of_study
