"""Storage out of reach is an interruption (StorageError); what stands there is a matter of data (DataError)."""

from __future__ import annotations

import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from mock_bucket import aws_account
from refusals import refused

from vsetune.data.batches.reader import training_batches
from vsetune.data.batches.sample_stream import shuffled_images
from vsetune.data.stored import storage
from vsetune.data.stored.dataset import Dataset
from vsetune.errors import DataError, StorageError

OPTIONS = {"batch_size": 4, "batch_unit": "pairs", "seed": 1, "epoch": 0, "shuffle_pairs": 8}


class Broken:
    """A server on a free port that gives every connection to `behave`, with the path that was asked for."""

    def __init__(self) -> None:
        self.behave: Callable[[socket.socket, str], None] = lambda connection, path: None
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port = self._listening.getsockname()[1]
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._listening.accept()
            except OSError:
                return
            threading.Thread(target=self._answer, args=(connection,), daemon=True).start()

    def _answer(self, connection: socket.socket) -> None:
        with connection:
            request = b""
            while b"\r\n\r\n" not in request:
                received = connection.recv(65536)
                if not received:
                    return
                request += received
            self.behave(connection, request.split()[1].decode().partition("?")[0])

    def close(self) -> None:
        self._listening.close()


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Broken]:
    broken = Broken()
    with aws_account(monkeypatch, endpoint=f"http://127.0.0.1:{broken.port}"):
        yield broken
    broken.close()


def answer(status: str, body: bytes = b"", *, length: int | None = None) -> Callable[[socket.socket, str], None]:
    promised = len(body) if length is None else length
    head = f"HTTP/1.1 {status}\r\nContent-Length: {promised}\r\nConnection: close\r\n\r\n"
    return lambda connection, path: connection.sendall(head.encode() + body)


def error_of(code: str) -> bytes:
    return f"<Error><Code>{code}</Code><Message>no</Message></Error>".encode()


@pytest.mark.parametrize(
    "behave",
    [
        lambda connection, path: None,
        answer("503 Slow Down", error_of("SlowDown")),
        answer("500 Internal Server Error", error_of("InternalError")),
        answer("403 Forbidden", error_of("InvalidAccessKeyId")),
    ],
    ids=["closes", "throttles", "fails", "forbids"],
)
def test_an_endpoint_in_trouble_is_an_interruption(server: Broken, behave: Callable[..., None]) -> None:
    server.behave = behave
    for use in (storage.exists, storage.read_bytes):
        with pytest.raises(StorageError) as caught:
            use("s3://data/x")
        assert caught.value.problem.code in {"VSE-O026", "VSE-O027"}


def test_an_endpoint_that_is_gone_is_an_interruption(server: Broken) -> None:
    server.close()
    with refused("VSE-O026", by=StorageError, url="s3://data/x"):
        storage.read_bytes("s3://data/x")


def test_a_body_cut_short_by_the_network_is_an_interruption(server: Broken) -> None:
    server.behave = answer("200 OK", b"half", length=1000)
    with refused("VSE-O033", by=StorageError, url="s3://data/x"):
        storage.read_bytes("s3://data/x")


@pytest.mark.parametrize("code", ["NoSuchKey", "NoSuchBucket"])
def test_an_object_that_is_not_there_is_a_matter_of_data(server: Broken, code: str) -> None:
    server.behave = answer("404 Not Found", error_of(code))
    message = "VSE-O029" if code == "NoSuchKey" else "VSE-O028"
    with refused(message, by=DataError, url="s3://data/x"):
        storage.read_bytes("s3://data/x")
    assert not storage.exists("s3://data/x")


@pytest.mark.slow
@pytest.mark.timeout(30)
def test_an_endpoint_that_says_nothing_is_noticed_within_seconds(server: Broken) -> None:
    server.behave = lambda connection, path: time.sleep(60)
    with refused("VSE-O026", by=StorageError):
        storage.read_bytes("s3://data/x")


@pytest.mark.parametrize("workers", [0, 2])
def test_an_outage_in_the_middle_keeps_its_kind_on_its_way_to_the_training(tiny, server, workers):
    folder = Path(tiny().write().path)

    def serve(connection: socket.socket, path: str) -> None:
        content = (folder / Path(path).name).read_bytes()
        cut = len(content) // 2 if path.endswith("train-000003.tar") else len(content)
        answer("200 OK", content[:cut], length=len(content))(connection, path)

    server.behave = serve
    dataset = Dataset.open("s3://data/tiny")
    with refused("VSE-O033", by=StorageError, url="s3://data/tiny/train-000003.tar"):
        list(training_batches(dataset, "train", **OPTIONS, workers=workers))


def test_a_local_read_that_fails_is_an_interruption() -> None:
    with refused("VSE-D002", by=StorageError, file="/proc/self/mem"):
        storage.read_bytes("/proc/self/mem")  # nothing is mapped at its beginning


def test_a_local_file_that_is_not_there_is_a_matter_of_data(tmp_path: Path) -> None:
    with refused("VSE-D001", by=DataError, file=tmp_path / "none"):
        storage.read_bytes(str(tmp_path / "none"))


def _kills_itself(shard: object) -> Iterator[object]:
    os.kill(os.getpid(), signal.SIGKILL)
    yield shard


@pytest.mark.slow
def test_a_reading_process_that_is_killed_is_an_interruption(tiny: Callable[..., Any]) -> None:
    shards = tiny().write().split("train").shards
    with refused("VSE-D031", by=StorageError):
        list(shuffled_images(_kills_itself, shards, seed=0, epoch=0, workers=1))
