"""Serves boards to browsers while their studies run. Reads the store and changes nothing."""

from __future__ import annotations

import errno
import logging
import mimetypes
import sys
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from ipaddress import ip_address
from typing import Any
from urllib.parse import quote, unquote, urlsplit

from vsetune.errors import StorageError, UsageError
from vsetune.leaderboard.live_board import LiveBoard, Source, Told
from vsetune.leaderboard.waiting_page import list_page, waiting_page
from vsetune.metrics.performance_profiles import HIT_SHARE
from vsetune.records.studies import Studies

_log = logging.getLogger(__name__)
_HEADERS = {
    "Cache-Control": "no-cache", "X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer",
    "X-Frame-Options": "DENY",
}
_ALL, _SIDE_BY_SIDE = "/all", "all studies side by side, by data set"
_SANDBOX = {"Content-Security-Policy": "sandbox allow-scripts"}
"""Files of runs may show themselves and read nothing of the boards beside them."""


@dataclass(frozen=True)
class _Answer:
    status: HTTPStatus
    content: bytes
    kind: str = "text/html; charset=utf-8"
    headers: Mapping[str, str] | None = None


class BoardServer(ThreadingHTTPServer):
    """studies: those to be served; empty for all that the store has, now or later. host, port: to listen on, port 0 for
    any that is free. told: as of `LiveBoard`, hit_share: of `Source`. UsageError in one line where that cannot be."""

    daemon_threads = True

    def __init__(
        self, store: Studies, studies: Sequence[str], *, host: str, port: int, baseline: str | None = None,
        mlflow_url: str | None = None, told: Told = lambda board, _: board, hit_share: float = HIT_SHARE,
    ) -> None:
        self._store, self._studies, self._baseline, self._mlflow_url = store, studies, baseline, mlflow_url
        self._told, self._hit_share = told, hit_share
        self._lock, self._boards = threading.Lock(), dict[Source, LiveBoard]()
        try:
            super().__init__((host, port), _Handler)
        except (OSError, OverflowError) as error:
            raise UsageError(_cannot_listen(host, port, error)) from error
        self._is_private = ip_address(str(self.server_address[0])).is_loopback

    @property
    def url(self) -> str:
        return f"http://{self.server_address[0]!s}:{self.server_port}/"

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A browser that hung up is no news; all else is one line, and the server goes on."""
        error = sys.exception()
        if isinstance(error, ConnectionError | TimeoutError):
            _log.debug("%s hung up", client_address[0])
            return
        _log.warning("no answer to %s: %s", client_address[0], _told(error))
        _log.debug("no answer", exc_info=error)

    def answer(self, path: str, *, host: str, tag: str | None) -> _Answer:
        """To a request for a path. host: as the browser believes to have asked; tag: of what it has."""
        if self._is_private and not _is_local(host):  # a page elsewhere whose name was pointed at this machine
            return _Answer(HTTPStatus.FORBIDDEN, b"this server is for this machine alone", "text/plain")
        try:
            return self._answered(path, tag)
        except StorageError as error:
            return _Answer(HTTPStatus.SERVICE_UNAVAILABLE, str(error).encode(), "text/plain; charset=utf-8")
        except OSError as error:  # a full temporary folder, ...
            return _Answer(HTTPStatus.SERVICE_UNAVAILABLE, _told(error).encode(), "text/plain; charset=utf-8")

    def _answered(self, path: str, tag: str | None) -> _Answer:
        match [unquote(part) for part in path.strip("/").split("/")]:
            case [""]:
                return self._start()
            case ["all", *rest] if rest in ([], ["board.json"]):
                source = Source(tuple(self._known()), self._baseline, is_several=True, hit_share=self._hit_share)
                return self._of_board(source, _SIDE_BY_SIDE, _ALL, rest, tag)
            case ["studies", study, *rest] if rest in ([], ["board.json"]) and self._serves(study):
                return self._of_board(self._alone(study), study, _address(study), rest, tag)
            case ["studies", study, "artifacts", trial, number, *name] if name and self._serves(study):
                return self._artifact(f"{study}/{trial}/{number}", "/".join(name))
        return _Answer(HTTPStatus.NOT_FOUND, b"nothing stands here", "text/plain")

    def _known(self) -> Sequence[str]:
        if self._studies:
            return self._studies
        with self._lock:
            return [record.name for record in self._store.studies()]

    def _serves(self, study: str) -> bool:
        return self._alone(study) in self._boards or study in self._known()

    def _alone(self, study: str) -> Source:
        return Source((study,), self._baseline, hit_share=self._hit_share)

    def _start(self) -> _Answer:
        known = self._known()
        if len(known) == 1:
            return _Answer(HTTPStatus.FOUND, b"", headers={"Location": _address(known[0])})
        links = [(name, _address(name)) for name in known]
        if links:
            links.insert(0, (_SIDE_BY_SIDE, _ALL))
        return _Answer(HTTPStatus.OK, list_page("Studies", links).encode())

    def _of_board(self, source: Source, name: str, address: str, rest: Sequence[str], tag: str | None) -> _Answer:
        board = self._boards.get(source)
        if board is None:
            board = LiveBoard(self._store, source, mlflow_url=self._mlflow_url, lock=self._lock, told=self._told)
        answer = self._board_json(board, tag) if rest else self._page(board, name, address)
        if answer.status in (HTTPStatus.OK, HTTPStatus.NOT_MODIFIED):
            self._boards[source] = board
        return answer

    def _page(self, board: LiveBoard, name: str, address: str) -> _Answer:
        others = [(each, _address(each)) for each in self._known()]
        if address not in {place for _, place in others}:
            others.insert(0, (name, address))
        elif len(others) > 1:
            others.insert(0, (_SIDE_BY_SIDE, _ALL))
        try:
            return _Answer(HTTPStatus.OK, board.page(f"{address}/board.json", others))
        except UsageError as error:
            return _Answer(HTTPStatus.OK, waiting_page(name, str(error)).encode())

    def _board_json(self, board: LiveBoard, tag: str | None) -> _Answer:
        try:
            update = board.update()
        except UsageError as error:
            return _Answer(HTTPStatus.SERVICE_UNAVAILABLE, str(error).encode(), "text/plain; charset=utf-8")
        headers = {"ETag": update.tag}
        if tag == update.tag:
            return _Answer(HTTPStatus.NOT_MODIFIED, b"", "application/json", headers)
        return _Answer(HTTPStatus.OK, update.content, "application/json", headers)

    def _artifact(self, attempt: str, name: str) -> _Answer:
        if not name.startswith("gallery/") or ".." in name.split("/"):
            return _Answer(HTTPStatus.NOT_FOUND, b"only galleries are served", "text/plain")
        try:
            with self._lock:
                found = self._store.fetch_artifact(attempt, name)
                content = found.read_bytes() if found is not None else None
        except StorageError:
            raise
        except UsageError as error:
            return _Answer(HTTPStatus.NOT_FOUND, str(error).encode(), "text/plain; charset=utf-8")
        if content is None:
            reason = f"attempt {attempt} has no {name}".encode()
            return _Answer(HTTPStatus.NOT_FOUND, reason, "text/plain; charset=utf-8")
        kind = mimetypes.guess_type(name)[0] or "application/octet-stream"
        return _Answer(HTTPStatus.OK, content, kind, _SANDBOX)


class _Handler(BaseHTTPRequestHandler):
    server: BoardServer
    protocol_version = "HTTP/1.1"
    timeout = 30

    def do_GET(self) -> None:
        self._send(with_content=True)

    def do_HEAD(self) -> None:
        self._send(with_content=False)

    def _send(self, *, with_content: bool) -> None:
        answer = self.server.answer(
            urlsplit(self.path).path, host=self.headers.get("Host", ""), tag=self.headers.get("If-None-Match"),
        )
        self.send_response(answer.status)
        for name, value in {**_HEADERS, "Content-Type": answer.kind, **(answer.headers or {})}.items():
            self.send_header(name, value)
        if answer.status != HTTPStatus.NOT_MODIFIED:
            self.send_header("Content-Length", str(len(answer.content)))
        self.end_headers()
        if with_content:
            self.wfile.write(answer.content)

    def log_message(self, format: str, *arguments: object) -> None:  # named so by the standard library
        _log.debug(format, *arguments)


def _address(study: str) -> str:
    return f"/studies/{quote(study, safe='')}"


def _is_local(host: str) -> bool:
    name = (urlsplit(f"//{host}").hostname or "").lower()
    return name in ("localhost", "127.0.0.1", "::1")


def _told(error: BaseException | None) -> str:
    return " ".join(f"{type(error).__name__}: {error}".split())


def _cannot_listen(host: str, port: int, error: OSError | OverflowError) -> str:
    number = getattr(error, "errno", None)
    if number == errno.EADDRINUSE:
        why = f"port {port} is taken; choose another with --port, or --port 0 for any that is free"
    elif number == errno.EACCES:
        why = f"port {port} is kept for administrators; choose one above 1023 with --port"
    else:
        why = f"{getattr(error, 'strerror', None) or error}; need an address of this machine (--host) and a port"
    return f"leaderboard serve: cannot listen on {host}, {why}"
