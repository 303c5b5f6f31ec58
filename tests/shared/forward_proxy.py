"""A small forward proxy of this process for a test: GET, HEAD, POST and the rest, and CONNECT."""

from __future__ import annotations

import http.client
import select
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from urllib.parse import urlsplit

from local_http import answering


@contextmanager
def forward_proxy(hosts: dict[str, str]) -> Iterator[tuple[str, list[str]]]:
    """(its URL, the requests that came through it). hosts: HOST:PORT to reach, by the HOST:PORT that is asked for."""
    asked: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def forward(self) -> None:
            parts = urlsplit(self.path)
            asked.append(f"{self.command} {parts.netloc}")
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            path = f"{parts.path or '/'}{'?' if parts.query else ''}{parts.query}"
            try:
                there = http.client.HTTPConnection(hosts[parts.netloc])
                there.request(self.command, path, body, dict(self.headers))
                answer = there.getresponse()
                content = answer.read()
            except (KeyError, OSError):
                self.send_error(502)
                return
            self.send_response(answer.status)
            for name in ("Content-Type",):
                self.send_header(name, answer.headers.get(name, "text/plain"))
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)
            there.close()

        do_GET = do_HEAD = do_POST = do_PUT = do_PATCH = do_DELETE = forward  # noqa: N815

        def do_CONNECT(self) -> None:
            asked.append(f"CONNECT {self.path}")
            if self.path not in hosts:
                self.send_error(502)
                return
            host, port = hosts[self.path].split(":")
            with socket.create_connection((host, int(port))) as there:
                self.send_response(200)
                self.end_headers()
                ends = {self.connection: there, there: self.connection}
                while all(_passed(end, ends[end]) for end in select.select(list(ends), [], [])[0]):
                    pass

        def log_message(self, format: str, *given: object) -> None:
            pass

    with answering(Handler) as url:
        yield url, asked


def _passed(end: socket.socket, other: socket.socket) -> bool:
    content = end.recv(1 << 16)
    other.sendall(content)
    return bool(content)


