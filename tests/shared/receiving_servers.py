"""Servers on loopback that take what we send: HTTP with the answers a test plans, SMTP with or without TLS."""

from __future__ import annotations

import http.server
import socketserver
import ssl
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from email import message_from_bytes
from email.message import EmailMessage
from email.policy import default
from pathlib import Path
from typing import Any

DRIP = -1


@dataclass
class Received:
    """What a server got. url: of the HTTP server, with a path that looks like a webhook's secret."""

    url: str = ""
    port: int = 0
    requests: list[tuple[str, str, bytes, dict[str, str]]] = field(default_factory=list)
    mails: list[EmailMessage] = field(default_factory=list)
    envelopes: list[tuple[str, list[str]]] = field(default_factory=list)
    logins: list[str] = field(default_factory=list)
    encrypted: list[bool] = field(default_factory=list)


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
def smtp_receiver(certificate: Path | None = None, *, refuse: str = "") -> Iterator[Received]:
    """A server that speaks enough SMTP. certificate: a PEM file with its key, offers STARTTLS. refuse: a recipient."""
    received = Received()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER) if certificate is not None else None
    if context is not None and certificate is not None:
        context.load_cert_chain(certificate)

    class Handler(socketserver.BaseRequestHandler):
        """One connection. The state of a mail is its sender and those who get it."""

        def handle(self) -> None:
            self.connection: Any = self.request
            self.lines = self.connection.makefile("rb")
            self.sender, self.to, self.is_encrypted = "", [], False
            self.say("220 test ready")
            while line := self.lines.readline():
                word, _, rest = line.decode().strip().partition(" ")
                if word.upper() == "QUIT":
                    self.say("221 bye")
                    return
                self.answer(word.upper(), rest)

        def say(self, text: str) -> None:
            self.connection.sendall(text.encode() + b"\r\n")

        def answer(self, word: str, rest: str) -> None:
            if word == "EHLO":
                offers = "250-STARTTLS\r\n" if context is not None and not self.is_encrypted else ""
                self.say(f"250-test\r\n{offers}250 AUTH PLAIN")
            elif word == "STARTTLS" and context is not None:
                self.say("220 go on")
                self.connection = context.wrap_socket(self.connection, server_side=True)
                self.lines, self.is_encrypted = self.connection.makefile("rb"), True
            elif word == "AUTH":
                received.logins.append(rest)
                self.say("235 welcome")
            elif word == "MAIL":
                self.sender, self.to = rest, []
                self.say("250 ok")
            elif word == "RCPT":
                is_refused = bool(refuse) and refuse in rest
                self.to += [] if is_refused else [rest]
                self.say("550 nobody here" if is_refused else "250 ok")
            elif word == "DATA":
                self.say("354 go on")
                self.take()
            else:
                self.say("250 ok")

        def take(self) -> None:
            content = b""
            while (line := self.lines.readline()) != b".\r\n":
                content += line[1:] if line.startswith(b"..") else line
            received.mails.append(message_from_bytes(content, policy=default))
            received.envelopes.append((self.sender, self.to))
            received.encrypted.append(self.is_encrypted)
            self.say("250 taken")

        def finish(self) -> None:
            self.lines.close()
            self.connection.close()

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler) as server:
        received.port = server.server_address[1]
        with _serving(server):
            yield received
