"""HTTP server for boards of running studies, rebuilt when these change. It reads the store and changes nothing."""

from __future__ import annotations

import errno
import logging
import mimetypes
import secrets
import socket
import time
from asyncio import Transport, get_running_loop
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from http import HTTPStatus
from ipaddress import ip_address
from typing import Self
from urllib.parse import quote, urlsplit

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, RedirectResponse, Response
from starlette.routing import Route
from uvicorn import Config, Server
from uvicorn.protocols.http.h11_impl import H11Protocol

from vsetune.errors import Problem, StorageError, UsageError
from vsetune.metrics.efficiency import TARGET_SHARE
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


class BoardServer:
    """studies: the studies to serve; empty for all in the store, now and later. host, port: to listen on; port 0: any
    free port. told: as in `LiveBoard`. hit_share, target_share: as in `Source`. Raises UsageError, in one line, if the
    address cannot be used.

    One thread reads the store and makes boards for all clients, in the order of the requests.
    """

    def __init__(
        self, store: Studies, studies: Sequence[str], *, host: str, port: int, baseline: str | None = None,
        mlflow_url: str | None = None, told: Told = lambda board, _: board, hit_share: float = HIT_SHARE,
        target_share: float = TARGET_SHARE,
    ) -> None:
        self._store, self._studies = store, studies
        self._source = Source((), baseline, hit_share=hit_share, target_share=target_share)
        self._names, self._next_look = list[str](), float("-inf")
        self._boards = lru_cache(KEPT_BOARDS)(partial(LiveBoard, store, mlflow_url=mlflow_url, told=told))
        try:
            self._socket = socket.create_server((host, port))
        except (OSError, OverflowError) as error:
            raise UsageError(_why_silent(host, port, error)) from error
        self._address, self.port = self._socket.getsockname()
        self._is_private = ip_address(self._address).is_loopback
        self._maker = ThreadPoolExecutor(1, thread_name_prefix="boards")
        answers = {
            "/": self._start, _ALL: self._page, f"{_ALL}/board.json": self._board_json,
            "/studies/{study}": self._page, "/studies/{study}/board.json": self._board_json,
            "/studies/{study}/artifacts/{trial}/{number}/{name:path}": self._artifact,
        }
        app = Starlette(routes=[Route(path, partial(self._respond, answer)) for path, answer in answers.items()])
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

    async def _respond(self, answer: Callable[[Request], Response], request: Request) -> Response:
        """The answer to a request. An unexpected error is logged in one line and answered with 500; the server
        continues."""
        try:
            response = await get_running_loop().run_in_executor(self._maker, self._checked, answer, request)
        except Exception as error:
            _log.warning("no answer to %s: %s", request.client.host if request.client else "", _line(error))
            _log.debug("no answer", exc_info=error)
            response = PlainTextResponse("a mistake of vsetune", HTTPStatus.INTERNAL_SERVER_ERROR)
        response.headers.update(_HEADERS)
        return response

    def _checked(self, answer: Callable[[Request], Response], request: Request) -> Response:
        if self._is_private and not _is_local(request.headers.get("host", "")):
            # DNS rebinding: a foreign name that resolves to this machine
            return PlainTextResponse("this server is for this machine alone", HTTPStatus.FORBIDDEN)
        try:
            return answer(request)
        except StorageError as error:
            return PlainTextResponse(str(error), HTTPStatus.SERVICE_UNAVAILABLE)
        except OSError as error:  # a full temporary folder, ...
            return PlainTextResponse(_line(error), HTTPStatus.SERVICE_UNAVAILABLE)

    def _known(self) -> Sequence[str]:
        if self._studies:
            return self._studies
        if time.monotonic() >= self._next_look:
            self._names = [record.name for record in self._store.studies()]
            self._next_look = time.monotonic() + PAUSE_S
        return self._names

    def _start(self, _: Request) -> Response:
        known = self._known()
        if len(known) == 1:
            return RedirectResponse(_address(known[0]), HTTPStatus.FOUND)
        links = [(name, _address(name)) for name in known]
        if links:
            links.insert(0, (_SIDE_BY_SIDE, _ALL))
        why = "No study has been started yet."
        return HTMLResponse(render("index.html.j2", title="Studies", links=links, why=why, seconds=30))

    def _board(self, study: str | None) -> LiveBoard | None:
        """The board of a study, or of all side by side; None for a study that is not served."""
        if study is not None and study not in self._known():
            return None
        studies = tuple(self._known()) if study is None else (study,)
        return self._boards(replace(self._source, studies=studies, is_several=study is None))

    def _page(self, request: Request) -> Response:
        study = request.path_params.get("study")
        board = self._board(study)
        if board is None:
            return _nothing_here()
        name, address = (_SIDE_BY_SIDE, _ALL) if study is None else (study, _address(study))
        others = [(each, _address(each)) for each in self._known()]
        if study is None or len(others) > 1:
            others.insert(0, (_SIDE_BY_SIDE, _ALL))
        try:
            return HTMLResponse(board.page(f"{address}/board.json", others))
        except UsageError as error:
            return HTMLResponse(render("index.html.j2", title=name, links=(), why=str(error), seconds=2))

    def _board_json(self, request: Request) -> Response:
        board = self._board(request.path_params.get("study"))
        if board is None:
            return _nothing_here()
        try:
            update = board.update()
        except UsageError as error:
            return PlainTextResponse(str(error), HTTPStatus.SERVICE_UNAVAILABLE)
        if request.headers.get("if-none-match") == update.tag:
            return Response(status_code=HTTPStatus.NOT_MODIFIED, headers={"ETag": update.tag})
        return Response(update.content, headers={"ETag": update.tag}, media_type="application/json")

    def _artifact(self, request: Request) -> Response:
        study, trial, number, name = (request.path_params[key] for key in ("study", "trial", "number", "name"))
        if study not in self._known() or not name.startswith("gallery/") or ".." in name.split("/"):
            return PlainTextResponse("only galleries are served", HTTPStatus.NOT_FOUND)
        try:
            found = self._store.fetch_artifact(f"{study}/{trial}/{number}", name)
            content = found.read_bytes() if found is not None else None
        except StorageError:
            raise
        except UsageError as error:
            return PlainTextResponse(str(error), HTTPStatus.NOT_FOUND)
        if content is None:
            return _nothing_here()
        return Response(content, headers=_SANDBOX, media_type=mimetypes.guess_type(name)[0])


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


