"""The page where trained networks are asked: its form, its answers, what it refuses, who can use it."""

from __future__ import annotations

import io
import threading
from contextlib import contextmanager, suppress
from http.client import HTTPConnection
from importlib import metadata
from pathlib import Path
from urllib.parse import urlencode

import headless_browser
import numpy as np
import pytest
from PIL import Image
from refusals import refused

from vsetune.board import serving_queries
from vsetune.board.gallery.heat_maps import HeatMap
from vsetune.board.gallery.retrieved import Hit, Query, Retrieved
from vsetune.board.serving import StudyServer
from vsetune.board.serving_queries import Upload, form_fields
from vsetune.data.looking.show import Picture, thumbnail
from vsetune.errors import DataError, Message, UsageError
from vsetune.records.events import AttemptStart, StudyRecord, ValidationPoint
from vsetune.records.log import LogWriter
from vsetune.records.studies import Studies, folder_of_study
from vsetune.records.writer import StudyWriter

LMH, LSEH = "first/lmh-c0-s0", "first/lseh-c0-s0"
SENTENCE = "two <b>dogs</b> & a cat"
BOUNDARY = "----x7"


def png(colour: str = "red") -> bytes:
    buffer = io.BytesIO()
    Image.new("RGB", (40, 30), colour).save(buffer, format="PNG")
    return buffer.getvalue()


def asked(trial: str, query: Query) -> Retrieved:
    """A network that prefers the images in another order for each loss."""
    if query.photograph == b"broken":
        raise DataError(Message("VSE-D999", "{file}: no picture")(file=query.name))
    if "c0" not in trial:
        raise UsageError(Message("VSE-S999", "{trial}: no such trial")(trial=trial))
    order = range(query.top) if "lmh" in trial else range(query.top - 1, -1, -1)
    heat = HeatMap("gradient", np.arange(4.0))
    picture = Picture(0, query.name, 0, [], [], None, thumbnail(Image.new("RGB", (40, 30)), 80))
    hits = [
        Hit(rank, 1 / rank, f"image{place}", [f"caption {place} <i>"], None if query.photograph else picture, heat)
        for rank, place in enumerate(order, start=1)
    ]
    return Retrieved(
        trial, "vsepp", trial.split("/")[1].split("-")[0], "scenes", query.split or "test", query, 50, hits,
        picture if query.photograph else None, notes=["Not in its vocabulary: dogs."],
    )


@pytest.fixture
def server():
    """Of a study with a finished trial of two losses."""
    log = LogWriter(folder_of_study("first"))
    writer = StudyWriter(log)
    writer.open_study(StudyRecord("first", "f", {"baseline": "lmh"}), resume=False)
    for loss, seed, m_recall in (("lmh", 0, 20.0), ("lmh", 1, 10.0), ("lseh", 0, 30.0)):
        run = writer.start_attempt(AttemptStart(
            study="first", trial=f"{loss}-c0-s{seed}", cell=f"vsepp.{loss}", network="vsepp", loss=loss, number=1,
            seed=seed, phase="search", configuration={}, resolved={"data": {"path": "data/scenes"}},
        ))
        writer.record_points(run, [ValidationPoint(1, 0.5, 1, m_recall, 1.0)])
        writer.finish_attempt(run, "finished", summary={}, error=None)
    with serving(Studies()) as server:
        yield server
    log.close()


@contextmanager
def serving(store):
    with StudyServer(store, [], host="127.0.0.1", port=0, ask=asked) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


def get(server, **fields: str) -> tuple[int, str]:
    return _asked(server, "GET", f"/search?{urlencode(fields)}")


def post(server, fields: dict[str, bytes], *, name: str = "photo.png", size: str | None = None) -> tuple[int, str]:
    return _asked(server, "POST", "/search", form(fields, name), **({} if size is None else {"Content-Length": size}))


def _asked(server, method: str, path: str, body: bytes | None = None, **headers: str) -> tuple[int, str]:
    connection = HTTPConnection("127.0.0.1", server.port, timeout=20)
    kind = {"Content-Type": f"multipart/form-data; boundary={BOUNDARY}"} if body else {}
    connection.request(method, path, body=body, headers=kind | headers)
    answer = connection.getresponse()
    content = answer.read().decode()
    connection.close()
    return answer.status, content


def form(fields: dict[str, bytes], name: str) -> bytes:
    """As browsers send it; `photograph` is a file."""
    parts = [
        f'--{BOUNDARY}\r\nContent-Disposition: form-data; name="{key}"'.encode()
        + (f'; filename="{name}"\r\nContent-Type: image/png'.encode() if key == "photograph" else b"")
        + b"\r\n\r\n" + content + b"\r\n" for key, content in fields.items()
    ]
    return b"".join(parts) + f"--{BOUNDARY}--\r\n".encode()


def test_the_form_offers_the_best_trial_of_each_cell(server) -> None:
    status, page = get(server)
    assert status == 200
    assert page.index(f'value="{LSEH}" selected') < page.index(f'value="{LMH}"')
    assert "lmh-c0-s1" not in page
    assert "lseh, M-Recall 30.0 %" in page
    assert "form-action 'self'" in page
    assert "<script" not in page


