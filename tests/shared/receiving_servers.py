"""A server on loopback that takes what we send over HTTP, with the answers a test plans."""

from __future__ import annotations

import http.server
import socketserver
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field


@dataclass
class Received:
    """What a server got. url: of the HTTP server, with a path that looks like a webhook's secret."""

    url: str = ""
    port: int = 0
    requests: list[tuple[str, str, bytes, dict[str, str]]] = field(default_factory=list)


@contextmanager
def _serving(server: socketserver.BaseServer) -> Iterator[None]:
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@contextmanager
def http_receiver(answers: Sequence[int | None]) -> Iterator[Received]:
    """Answers with these statuses in turn, the last one for ever; None: not at all until the test ends."""
    received, over = Received(), threading.Event()

    class Handler(http.server.BaseHTTPRequestHandler):
        def _take(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            status = answers[min(len(received.requests), len(answers) - 1)]
            received.requests.append((self.command, self.path, body, dict(self.headers)))
            if status is None:
                over.wait()
                return
            self.send_response(status)
            if status == 302:
                self.send_header("Location", "/elsewhere")
            self.end_headers()
            self.wfile.write(b"ok" if status < 300 else b"went wrong at " + self.path.encode())

        do_POST = do_PUT = do_GET = _take  # noqa: N815  the names are the library's

        def log_message(self, *arguments: object) -> None:
            """Nothing."""

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        received.port = server.server_address[1]
        received.url = f"http://127.0.0.1:{received.port}/services/T000/B000/verysecrettoken"
        with _serving(server):
            try:
                yield received
            finally:
                over.set()
