"""Servers on loopback that take what we send: HTTP with the answers a test plans, SMTP."""

from __future__ import annotations

import http.server
import socketserver
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from email import message_from_bytes
from email.message import EmailMessage
from email.policy import default

DRIP = -1


@dataclass
class Received:
    """What a server got. url: of the HTTP server, with a path that looks like a webhook's secret."""

    url: str = ""
    port: int = 0
    requests: list[tuple[str, str, bytes, dict[str, str]]] = field(default_factory=list)
    mails: list[EmailMessage] = field(default_factory=list)


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
    """Answers with these statuses in turn, the last one for ever; None: not at all, DRIP: a byte at a time, both until
    the test ends."""
    received, over = Received(), threading.Event()

    class Handler(http.server.BaseHTTPRequestHandler):
        def _take(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            status = answers[min(len(received.requests), len(answers) - 1)]
            received.requests.append((self.command, self.path, body, dict(self.headers)))
            if status is None:
                over.wait()
                return
            if status == DRIP:
                with suppress(OSError):  # whoever asked has gone
                    while not over.wait(0.02):
                        self.wfile.write(b"H")
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


@contextmanager
def smtp_receiver() -> Iterator[Received]:
    """A server that speaks enough SMTP."""
    received = Received()

    class Handler(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            self.say("220 test ready")
            while word := self.rfile.readline().split(b" ")[0].strip().upper():
                if word == b"DATA":
                    self.say("354 go on")
                    received.mails.append(message_from_bytes(self.content(), policy=default))
                self.say("221 bye" if word == b"QUIT" else "250 ok")

        def say(self, text: str) -> None:
            self.wfile.write(text.encode() + b"\r\n")

        def content(self) -> bytes:
            lines = iter(self.rfile.readline, b".\r\n")
            return b"".join(line[1:] if line.startswith(b"..") else line for line in lines)

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler) as server:
        received.port = server.server_address[1]
        with _serving(server):
            yield received
