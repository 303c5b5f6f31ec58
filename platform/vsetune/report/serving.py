"""HTTP server for boards of running studies, rebuilt when these change. It reads the store and changes nothing."""

from __future__ import annotations

import errno
import logging
import mimetypes
import secrets
import socket
import time
from asyncio import Transport, get_running_loop
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from http import HTTPStatus
from ipaddress import ip_address
from typing import Self
from urllib.parse import quote, unquote, urlsplit

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from uvicorn import Config, Server
from uvicorn.protocols.http.h11_impl import H11Protocol

from vsetune.errors import Problem, StorageError, UsageError
from vsetune.metrics.performance_profiles import HIT_SHARE
from vsetune.records.events import AttemptRecord, StudyRecord
from vsetune.records.studies import Studies
from vsetune.report import messages
from vsetune.report.building import build
from vsetune.report.many_studies import StudyAttempts, build_many
from vsetune.report.page import Live, to_html, to_update
from vsetune.report.page_templates import render
from vsetune.report.rows import Leaderboard, Shown, boards_of
from vsetune.report.shown_runs import ShownRuns, shown_runs

ASKS_WITHIN_S = 10.0
"""Longest time from a connection to its first complete request head."""
MOST_CONNECTIONS = 500
"""Most simultaneous connections; further ones are answered with 503."""
KEPT_BOARDS = 16
"""Number of boards in memory, the most recently requested ones."""

_log = logging.getLogger(__name__)
_HEADERS = {
    "Cache-Control": "no-cache", "X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer",
    "X-Frame-Options": "DENY",
}
_END_OF_HEAD = b"\r\n\r\n"
_ALL, _SIDE_BY_SIDE = "/all", "all studies side by side, by data set"
_SANDBOX = {"Content-Security-Policy": "sandbox allow-scripts"}
"""Header for files of runs: they are displayed with scripts, but cannot read the boards on the same server."""


@dataclass(frozen=True)
class _Answer:
    status: HTTPStatus
    content: bytes
    kind: str = "text/html; charset=utf-8"
    headers: Mapping[str, str] | None = None