def _nothing_here() -> Response:
    return PlainTextResponse("nothing here", HTTPStatus.NOT_FOUND)


def _address(study: str) -> str:
    return f"/studies/{quote(study, safe='')}"


def _is_local(host: str) -> bool:
    name = (urlsplit(f"//{host}").hostname or "").lower()
    return name in ("localhost", "127.0.0.1", "::1")


def _line(error: BaseException) -> str:
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
    studies' own. hit_share: of profiles, as in `TimeProfile`. target_share: as in `building.build`."""

    studies: tuple[str, ...]
    baseline: str | None = None
    is_several: bool = False
    hit_share: float = HIT_SHARE
    target_share: float = TARGET_SHARE


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
            board = build(
                of_study, baseline=source.baseline or own[study], hit_share=source.hit_share,
                target_share=source.target_share,
            )
            return self._told(board, records)
        named = [
            StudyAttempts(study, own.get(study, ""), of_study)
            for study, of_study in zip(source.studies, attempts, strict=True)
        ]
        if not any(attempts):
            raise UsageError(messages.NO_ATTEMPTS(where="this store"))
        found = build_many(
            named, baseline=source.baseline, hit_share=source.hit_share, target_share=source.target_share,
        )
        return replace(found, boards=tuple(self._told(board, records) for board in found.boards))
