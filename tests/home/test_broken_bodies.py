"""A body that breaks off goes on at its byte, and never with the rest of another object."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from object_server import ObjectServer, object_server
from refusals import refused

from vsetune.home import s3

CONTENT = bytes(range(256)) * 4096


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[ObjectServer]:
    with object_server(monkeypatch) as server:
        yield server


def read(url: str) -> bytes:
    stream, _ = s3.open_object(url)
    with stream:
        return stream.read()


def test_a_body_that_breaks_goes_on_at_its_byte(server: ObjectServer) -> None:
    url, _ = server.put("x", CONTENT)
    server.cuts = [300_000, 0, 200_001]
    assert read(url) == CONTENT
    assert [asked for _, asked in server.requests] == [None, "bytes=300000-", "bytes=300000-", "bytes=500001-"]


def test_an_object_that_was_changed_while_it_was_read_is_noticed(server: ObjectServer) -> None:
    url, _ = server.put("x", CONTENT)
    server.cuts = [300_000]
    server.between = lambda: server.put("x", CONTENT[::-1])
    with refused("VSE-O034", url="s3://data/x"):
        read(url)


def test_a_server_that_gives_something_else_than_the_rest_is_not_believed(server, monkeypatch):
    monkeypatch.setattr(s3, "_GO_ON_WITHIN_S", 0.05)
    url, _ = server.put("x", CONTENT)
    server.cuts, server.knows_ranges = [300_000], False
    with refused("VSE-O033"):
        read(url)
