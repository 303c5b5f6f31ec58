import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from vsetune.config.sources.recipe import IngestRecipe
from vsetune.data.making.ingest import ingest
from vsetune.data.progress import SilentProgress
from vsetune.data.stored.manifest import Manifest


@pytest.fixture(autouse=True)
def _made_once(extractors_made_once: None) -> None:
    """Most tests here make a tiny data set."""


@pytest.fixture
def scenes_recipe(tmp_path: Path) -> Callable[..., IngestRecipe]:
    """A small scenes recipe, several shards per split; keyword arguments replace keys."""

    def make(output: str = "scenes", **changes: Any) -> IngestRecipe:
        return recipe(tmp_path / output, **changes)

    return make


def recipe(folder: Path, **changes: Any) -> IngestRecipe:
    plain: dict[str, Any] = {
        "name": "scenes",
        "output": str(folder),
        "source": {"layout": "scenes", "train": 20, "validation": 8, "test": 4, "seed": 3, "image_size": 32},
        "features": {"extractor": "pixels", "grid": 2, "width": 16},
        "shard": {"max_images": 6},
        "vocabulary_min_count": 1,
    }
    return IngestRecipe.model_validate({**plain, **changes})


@pytest.fixture(scope="session")
def scenes_made_once(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the recipe makes; only to be copied."""
    folder = tmp_path_factory.mktemp("made") / "scenes"
    ingest(recipe(folder), progress=SilentProgress())
    return folder


@pytest.fixture
def run() -> Callable[[IngestRecipe], Manifest]:
    return lambda recipe: ingest(recipe, progress=SilentProgress())


@pytest.fixture
def save_image() -> Callable[..., bytes]:
    """Writes a small image of one colour; returns its bytes."""

    def save(path: Path, shade: int = 100) -> bytes:
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (20, 16), (shade, 40, 200)).save(path)
        return path.read_bytes()

    return save


@pytest.fixture
def contents() -> Callable[[Path], dict[str, bytes]]:
    """Every file of a folder with its bytes."""
    return lambda folder: {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}


@pytest.fixture
def write_json() -> Callable[[Path, Any], int]:
    return lambda path, plain: path.write_text(json.dumps(plain))
