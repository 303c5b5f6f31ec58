"""The page of the server where trained networks are asked: a sentence or a photograph, one or two trials."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from email.parser import BytesHeaderParser
from http import HTTPStatus
from typing import Any

from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, Response

from vsetune.board.gallery.retrieval_page import Form, ListedTrial, to_html
from vsetune.board.gallery.retrieved import Query, Retrieved
from vsetune.errors import Problem, UsageError, VsetuneError
from vsetune.metrics.curves import best_of_curve
from vsetune.records.state import Attempt
from vsetune.records.studies import Studies

MOST_MEGABYTES = 20
"""Largest request with a photograph."""
_MOST_TOP = 50
_LONGEST = 1000
"""Characters of a field of the form."""

Ask = Callable[[str, Query], Retrieved]
"""The answer of a trial (STUDY/TRIAL) to a query; VsetuneError, in one line, where there is none."""


def refusal(request: Request) -> Response | None:
    """The answer to a request whose body is too large, or of unknown size; None for others."""
    if request.method != "POST":
        return None
    size = request.headers.get("content-length", "")
    if not size.isdigit():
        return PlainTextResponse("need a Content-Length", HTTPStatus.LENGTH_REQUIRED)
    if int(size) > MOST_MEGABYTES << 20:
        why = Problem.of(
            "VSE-B020", "photograph: got {got} MB, need at most {most} MB", got=f"{int(size) / 2**20:.0f}",
            most=MOST_MEGABYTES,
        )
        return PlainTextResponse(why, HTTPStatus.REQUEST_ENTITY_TOO_LARGE)
    return None


class Queries:
    """known: the names of the studies that are served; trials of others are not asked."""

    def __init__(self, store: Studies, known: Callable[[], Sequence[str]], ask: Ask) -> None:
        self._store, self._known, self._ask = store, known, ask

    def answer(self, request: Request, *, body: bytes) -> Response:
        """The page: the form, and the answers to what it was filled with."""
        listed = [trial for study in self._known() for trial in best_trials(self._store.attempts(study))]
        fields: Mapping[str, Any] = request.query_params
        try:
            if request.method == "POST":
                fields = form_fields(request.headers.get("content-type", ""), body)
            form = _form(fields, listed)
        except UsageError as error:
            form = _form({}, listed)
            return HTMLResponse(to_html([], form=form, problem=str(error)), HTTPStatus.BAD_REQUEST)
        if not form.trials:
            return HTMLResponse(to_html([], form=form, problem="No trial has finished yet."))
        if request.method == "GET" and not form.query.sentence:
            return HTMLResponse(to_html([], form=form))
        try:
            answers = [self._asked(name, form.query) for name in (form.trial, form.against) if name]
        except VsetuneError as error:
            return HTMLResponse(to_html([], form=form, problem=str(error)), HTTPStatus.BAD_REQUEST)
        return HTMLResponse(to_html(answers, form=form))

    def _asked(self, trial: str, query: Query) -> Retrieved:
        study = trial.partition("/")[0]
        if study not in self._known():
            raise UsageError("VSE-B003", "study {study}: not in this store any more", study=study)
        return self._ask(trial, query)


def best_trials(attempts: Sequence[Attempt]) -> list[ListedTrial]:
    """Of each cell the finished trial with the highest M-Recall, best first."""
    best: dict[str, tuple[float, ListedTrial]] = {}
    for attempt in attempts:
        if attempt.status != "finished" or not attempt.curve:
            continue
        start, m_recall = attempt.start, best_of_curve(attempt.curve).m_recall
        if start.cell not in best or m_recall > best[start.cell][0]:
            about = f"{start.loss}, M-Recall {m_recall:.1f} %"
            best[start.cell] = m_recall, ListedTrial(f"{start.study}/{start.trial}", start.study, about)
    return [trial for _, trial in sorted(best.values(), key=lambda each: -each[0])]


@dataclass(frozen=True)
class Upload:
    """A file of a form."""

    name: str
    content: bytes


def form_fields(content_type: str, body: bytes) -> dict[str, str | Upload]:
    """The fields of a `multipart/form-data` request, as browsers send it. UsageError for another body."""
    boundary = _headers(b"Content-Type: " + content_type.encode("latin-1")).get_boundary()
    if not boundary:
        raise UsageError("VSE-B021", "search: got no form, need multipart/form-data with a photograph")
    fields: dict[str, str | Upload] = {}
    for part in (b"\r\n" + body).split(b"\r\n--" + boundary.encode())[1:]:
        head, blank, content = part.partition(b"\r\n\r\n")
        named = _headers(head.strip())
        name, file = (named.get_param(key, header="content-disposition") for key in ("name", "filename"))
        if blank and isinstance(name, str):
            fields[name] = content.decode(errors="replace") if file is None else Upload(str(file), content)
    return fields


def _headers(text: bytes) -> Any:
    return BytesHeaderParser().parsebytes(text + b"\r\n\r\n")


def _form(fields: Mapping[str, Any], listed: Sequence[ListedTrial]) -> Form:
    """The values of the fields, with defaults for those that are missing. UsageError for values that cannot be."""
    texts = {name: str(fields.get(name, "")).strip()[:_LONGEST] for name in ("trial", "against", "sentence", "split")}
    top = fields.get("top") or "10"
    if not str(top).isdigit() or not 1 <= int(top) <= _MOST_TOP:
        raise UsageError("VSE-B023", "search: top: got {got}, need 1 to {most}", got=top, most=_MOST_TOP)
    file = fields.get("photograph")
    photograph = file.content if isinstance(file, Upload) else None
    name = file.name if isinstance(file, Upload) else ""
    if isinstance(file, Upload) and not file.content:
        raise UsageError("VSE-B022", "search: no photograph was chosen; choose or drop one")
    query = Query(texts["sentence"], photograph, name, texts["split"], int(top))
    first = listed[0].name if listed else ""
    return Form(listed, texts["trial"] or first, texts["against"], query, MOST_MEGABYTES)
