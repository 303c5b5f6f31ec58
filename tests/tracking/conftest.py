"""Stores under test. The MLflow schema is made once and copied, because making it takes seconds."""

import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from written_fields import as_written

from vsetune.tracking import AttemptStart, JournaledStore, StudyRecord, TrackingStore, ValidationPoint, open_store


@pytest.fixture(scope="session")
def empty_database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("schema") / "mlflow.db"
    open_store(f"sqlite:///{path}", None)
    return path


@pytest.fixture
def database(empty_database: Path, tmp_path: Path) -> Path:
    for file in empty_database.parent.glob("mlflow.db*"):
        shutil.copy(file, tmp_path / file.name)
    return tmp_path / "mlflow.db"


@pytest.fixture
def mlflow_store(database: Path) -> TrackingStore:
    return open_store(f"sqlite:///{database}", None, curve_plots=False)


@pytest.fixture(params=["memory", "mlflow", "journal before memory", "journal before mlflow"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[TrackingStore]:
    """Every test of the contract runs on all of them."""
    name = request.param.rpartition(" ")[2]
    in_memory = name == "memory"
    inner = open_store("memory:", tmp_path / "artifacts") if in_memory else request.getfixturevalue("mlflow_store")
    if name == request.param:
        yield inner
        return
    journaled = JournaledStore(lambda: inner, tmp_path / "study")
    yield journaled
    assert journaled.close(60) == 0


@pytest.fixture
def settle(store: TrackingStore) -> Callable[[], None]:
    """Waits until what was recorded has reached the store itself, where a journal stands before it."""
    def wait() -> None:
        if isinstance(store, JournaledStore):
            assert store.flush(60) == 0

    return wait


@pytest.fixture
def study() -> StudyRecord:
    config = {"study": "nightly", "networks": [{"name": "vsepp"}], "losses": [{"name": "lmh"}], "baseline": "lmh"}
    return StudyRecord("nightly", "f00d", config, {"owner": "vision"})


@pytest.fixture
def start() -> Callable[..., AttemptStart]:
    def make(trial: str = "vsepp.lmh-c00-s0", number: int = 1, **changes: object) -> AttemptStart:
        plain = {
            "study": "nightly", "trial": trial, "cell": "vsepp.lmh", "network": "vsepp", "loss": "lmh",
            "number": number, "seed": 0, "phase": "search",
            "configuration": {"loss.margin": 0.2, "loss.warmup_epochs": 1, "network.absolute": False},
            "resolved": {
                "trial": trial, "data": {"path": "data/scenes"},
                "loss": {"name": "lmh", "variant": "decided"},
            },
            "environment": {"device": "cpu"},
            "protocol": {"images": 400, "validate_every_steps": None},
        }
        return replace(as_written(AttemptStart(**plain)), **changes)

    return make


@pytest.fixture
def points() -> Callable[..., list[ValidationPoint]]:
    def make(first: int, last: int) -> list[ValidationPoint]:
        return [
            as_written(ValidationPoint(
                step=10 * index, epoch=index / 3, pairs_seen=1280 * index, m_recall=50 + index / 7,
                train_seconds=1.5 * index, metrics={"i2t_r1": 30.0 + index, "device_seconds": 2.0 * index},
            ))
            for index in range(first, last + 1)
        ]

    return make
