"""An S3 server of this process, for fixtures: `from s3_server import endpoint, machine, prefix`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import boto3
import pytest
from mock_bucket import aws_account
from moto.server import ThreadedMotoServer


@pytest.fixture(scope="session")
def endpoint() -> Iterator[str]:
    """A moto server on a free port: unlike moto inside the process it tells its time, and takes many threads."""
    server = ThreadedMotoServer(port=0, verbose=False)
    server.start()
    yield "http://{}:{}".format(*server.get_host_and_port())
    server.stop()


@pytest.fixture
def prefix(endpoint: str, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Iterator[str]:
    """A prefix of its own for every test."""
    with aws_account(monkeypatch, endpoint=endpoint):
        boto3.client("s3").create_bucket(Bucket="home")
        yield f"s3://home/{request.node.name.translate({ord(sign): None for sign in '[] '})}"


@pytest.fixture
def machine(prefix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Makes this process one on the machine of that name, with a disk of its own and the home under `prefix`."""
    monkeypatch.setenv("VSETUNE_HOME", prefix)

    def on(name: str) -> None:
        monkeypatch.setenv("VSETUNE_NODE_FOLDER", str(tmp_path / name))

    on("first")
    return on
