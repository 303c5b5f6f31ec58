"""Shards made by two nodes without a shared folder, one of which dies: the objects are those of one machine."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest
import yaml
from chaos.processes import Processes
from chaos.servers import BUCKET, s3_server

from vsetune.data.looking.verify import verify
from vsetune.data.making.ingest import ingest
from vsetune.data.making.recipe_file import load_recipe
from vsetune.data.progress import SilentProgress
from vsetune.object_storage import s3

PORT = 22379
PREFIX = f"s3://{BUCKET}/scenes"

pytestmark = pytest.mark.slow


@pytest.fixture
def environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, str]]:
    """With a running S3 server in it, for this process too."""
    token = tmp_path / "token"
    token.write_text("a" * 48)
    server, reaches_s3 = s3_server(tmp_path, Processes())
    ours = reaches_s3 | {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN_PATH": str(token)}
    for name, value in ours.items():
        monkeypatch.setenv(name, value)
    s3._client.cache_clear()
    with server.running():
        yield os.environ | ours | {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    s3._client.cache_clear()


@contextmanager
def node(environment: dict[str, str], home: Path, *how: str) -> Iterator[subprocess.Popen[bytes]]:
    """A node with a home of its own; killed at the end, if it still lives."""
    ray = shutil.which("ray", path=str(Path(sys.executable).parent))
    assert ray, "the `ray` command is not beside this Python"
    process = subprocess.Popen(
        [ray, "start", "--block", "--num-cpus=1", "--disable-usage-stats", *how],
        env=environment | {"VSETUNE_HOME": str(home)}, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )
    try:
        yield process
    finally:
        kill(process)


def kill(process: subprocess.Popen[bytes]) -> None:
    """With everything below it: `ray stop` would end every Ray on the machine."""
    with contextlib.suppress(psutil.NoSuchProcess):
        for each in [*psutil.Process(process.pid).children(recursive=True), psutil.Process(process.pid)]:
            with contextlib.suppress(psutil.NoSuchProcess):
                each.kill()
    process.wait(timeout=30)


def objects() -> dict[str, bytes]:
    client: Any = s3._client()
    found = client.list_objects_v2(Bucket=BUCKET, Prefix="scenes/").get("Contents", [])
    return {
        each["Key"].removeprefix("scenes/"): client.get_object(Bucket=BUCKET, Key=each["Key"])["Body"].read()
        for each in found
    }


@pytest.mark.timeout(600)
def test_a_node_that_dies_costs_only_what_it_was_at(environment: dict[str, str], tmp_path: Path) -> None:
    recipe = tmp_path / "scenes.yaml"
    recipe.write_text(yaml.safe_dump({
        "name": "scenes", "output": str(tmp_path / "here"), "vocabulary_min_count": 1, "shard": {"max_images": 20},
        "source": {"layout": "scenes", "train": 1200, "validation": 20, "test": 0, "image_size": 64},
        "features": {"extractor": "pixels", "grid": 2, "width": 16},
    }))
    ingest(load_recipe(recipe), progress=SilentProgress())
    uploads = tmp_path / "uploads.yaml"
    uploads.write_text(recipe.read_text() + f"upload: {PREFIX}\n")
    with (
        node(environment, tmp_path / "head", "--head", f"--port={PORT}", "--include-dashboard=false"),
        node(environment, tmp_path / "worker", f"--address=127.0.0.1:{PORT}") as worker,
        (tmp_path / "said").open("wb") as said,
    ):
        time.sleep(15)  # until both are there
        driver = subprocess.Popen(
            [sys.executable, "-m", "vsetune.cli.main", "data", "ingest", str(uploads), "--address", f"127.0.0.1:{PORT}"],
            env=environment | {"VSETUNE_HOME": str(tmp_path / "driver")}, stdout=said, stderr=said,
        )
        deadline = time.monotonic() + 240
        while len(objects()) < 8 and driver.poll() is None and time.monotonic() < deadline:
            time.sleep(0.1)
        assert not (tmp_path / "said").read_bytes() or driver.poll() is None, (tmp_path / "said").read_text()
        assert any((tmp_path / "worker").rglob("*")), "the second node made no shard"
        kill(worker)
        assert driver.wait(timeout=300) == 0, (tmp_path / "said").read_text()
    here = {path.name: path.read_bytes() for path in (tmp_path / "here").iterdir() if path.is_file()}
    assert objects() == here
    assert verify(PREFIX) == []
    assert not (tmp_path / "driver" / "data").exists()
