"""Objects over HTTP as S3 gives them, with what connections and other people do to them while they are read."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from vsetune.home import s3


class ObjectServer:
    """Objects by path (`/bucket/key`). requests: (path, Range header or None) of every GET, in order.

    cuts: how many bytes of the body each coming answer gives before the connection breaks; then whole ones.
    knows_ranges: False gives the whole object whatever range was asked for.
    """

    def __init__(self) -> None:
        self.objects: dict[str, bytes] = {}
        self.requests: list[tuple[str, str | None]] = []
        self.cuts: list[int] = []
        self.knows_ranges = True
        self.pause_after: int | None = None
        """Bytes of a body after which the server waits for `go_on`."""
        self.go_on = threading.Event()
        self.between = lambda: None
        """Called after each answer."""
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True)
        self._thread.start()
        self.endpoint = f"http://127.0.0.1:{self._server.server_address[1]}"

    def put(self, key: str, content: bytes) -> tuple[str, str]:
        """(address, SHA-256) of an object in the bucket `data`."""
        self.objects[f"/data/{key}"] = content
        return f"s3://data/{key}", hashlib.sha256(content).hexdigest()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        objects = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                objects._answer(self)

            def log_message(self, *_: Any) -> None:
                pass

        return Handler

    def _answer(self, request: BaseHTTPRequestHandler) -> None:
        path, wanted = request.path.partition("?")[0], request.headers.get("Range")
        self.requests.append((path, wanted))
        content = self.objects.get(path)
        if content is None:
            self._give(request, 404, b"<Error><Code>NoSuchKey</Code></Error>", {})
            return
        etag = f'"{hashlib.md5(content).hexdigest()}"'
        if request.headers.get("If-Match") not in (None, etag):
            self._give(request, 412, b"<Error><Code>PreconditionFailed</Code></Error>", {})
            return
        headers = {"ETag": etag}
        if wanted and self.knows_ranges:
            first = int(wanted.removeprefix("bytes=").rstrip("-"))
            headers["Content-Range"] = f"bytes {first}-{len(content) - 1}/{len(content)}"
            self._give(request, 206, content[first:], headers)
        else:
            self._give(request, 200, content, headers)
        self.between()

    def _give(self, request: BaseHTTPRequestHandler, status: int, body: bytes, headers: dict[str, str]) -> None:
        request.send_response(status)
        for name, value in (headers | {"Content-Length": str(len(body)), "Connection": "close"}).items():
            request.send_header(name, value)
        request.end_headers()
        body = body[: self.cuts.pop(0)] if self.cuts and status < 300 else body
        if self.pause_after is not None:
            request.wfile.write(body[: self.pause_after])
            self.go_on.wait(timeout=30)
            body = body[self.pause_after :]
        request.wfile.write(body)
        request.close_connection = True


@contextmanager
def object_server(monkeypatch: pytest.MonkeyPatch) -> Iterator[ObjectServer]:
    """A server that our S3 client finds, with no pauses worth waiting for."""
    server = ObjectServer()
    for name, value in {
        "AWS_ENDPOINT_URL": server.endpoint, "AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test",
        "AWS_DEFAULT_REGION": "us-east-1",
    }.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(s3, "_FIRST_PAUSE_S", 0.001)
    s3._client.cache_clear()
    yield server
    server.close()
    s3._client.cache_clear()