class BoardServer:
    """studies: the studies to serve; empty for all in the store, now and later. host, port: to listen on; port 0: any
    free port. told: as in `LiveBoard`. hit_share: as in `Source`. Raises UsageError, in one line, if the address cannot
    be used.

    One thread reads the store and makes boards for all clients, in the order of the requests.
    """

    def __init__(
        self, store: Studies, studies: Sequence[str], *, host: str, port: int, baseline: str | None = None,
        mlflow_url: str | None = None, told: Told = lambda board, _: board, hit_share: float = HIT_SHARE,
    ) -> None:
        self._store, self._studies, self._baseline, self._hit_share = store, studies, baseline, hit_share
        self._names, self._next_look = list[str](), float("-inf")
        self._board = lru_cache(KEPT_BOARDS)(partial(LiveBoard, store, mlflow_url=mlflow_url, told=told))
        try:
            self._socket = socket.create_server((host, port))
        except (OSError, OverflowError) as error:
            raise UsageError(_why_silent(host, port, error)) from error
        self._address, self.port = self._socket.getsockname()
        self._is_private = ip_address(self._address).is_loopback
        self._maker = ThreadPoolExecutor(1, thread_name_prefix="boards")
        app = Starlette(routes=[Route("/{path:path}", self._respond)])
        self._server = Server(Config(
            app, http=_Connection, log_config=None, access_log=False, server_header=False, lifespan="off", ws="none",
            limit_concurrency=MOST_CONNECTIONS, timeout_graceful_shutdown=1,
        ))

    @property
    def url(self) -> str:
        return f"http://{self._address}:{self.port}/"

    def serve_forever(self) -> None:
        """Serve until `shutdown` is called or a signal comes; in the main thread a signal then goes to its handler."""
        self._server.run([self._socket])

    def shutdown(self) -> None:
        """Stop the server; call it from another thread."""
        self._server.should_exit = True

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._maker.shutdown(cancel_futures=True)
        self._socket.close()

    async def _respond(self, request: Request) -> Response:
        """Answer a request. An unexpected error is logged in one line and answered with 500; the server continues."""
        path, asked = request.scope["raw_path"].decode("latin-1"), request.headers
        answered = partial(self.answer, path, host=asked.get("host", ""), tag=asked.get("if-none-match"))
        try:
            answer = await get_running_loop().run_in_executor(self._maker, answered)
        except Exception as error:
            _log.warning("no answer to %s: %s", request.client.host if request.client else "", _told(error))
            _log.debug("no answer", exc_info=error)
            answer = _Answer(HTTPStatus.INTERNAL_SERVER_ERROR, b"a mistake of vsetune", "text/plain")
        return Response(answer.content, answer.status, {**_HEADERS, **(answer.headers or {})}, answer.kind)

    def answer(self, path: str, *, host: str, tag: str | None) -> _Answer:
        """Answer to a request for a path. host: its Host header; tag: its If-None-Match header, None without one."""
        if self._is_private and not _is_local(host):  # DNS rebinding: a foreign name that resolves to this machine
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
        if time.monotonic() >= self._next_look:
            self._names = [record.name for record in self._store.studies()]
            self._next_look = time.monotonic() + PAUSE_S
        return self._names

    def _serves(self, study: str) -> bool:
        return study in self._known()

    def _alone(self, study: str) -> Source:
        return Source((study,), self._baseline, hit_share=self._hit_share)

    def _start(self) -> _Answer:
        known = self._known()
        if len(known) == 1:
            return _Answer(HTTPStatus.FOUND, b"", headers={"Location": _address(known[0])})
        links = [(name, _address(name)) for name in known]
        if links:
            links.insert(0, (_SIDE_BY_SIDE, _ALL))
        why = "No study has been started yet."
        page = render("index.html.j2", title="Studies", links=links, why=why, seconds=30)
        return _Answer(HTTPStatus.OK, page.encode())

    def _of_board(self, source: Source, name: str, address: str, rest: Sequence[str], tag: str | None) -> _Answer:
        board = self._board(source)
        return self._board_json(board, tag) if rest else self._page(board, name, address)

    def _page(self, board: LiveBoard, name: str, address: str) -> _Answer:
        others = [(each, _address(each)) for each in self._known()]
        if address not in {place for _, place in others}:
            others.insert(0, (name, address))
        elif len(others) > 1:
            others.insert(0, (_SIDE_BY_SIDE, _ALL))
        try:
            return _Answer(HTTPStatus.OK, board.page(f"{address}/board.json", others))
        except UsageError as error:
            page = render("index.html.j2", title=name, links=(), why=str(error), seconds=2)
            return _Answer(HTTPStatus.OK, page.encode())

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


class _Connection(H11Protocol):
    """A connection that is closed if its first request head is not complete in time; uvicorn itself waits forever."""

    def connection_made(self, transport: Transport) -> None:  # type: ignore[override]
        self._head = b""
        get_running_loop().call_later(ASKS_WITHIN_S, self._close_unless_asked, transport)
        super().connection_made(transport)

    def data_received(self, data: bytes) -> None:
        if _END_OF_HEAD not in self._head:
            self._head = self._head[-len(_END_OF_HEAD):] + data
        super().data_received(data)

    def _close_unless_asked(self, transport: Transport) -> None:
        if _END_OF_HEAD not in self._head:
            transport.close()


def _address(study: str) -> str:
    return f"/studies/{quote(study, safe='')}"


def _is_local(host: str) -> bool:
    name = (urlsplit(f"//{host}").hostname or "").lower()
    return name in ("localhost", "127.0.0.1", "::1")


def _told(error: BaseException | None) -> str:
    return " ".join(f"{type(error).__name__}: {error}".split())


def _why_silent(host: str, port: int, error: OSError | OverflowError) -> Problem:
    number = getattr(error, "errno", None)
    if number == errno.EADDRINUSE:
        return messages.PORT_TAKEN(host=host, port=port)
    if number == errno.EACCES:
        return messages.PORT_RESERVED(host=host, port=port)
    return messages.CANNOT_LISTEN(host=host, why=getattr(error, "strerror", None) or error)


