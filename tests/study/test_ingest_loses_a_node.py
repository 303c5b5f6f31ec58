"""Shards made by two nodes without a shared folder, one of which dies: the objects are those of one machine."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest
import yaml
from real_servers import stoppable_s3

from chaos.servers import BUCKET
from vsetune.data.looking.verify import verify
from vsetune.data.making.data_place import load_recipe
from vsetune.data.making.ingest import ingest
from vsetune.data.progress import SilentProgress
from vsetune.home import s3

PORT = 22379
HEAD = ("--head", f"--port={PORT}", f"--ray-client-server-port={PORT + 1}", "--include-dashboard=false")
PREFIX = f"s3://{BUCKET}/scenes"

pytestmark = pytest.mark.slow


@pytest.fixture
def environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, str]]:
    """With a running S3 server in it, for this process too."""
    token = tmp_path / "token"
    token.write_text("a" * 48)
    server, reaches_s3 = stoppable_s3(tmp_path)
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


@contextmanager
def driver_of(
    recipe: Path, address: str, environment: dict[str, str], said: Path
) -> Iterator[subprocess.Popen[bytes]]:
    command = [sys.executable, "-m", "vsetune.cli.main", "data", "ingest", str(recipe), "--address", address]
    with said.open("wb") as output:
        process = subprocess.Popen(command, env=environment, stdout=output, stderr=output)
        try:
            yield process
        finally:
            kill(process)


def has_gcs() -> bool:
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", PORT), timeout=1):
        return True
    return False


def wait_for(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 400
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.2)


def objects() -> dict[str, bytes]:
    client: Any = s3._client()
    found = client.list_objects_v2(Bucket=BUCKET, Prefix="scenes/").get("Contents", [])
    return {
        each["Key"].removeprefix("scenes/"): client.get_object(Bucket=BUCKET, Key=each["Key"])["Body"].read()
        for each in found
    }


@pytest.mark.timeout(1200)
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
    address, said = f"127.0.0.1:{PORT}", tmp_path / "said"
    with node(environment, tmp_path / "head", *HEAD):
        wait_for(has_gcs)
        with (
            node(environment, tmp_path / "worker", f"--address={address}") as worker,
            driver_of(uploads, address, environment | {"VSETUNE_HOME": str(tmp_path / "driver")}, said) as driver,
        ):
            both_work = lambda: len(objects()) > 8 and any((tmp_path / "worker").rglob("*"))  # noqa: E731
            wait_for(lambda: driver.poll() is not None or both_work())
            assert driver.poll() is None, said.read_text()
            kill(worker)
            assert driver.wait(timeout=600) == 0, said.read_text()
    here = {path.name: path.read_bytes() for path in (tmp_path / "here").iterdir() if path.is_file()}
    assert objects() == here
    assert verify(PREFIX) == []
    assert not (tmp_path / "driver" / "data").exists()
