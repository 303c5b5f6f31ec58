"""Shared by all tests: no test writes to the user's home, none starts threads it does not need."""

from __future__ import annotations

import itertools
import os
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from headless_browser import Browser

    from vsetune.config.sources.recipe import PixelsSpec
    from vsetune.data.making.pixel_features import PixelExtractor

TESTS = Path(__file__).parent

os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # every process of tests and of Ray would compile all modules anew
sys.dont_write_bytecode = False
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("RAY_AUTH_MODE", "token")
os.environ.setdefault("RAY_worker_niceness", "0")  # beside other tests its workers would hardly get a turn
os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")


LONGEST_FIRST = (
    "test_run_study.py", "cli", "test_kill_and_resume.py", "jobs", "training", "networks", "records", "data",
)
"""Files and folders whose tests take longest. Those of Ray are first: they wait more than they compute."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Long files before short ones: workers take files in this order, and so end at about the same time."""
    items.sort(key=lambda item: _place(item.path))


def _place(path: Path) -> int:
    folder = path.relative_to(TESTS).parts[0]
    return next((place for place, name in enumerate(LONGEST_FIRST) if name in (path.name, folder)), len(LONGEST_FIRST))


@pytest.fixture(scope="session")
def _homes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Names of homes, counted here: pytest looks through all folders it has made for the number of the next one."""
    folder = tmp_path_factory.mktemp("homes")
    return (folder / str(number) for number in itertools.count())


@pytest.fixture(autouse=True)
def _home_of_its_own(_homes: Iterator[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    home = next(_homes)
    home.mkdir()
    monkeypatch.setenv("VSETUNE_HOME", str(home))
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "none")  # unless a test is about it, see `mlflow_here`


@pytest.fixture(scope="module", autouse=True)
def _plugins_forgotten() -> Iterator[None]:
    """Other people's components that a file of tests has loaded are no business of the next file's."""
    yield
    loading = sys.modules.get("vsetune.config.plugins")
    if loading is not None:
        loading.forget_plugins()


@pytest.fixture(scope="session")
def run_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One folder for all workers of this run."""
    base = tmp_path_factory.getbasetemp()
    return base.parent if "PYTEST_XDIST_WORKER" in os.environ else base


@pytest.fixture(scope="session")
def empty_store(run_folder: Path) -> Path:
    """A database in which MLflow has made its tables, which takes it a second; to be copied."""
    made = run_folder / "mlflow-empty.db"
    if not made.exists():
        from vsetune.records.mlflow_client import open_client

        own = made.with_name(f"{made.name}.{os.getpid()}")
        open_client(f"sqlite:///{own}")
        os.replace(own, made)
    return made


@pytest.fixture
def mlflow_here(empty_store: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Studies are exported to MLflow, whose tables are there already, in VSETUNE_HOME; its tracking URI."""
    database = Path(os.environ["VSETUNE_HOME"]) / "mlflow.db"
    shutil.copy(empty_store, database)
    monkeypatch.delenv("MLFLOW_TRACKING_URI")
    return f"sqlite:///{database}"


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    """Chromium, for tests that are skipped where there is none."""
    from headless_browser import headless_browser

    with headless_browser(tmp_path_factory.mktemp("profile")) as browser:
        yield browser


@pytest.fixture(scope="session")
def shared_extractor() -> Callable[[PixelsSpec], PixelExtractor]:
    """Pixel extractors, one per recipe: each is measured on 256 rendered scenes, most of the work of tiny data sets."""
    from vsetune.data.making.pixel_features import PixelExtractor

    made: dict[str, PixelExtractor] = {}

    def shared(spec: PixelsSpec) -> PixelExtractor:
        key = spec.model_dump_json()
        if key not in made:
            made[key] = PixelExtractor(spec)
        return made[key]

    return shared


@pytest.fixture(scope="module")
def extractors_made_once(shared_extractor: Callable[[PixelsSpec], PixelExtractor]) -> Iterator[None]:
    """Data sets made in this process share their extractors, which never change."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("vsetune.data.making.pixel_features.PixelExtractor", shared_extractor)
        yield


@pytest.fixture(scope="session")
def flickr8k() -> Path:
    """The folder of Flickr8k, for the tests that use real data."""
    folder = os.environ.get("VSETUNE_FLICKR8K")
    if not folder:
        pytest.skip("VSETUNE_FLICKR8K is not set; it names the folder with captions.csv and the image archives")
    return Path(folder)
