"""HTTP server for boards of running studies, galleries, and queries to trained networks. It changes nothing."""

from __future__ import annotations

import errno
import logging
import mimetypes
import socket
import time
from asyncio import Transport, get_running_loop
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import lru_cache, partial
from http import HTTPStatus
from ipaddress import ip_address
from typing import Self
from urllib.parse import quote, urlsplit

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, Response
from starlette.routing import Route
from uvicorn import Config, Server
from uvicorn.protocols.http.h11_impl import H11Protocol

from vsetune.board import live_board, serving_queries
from vsetune.board.live_board import LiveBoard, Source, Told
from vsetune.board.page_templates import render
from vsetune.board.serving_queries import Ask, Queries
from vsetune.errors import Problem, StorageError, UsageError
from vsetune.metrics.efficiency import TARGET_SHARE
from vsetune.records.studies import Studies

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
_ASK = "ask a trained model with a sentence or a photograph"
_SANDBOX = {"Content-Security-Policy": "sandbox allow-scripts"}
"""Header for files of runs: they are displayed with scripts, but cannot read the boards on the same server."""


class StudyServer:
    """studies: the studies to serve; empty for all in the store, now and later. host, port: to listen on; port 0: any
    free port. ask: answers queries to trials. told: as in `LiveBoard`. target_share: as in `Source`. Raises
    UsageError, in one line, if the address cannot be used.

    One thread reads the store and makes boards for all clients, in the order of the requests; another one asks
    networks, so that boards do not wait for them.
    """

    def __init__(
        self, store: Studies, studies: Sequence[str], *, host: str, port: int, ask: Ask, baseline: str | None = None,
        mlflow_url: str | None = None, told: Told = lambda board, _: board, target_share: float = TARGET_SHARE,
    ) -> None:
        self._store, self._studies = store, studies
        self._source = Source((), baseline, target_share=target_share)
        self._names, self._next_look = list[str](), float("-inf")
        self._boards = lru_cache(KEPT_BOARDS)(partial(LiveBoard, store, mlflow_url=mlflow_url, told=told))
        try:
            self._socket = socket.create_server((host, port))
        except (OSError, OverflowError) as error:
            raise UsageError(_why_silent(host, port, error)) from error
        self._address, self.port = self._socket.getsockname()
        self._is_private = ip_address(self._address).is_loopback
        self._maker = ThreadPoolExecutor(1, thread_name_prefix="boards")
        self._asker = ThreadPoolExecutor(1, thread_name_prefix="queries")
        self._queries = Queries(store, self._known, ask)
        answers = {
            "/": self._start, _ALL: self._page, f"{_ALL}/board.json": self._board_json,
            "/studies/{study}": self._page, "/studies/{study}/board.json": self._board_json,
            "/studies/{study}/galleries": self._galleries,
            "/studies/{study}/artifacts/{trial}/{number}/{name:path}": self._artifact,
        }
        app = Starlette(routes=[
            *(Route(path, partial(self._respond, self._maker, answer)) for path, answer in answers.items()),
            Route("/search", self._search, methods=["GET", "POST"]),
        ])
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
        for executor in (self._maker, self._asker):
            executor.shutdown(cancel_futures=True)
        self._socket.close()

    async def _search(self, request: Request) -> Response:
        """A photograph is refused before it is read, and is read here: threads cannot."""
        refused = serving_queries.refusal(request)
        if refused is not None:
            refused.headers.update(_HEADERS)
            return refused
        answer = partial(self._queries.answer, body=await request.body())
        return await self._respond(self._asker, answer, request)

    async def _respond(
        self, executor: ThreadPoolExecutor, answer: Callable[[Request], Response], request: Request
    ) -> Response:
        """The answer to a request. An unexpected error is logged in one line and answered with 500; the server
        continues."""
        try:
            response = await get_running_loop().run_in_executor(executor, self._checked, answer, request)
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
            self._next_look = time.monotonic() + live_board.PAUSE_S
        return self._names

    def _start(self, _: Request) -> Response:
        known = self._known()
        links = [(_ASK, "/search"), (_SIDE_BY_SIDE, _ALL)] if known else []
        studies = [(name, _address(name), f"{_address(name)}/galleries") for name in known]
        why = "No study has been started yet."
        return HTMLResponse(
            render("index.html.j2", title="Studies", links=links, studies=studies, why=why, seconds=30,
                   left_out=list(self._store.left_out.values()))
        )

    def _galleries(self, request: Request) -> Response:
        study = request.path_params["study"]
        board = self._board(study)
        if board is None:
            return _nothing_here()
        title, why = f"Galleries of {study}", f"None yet: vsetune trial gallery {study}/TRIAL makes one."
        try:
            found = board.galleries()
        except UsageError as error:
            found, why = {}, str(error)
        links = [
            (f"{run.removeprefix(f'{study}/')}, {name.removeprefix('gallery/')}",
             f"{_address(study)}/artifacts/{quote(run.removeprefix(f'{study}/'))}/{quote(name)}")
            for run, names in sorted(found.items()) for name in names
        ]
        return HTMLResponse(render("index.html.j2", title=title, links=links, studies=(), why=why, seconds=30))

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
            return HTMLResponse(render("index.html.j2", title=name, links=(), studies=(), why=str(error), seconds=2))

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
        return Problem.of(
            "VSE-B004", "serve: port {port} of {host} is taken; choose another with --port, or --port 0 for any that "
            "is free", host=host, port=port,
        )
    if number == errno.EACCES:
        return Problem.of(
            "VSE-B005", "serve: port {port} of {host} is reserved for administrators; choose one above 1023 with "
            "--port", host=host, port=port,
        )
    return Problem.of(
        "VSE-B006", "serve: cannot listen on {host}, {why}; need an address of this machine (--host) and a port from 0 "
        "to 65535 (--port)", host=host, why=getattr(error, "strerror", None) or error,
    )
