"""The node cache and bodies that go on, against a real S3 server."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import torch
from real_servers import stoppable_s3

from chaos.servers import BUCKET, Server
from vsetune.config.sources.recipe import IngestRecipe
from vsetune.data.batches.reader import training_batches
from vsetune.data.making.ingest import ingest
from vsetune.data.progress import SilentProgress
from vsetune.data.stored.dataset import Dataset
from vsetune.errors import StorageError
from vsetune.home import s3

pytestmark = pytest.mark.slow

OPTIONS: dict[str, Any] = {"batch_size": 16, "batch_unit": "pairs", "seed": 1, "shuffle_pairs": 64}


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    server, environment = stoppable_s3(tmp_path)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    s3._client.cache_clear()
    with server.running():
        yield server
    s3._client.cache_clear()


def test_a_node_goes_on_training_while_the_server_is_away(server: Server, tmp_path: Path) -> None:
    recipe = IngestRecipe.model_validate({
        "name": "scenes", "output": str(tmp_path / "scenes"), "upload": f"s3://{BUCKET}/scenes",
        "source": {"layout": "scenes", "train": 100, "validation": 8, "test": 0, "image_size": 32},
        "features": {"extractor": "pixels", "grid": 2, "width": 64}, "shard": {"max_images": 20},
        "vocabulary_min_count": 1,
    })
    ingest(recipe, progress=SilentProgress())
    here, there = Dataset.open(str(tmp_path / "scenes")), Dataset.open(f"s3://{BUCKET}/scenes")
    assert_same_epoch(here, there, 0)
    with server.down():
        assert_same_epoch(here, there, 1)
        with pytest.raises(StorageError, match="S3 does not answer"):
            Dataset.open(f"s3://{BUCKET}/scenes")


def assert_same_epoch(here: Dataset, there: Dataset, epoch: int) -> None:
    pairs = zip(
        training_batches(here, "train", **OPTIONS, epoch=epoch),
        training_batches(there, "train", **OPTIONS, epoch=epoch), strict=True,
    )
    for one, other in pairs:
        assert torch.equal(one.images.features, other.images.features)
        assert torch.equal(one.captions.tokens, other.captions.tokens)


def test_a_body_that_the_network_cuts_goes_on_at_its_byte(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    content = os.urandom(8 << 20)
    s3._client().put_object(Bucket=BUCKET, Key="large", Body=content)
    line = CutLine(os.environ["AWS_ENDPOINT_URL"], cuts=[1 << 20, 3 << 20, 100])
    monkeypatch.setenv("AWS_ENDPOINT_URL", line.endpoint)
    s3._client.cache_clear()
    stream, size = s3.open_object(f"s3://{BUCKET}/large")
    with stream:
        assert stream.read() == content
    assert size == len(content)
    assert line.connections == 4
    line.close()


class CutLine:
    """A line to a server that is cut after so many bytes of each coming connection's answer."""

    def __init__(self, endpoint: str, *, cuts: list[int]) -> None:
        to = urlsplit(endpoint)
        self._to, self._cuts, self.connections = (to.hostname, to.port), cuts, 0
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.endpoint = f"http://127.0.0.1:{self._listening.getsockname()[1]}"
        threading.Thread(target=self._serve, daemon=True).start()

    def close(self) -> None:
        self._listening.close()

    def _serve(self) -> None:
        while True:
            try:
                near, _ = self._listening.accept()
            except OSError:
                return
            self.connections += 1
            far = socket.create_connection(self._to)
            most = self._cuts.pop(0) if self._cuts else 1 << 60
            threading.Thread(target=_pass_on, args=(near, far, 1 << 60), daemon=True).start()
            threading.Thread(target=_pass_on, args=(far, near, most), daemon=True).start()


def _pass_on(one: socket.socket, other: socket.socket, most: int) -> None:
    try:
        while most > 0 and (content := one.recv(min(65536, most))):
            other.sendall(content)
            most -= len(content)
    except OSError:
        pass
    finally:
        one.close()
        other.close()