def test_a_sentence_is_answered_by_two_trials_side_by_side(server) -> None:
    status, page = get(server, trial=LMH, against=LSEH, sentence=SENTENCE, top="3", split="validation")
    assert status == 200
    assert page.count('<section aria-labelledby="answer-') == 2
    assert page.count('class="heat"') == 6
    assert page.count("in the other: rank 3") == page.count("in the other: rank 1") == 2
    assert "two &lt;b&gt;dogs&lt;/b&gt; &amp; a cat" in page
    assert "<b>dogs" not in page
    assert "caption 0 &lt;i&gt;" in page
    assert "split validation" in page
    assert "Not in its vocabulary: dogs." in page


def test_a_photograph_is_answered_with_captions_and_heat_over_itself(server) -> None:
    fields = {"trial": LMH.encode(), "against": b"", "top": b"4", "sentence": b"", "photograph": png()}
    status, page = post(server, fields, name="my dog.png")
    assert status == 200
    assert "<h1>my dog.png</h1>" in page
    assert page.count('class="heat"') == 4
    assert page.count("data:image/jpeg") == 5


def test_a_trial_that_is_not_listed_can_be_named(server) -> None:
    status, page = get(server, trial="first/lmh-c0-s1", sentence="a cat")
    assert status == 200
    assert 'value="first/lmh-c0-s1" selected' in page


def test_what_cannot_be_asked_is_said_on_the_page_and_the_server_goes_on(server, monkeypatch) -> None:
    for status, page, said in (
        (*get(server, trial="first/other", sentence="a cat"), "first/other: no such trial"),
        (*get(server, trial="../secret/c0", sentence="a cat"), "study ..: not in this store"),
        (*get(server, trial=LMH, sentence="a cat", top="0"), "top: got 0, need 1 to 50"),
        (*post(server, {"photograph": b"broken"}), "photo.png: no picture"),
        (*post(server, {"photograph": b""}), "no photograph was chosen"),
        (*_asked(server, "POST", "/search"), "got no form"),
    ):
        assert status == 400
        assert 'role="alert"' in page
        assert said in page
    monkeypatch.setattr(serving_queries, "MOST_MEGABYTES", 0)
    assert post(server, {"photograph": png()})[0] == 413
    assert _asked(server, "POST", "/search", None, **{"Transfer-Encoding": "chunked"})[0] in (411, 400)
    assert _asked(server, "GET", "/search", Host="evil.example")[0] == 403
    assert get(server)[0] == 200


def test_before_any_trial_has_finished_the_page_says_so() -> None:
    with serving(Studies()) as server:
        status, page = get(server, sentence="a cat")
    assert status == 200
    assert "No trial has finished yet." in page


def test_fields_of_a_form_are_read_as_they_were_sent() -> None:
    content = bytes(range(256)) + b"\r\n--" + b"\r\n\r\n" + b"\r"
    sent = form({"sentence": "zwei Hünde".encode(), "photograph": content}, "ü.png")
    fields = form_fields(f'multipart/form-data; boundary="{BOUNDARY}"', sent)
    assert fields["sentence"] == "zwei Hünde"
    assert isinstance(fields["photograph"], Upload)
    assert fields["photograph"].content == content
    for kind, body in (("application/json", b"{}"), ("", b""), ("multipart/form-data", b"")):
        with refused("VSE-B021", by=UsageError):
            form_fields(kind, body)
    assert form_fields(f"multipart/form-data; boundary={BOUNDARY}", b"nothing of the kind") == {}


@pytest.mark.slow
@pytest.mark.skipif(headless_browser.PROGRAM is None, reason="no Chromium on this machine")
@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", [1280, 360])
def test_it_is_used_by_keyboard_heat_can_be_hidden_and_axe_finds_nothing(browser, server, dark, width) -> None:
    tab = browser.tab(width=width, dark=dark)
    address = f"http://127.0.0.1:{server.port}/search"
    tab.open(f"{address}?{urlencode({'trial': LMH, 'against': LSEH})}", until="true")
    assert tab.run("document.activeElement.id") == "sentence"
    tab.run("document.activeElement.value = 'a cat'")
    tab.press("Enter")
    for _ in range(50):
        with suppress(headless_browser.BrowserError):  # asked while the next page came
            tab.wait("document.querySelectorAll('.answers section').length === 2")
            break
    shown = "getComputedStyle(document.querySelector('.heat')).display"
    assert tab.run(shown) != "none"
    tab.run("document.getElementById('heat').focus()")
    tab.press(" ")
    assert tab.run(shown) == "none"
    assert tab.run("document.documentElement.scrollWidth") == width
    files = metadata.files("axe-playwright-python") or []
    script = Path(next(file for file in files if file.name == "axe.min.js").locate()).read_text(encoding="utf-8")
    tab.run(script + "; true")
    found = tab.run("axe.run(document).then(({violations}) => violations.map(({id, nodes}) => "
                    "[id, nodes.length, nodes[0].html.slice(0, 200), nodes[0].failureSummary]))")
    assert found == []
    assert all(each.startswith((address, "data:", "about:")) for each in tab.requested)