PAUSE_S = 1.0
"""Least time between two reads of the store, however many clients ask."""
SHARE = 5
"""A long read is followed by a pause of this many times its duration."""

Told = Callable[[Leaderboard, Sequence[StudyRecord]], Leaderboard]


@dataclass(frozen=True)
class Source:
    """Studies of a page: one study, or several side by side by data set. baseline: name of a loss, None for the
    studies' own. hit_share: of profiles, as in `TimeProfile`."""

    studies: tuple[str, ...]
    baseline: str | None = None
    is_several: bool = False
    hit_share: float = HIT_SHARE


@dataclass(frozen=True)
class Update:
    """tag: differs whenever the content does, also from tags of an earlier process. content: JSON of `to_update`."""

    tag: str
    content: bytes


@dataclass(frozen=True)
class _Made:
    shown: Shown
    runs: ShownRuns
    update: Update


class LiveBoard:
    """mlflow_url: of MLflow's UI, None without one. told: adds information from the study records to a board.

    Every method raises UsageError while there is nothing to show and for unknown studies or baselines, and StorageError
    while the store cannot be read. One thread at a time may use it.
    """

    def __init__(
        self, store: Studies, source: Source, *, mlflow_url: str | None, told: Told = lambda board, _: board,
    ) -> None:
        self._store, self._source, self._mlflow_url, self._told = store, source, mlflow_url, told
        self._next_look = float("-inf")
        self._attempts: list[Sequence[AttemptRecord]] = []
        self._made: _Made | None = None
        self._page: tuple[Live, bytes] | None = None
        self._process, self._number = secrets.token_hex(4), 0

    def update(self) -> Update:
        """The current content for a page to put in place."""
        return self._current().update

    def page(self, updates: str, boards: Sequence[tuple[str, str]]) -> bytes:
        """The whole page, cached until something in it changes; the parameters are those of `Live`."""
        made = self._current()
        live = Live(updates, made.update.tag, boards)
        if self._page is None or self._page[0] != live:
            self._page = live, to_html(made.shown, runs=made.runs, live=live).encode()
        return self._page[1]

    def _current(self) -> _Made:
        began = time.monotonic()
        if self._made is not None and began < self._next_look:
            return self._made
        attempts: list[Sequence[AttemptRecord]] = [self._store.attempts(study) for study in self._source.studies]
        if self._made is None or attempts != self._attempts:
            self._made, self._attempts = self._make(attempts), attempts
        ended = time.monotonic()
        self._next_look = ended + max(PAUSE_S, SHARE * (ended - began))
        return self._made

    def _make(self, attempts: Sequence[Sequence[AttemptRecord]]) -> _Made:
        shown = self._built(attempts)
        every = [attempt for of_study in attempts for attempt in of_study]
        runs = shown_runs(self._store, boards_of(shown).boards, every, mlflow_url=self._mlflow_url)
        self._number += 1
        return _Made(shown, runs, Update(f'"{self._process}-{self._number}"', to_update(shown, runs=runs).encode()))

    def _built(self, attempts: Sequence[Sequence[AttemptRecord]]) -> Shown:
        source = self._source
        records = self._store.studies()
        own = {record.name: str(record.config.get("baseline", "")) for record in records}
        if not source.is_several:
            (study,), (of_study,) = source.studies, attempts
            if study not in own:
                raise UsageError(messages.STUDY_GONE(study=study))
            board = build(of_study, baseline=source.baseline or own[study], hit_share=source.hit_share)
            return self._told(board, records)
        told = [
            StudyAttempts(study, own.get(study, ""), of_study)
            for study, of_study in zip(source.studies, attempts, strict=True)
        ]
        if not any(attempts):
            raise UsageError(messages.NO_ATTEMPTS(where="this store"))
        found = build_many(told, baseline=source.baseline, hit_share=source.hit_share)
        return replace(found, boards=tuple(self._told(board, records) for board in found.boards))
