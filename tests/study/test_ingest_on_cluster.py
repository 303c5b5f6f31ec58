"""Ray makes the shards of one machine, also when the driver, a node's process or the source gives trouble."""

from __future__ import annotations

import io
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from outside_files import jpeg, sample, write_outside, write_shards
from outside_files import recipe as index_recipe
from rich.console import Console

from vsetune.config.sources.recipe import IngestRecipe
from vsetune.data.making.index import index
from vsetune.data.making.ingest import ingest
from vsetune.data.progress import SilentProgress
from vsetune.errors import DataError
from vsetune.study.ingest_on_cluster import index_on_cluster, ingest_on_cluster

pytestmark = pytest.mark.slow


def recipe(folder: Path, **changes: Any) -> IngestRecipe:
    plain: dict[str, Any] = {
        "name": "scenes", "output": str(folder), "vocabulary_min_count": 1, "shard": {"max_images": 20},
        "source": {"layout": "scenes", "train": 400, "validation": 20, "test": 0, "seed": 3, "image_size": 32},
        "features": {"extractor": "pixels", "grid": 2, "width": 16},
    }
    return IngestRecipe.model_validate(plain | changes)


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}


_INGEST = """
import sys
from rich.console import Console
from vsetune.config.sources.recipe import IngestRecipe
from vsetune.study.ingest_on_cluster import ingest_on_cluster

ingest_on_cluster(IngestRecipe.model_validate_json(sys.argv[1]), address=None, console=Console(stderr=True))
"""


@pytest.mark.timeout(1200)
def test_a_killed_ingest_goes_on_and_ends_in_the_bytes_of_one_machine(tmp_path: Path) -> None:
    ingest(recipe(tmp_path / "one"), progress=SilentProgress())
    many = recipe(tmp_path / "many")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    process = subprocess.Popen([sys.executable, "-c", _INGEST, many.model_dump_json()], env=environment)
    first = tmp_path / "many" / ".ingest" / "train-000000.json"
    deadline = time.monotonic() + 400
    while not first.exists() and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.01)
    assert first.exists()
    process.send_signal(signal.SIGKILL)
    process.wait(timeout=30)
    written = (tmp_path / "many" / "train-000000.tar").stat().st_mtime_ns
    ingest_on_cluster(many, address=None, console=Console(file=io.StringIO()))
    assert (tmp_path / "many" / "train-000000.tar").stat().st_mtime_ns == written
    assert contents(tmp_path / "many") == contents(tmp_path / "one")


def test_what_is_wrong_with_the_source_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "raw").mkdir()
    (tmp_path / "raw" / "a.jpg").write_bytes(b"no image")
    (tmp_path / "captions.csv").write_text("image,caption\na.jpg,a dog .\n")
    (tmp_path / "train.txt").write_text("a.jpg")
    source = {
        "layout": "caption_table", "captions": str(tmp_path / "captions.csv"), "images": [str(tmp_path / "raw")],
        "lists": {"train": str(tmp_path / "train.txt")},
    }
    with pytest.raises(DataError, match=r"^[^\n]*a\.jpg: [^\n]*\(on node [^\n]*\)$"):
        ingest_on_cluster(
            recipe(tmp_path / "out", source=source), address=None, console=Console(file=io.StringIO())
        )


def test_an_index_of_many_processes_equals_that_of_one(tmp_path: Path) -> None:
    write_shards(tmp_path)
    write_outside(tmp_path / "train-1.tar", [sample(1, jpg=jpeg(1003)), sample(2, jpg=b"none")])
    one = index_recipe(tmp_path, duplicates="leave_out")
    many = index_recipe(tmp_path, duplicates="leave_out", output=str(tmp_path / "many"))
    index(one, progress=SilentProgress())
    index_on_cluster(many, address=None, console=Console(file=io.StringIO()))
    assert contents(tmp_path / "many") == contents(tmp_path / "indexed")
