"""Boards over HTTP: what is asked for again, what is new, and what is not given away."""

from __future__ import annotations

import gc
import json
import re
import socket
import struct
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from http.client import HTTPConnection
from pathlib import Path

import headless_browser
import pytest
from refusals import refused

from vsetune.board import live_board, serving
from vsetune.board.page import to_html
from vsetune.board.serving import StudyServer
from vsetune.errors import StorageError, UsageError
from vsetune.records.events import AttemptStart, StudyRecord, ValidationPoint
from vsetune.records.log import LogWriter
from vsetune.records.studies import Studies, folder_of_study
from vsetune.records.writer import StudyWriter
from vsetune.study.recorded_boards import recorded_board

NAME = "first"
PLACE = f"/studies/{NAME}"


class RunningStudy:
    """A study that is being recorded, of two losses with a seed each. store: of the home that is served."""

    def __init__(self) -> None:
        self.store, self.runs, self._logs = Studies(), {}, []
        self.writer = self.begin(NAME)

    def begin(self, name: str) -> StudyWriter:
        """Another study of the home."""
        self._logs.append(LogWriter(folder_of_study(name)))
        writer = StudyWriter(self._logs[-1])
        writer.open_study(StudyRecord(name, "f", {"baseline": "lmh"}), resume=False)
        return writer

    def start(self, loss: str, m_recall: float, *, study: str = NAME, writer: StudyWriter | None = None) -> None:
        """A trial with one validation."""
        self.runs[loss] = (writer or self.writer).start_attempt(AttemptStart(
            study=study, trial=f"{loss}-c0-s0", cell=f"vsepp.{loss}", network="vsepp", loss=loss, number=1, seed=0,
            phase="search", configuration={}, resolved={"data": {"path": "data/scenes"}},
        ))
        self.validate(loss, 1, m_recall, writer=writer)

    def validate(self, loss: str, step: int, m_recall: float, *, writer: StudyWriter | None = None) -> None:
        recalls = {"i2t_r1": m_recall / 2, "t2i_r1": m_recall / 4}
        point = ValidationPoint(step, step / 2, step, m_recall, 1.0 * step, recalls)
        (writer or self.writer).record_points(self.runs[loss], [point])

    def close(self) -> None:
        for log in self._logs:
            log.close()


@pytest.fixture
def study():
    study = RunningStudy()
    study.start("lmh", 20.0)
    study.start("lseh", 30.0)
    yield study
    study.close()


def nothing(trial, query):
    raise AssertionError("no trial is asked here")


@contextmanager
def running(study, **options):
    with StudyServer(study.store, [], host="127.0.0.1", port=0, ask=nothing, **options) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


@pytest.fixture
def server(study, monkeypatch):
    monkeypatch.setattr(live_board, "PAUSE_S", 0.0)
    monkeypatch.setattr(live_board, "SHARE", 0.0)
    with running(study) as server:
        yield server


def get(server, path, **headers):
    connection = HTTPConnection("127.0.0.1", server.port, timeout=20)
    connection.request("GET", path, headers=headers)
    answer = connection.getresponse()
    content = answer.read()
    connection.close()
    return answer, content


def test_the_first_page_lists_studies_galleries_and_where_to_ask(server, study):
    study.begin("<b>")
    answer, content = get(server, "/")
    assert answer.status == 200
    for link in (
        b'<a href="/search">', b'<a href="/studies/%3Cb%3E">&lt;b&gt;</a>', b'<a href="/studies/first/galleries">',
    ):
        assert link in content
    assert b"has no attempts yet" in get(server, "/studies/%3Cb%3E")[1]
    assert b"has no attempts yet" in get(server, "/studies/%3Cb%3E/galleries")[1]


@pytest.mark.parametrize("place", [PLACE, "/all"])
def test_a_served_board_has_the_columns_of_an_exported_one(server, study, place):
    other = study.begin("second")
    study.start("lmh", 20.0, study="second", writer=other)
    _, page = get(server, place)
    exported = to_html(recorded_board(study.store, NAME))
    columns = re.findall(r'data-column="([^"]+)"', exported)
    assert {"i2t_r1", "t2i_r1"} <= set(columns)
    assert set(columns) <= set(re.findall(r'data-column="([^"]+)"', page.decode()))
    assert ">15.0</td>" in page.decode()


def test_studies_stand_side_by_side_by_data_set(server, study):
    study.start("top_f", 33.0, study="second", writer=study.begin("second"))
    assert b'<a href="/all">all studies side by side, by data set</a>' in get(server, "/")[1]
    assert b"<h1>first + second</h1>" in get(server, "/all")[1]
    first, content = get(server, "/all/board.json")
    update = json.loads(content)["data"]
    assert [{row["loss"] for row in each["board"]["rows"]} for each in update["boards"]] == [{"lmh", "lseh", "top_f"}]
    assert update["runs"]["studies"] == [NAME, "second"]
    tag = {"If-None-Match": first.headers["ETag"]}
    assert get(server, "/all/board.json", **tag)[0].status == 304
    study.begin("third")
    answer, content = get(server, "/all/board.json", **tag)
    assert answer.status == 200
    assert "third: has no attempts yet" in json.loads(content)["parts"]["across"]


def test_of_a_home_without_any_attempt_the_page_waits():
    study = RunningStudy()
    study.close()
    with running(study) as server:
        assert b"this store has no attempts yet" in get(server, "/all")[1]
        assert get(server, "/all/board.json")[0].status == 503


def test_a_board_is_sent_again_only_when_it_has_changed(server, study):
    assert get(server, PLACE)[0].status == 200
    first, _ = get(server, f"{PLACE}/board.json")
    again, content = get(server, f"{PLACE}/board.json", **{"If-None-Match": first.headers["ETag"]})
    assert (again.status, content) == (304, b"")
    study.validate("lseh", 2, 44.0)
    new, content = get(server, f"{PLACE}/board.json", **{"If-None-Match": first.headers["ETag"]})
    assert new.status == 200
    assert new.headers["ETag"] != first.headers["ETag"]
    update = json.loads(content)
    (shown,) = update["data"]["boards"]
    assert {row["loss"]: row["best_m_recall"] for row in shown["board"]["rows"]} == {"lmh": 20, "lseh": 44}
    assert ">44.0</td>" in update["parts"]["table 0"]


def test_a_browser_that_hangs_up_is_no_news(server, capfd):
    for rest in (b"\r\n", b""):
        with socket.create_connection(("127.0.0.1", server.port)) as browser:
            browser.sendall(f"GET {PLACE} HTTP/1.1\r\nHost: localhost\r\n".encode() + rest)
            browser.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # closed by a reset
    assert get(server, PLACE)[0].status == 200
    assert capfd.readouterr().err == ""


def test_connections_that_ask_nothing_take_no_thread_and_are_closed(study, monkeypatch):
    monkeypatch.setattr(serving, "ASKS_WITHIN_S", 0.5)
    with running(study) as server:
        assert get(server, PLACE)[0].status == 200
        threads = threading.active_count()
        silent = [socket.create_connection(("127.0.0.1", server.port), timeout=20) for _ in range(60)]
        for each in silent[::2]:
            each.sendall(b"GET / HTTP/1.1\r\nHost: local")
        assert get(server, PLACE)[0].status == 200
        assert threading.active_count() <= threads
        assert [each.recv(1) for each in silent] == [b""] * 60
        for each in silent:
            each.close()


def test_a_connection_too_many_and_a_name_pointed_here_are_refused_and_the_server_goes_on(study, monkeypatch):
    monkeypatch.setattr(serving, "MOST_CONNECTIONS", 5)
    with running(study) as server:
        many = [socket.create_connection(("127.0.0.1", server.port), timeout=20) for _ in range(5)]
        assert get(server, PLACE)[0].status == 503
        for each in many:
            each.close()
        assert get(server, PLACE)[0].status == 200
        answer, content = get(server, PLACE, Host="evil.example:80")
        assert (answer.status, content) == (403, b"this server is for this machine alone")


def test_a_page_that_many_ask_for_at_once_is_made_once(server, monkeypatch):
    made = []
    monkeypatch.setattr(live_board, "to_html", lambda *words, **more: made.append(1) or to_html(*words, **more))
    with ThreadPoolExecutor(10) as browsers:
        answers = [*browsers.map(lambda _: get(server, PLACE), range(20))]
    assert {answer.status for answer, _ in answers} == {200}
    assert len({content for _, content in answers}) == 1
    assert len(made) == 1


def test_boards_that_were_asked_for_long_ago_are_not_kept(study, monkeypatch):
    monkeypatch.setattr(serving, "KEPT_BOARDS", 3)
    gc.collect()
    before = {id(each) for each in gc.get_objects() if type(each) is live_board.LiveBoard}
    with running(study) as server:
        for number in range(6):
            study.begin(f"study{number}")
            assert get(server, "/all/board.json")[0].status == 200
        gc.collect()
        kept = {id(each) for each in gc.get_objects() if type(each) is live_board.LiveBoard} - before
        assert 1 <= len(kept) <= serving.KEPT_BOARDS


def test_a_store_that_is_away_and_a_mistake_are_one_line_and_the_server_goes_on(
    server, study, monkeypatch, capfd, caplog
):
    def away():
        raise StorageError("home x: away")

    for fails, paths, status in (
        (away, ("/", "/all", "/all/board.json", PLACE), 503), (lambda: 1 / 0, ("/",), 500),
        (Path("/nowhere/at/all").read_bytes, ("/",), 503),
    ):
        with monkeypatch.context() as broken:
            broken.setattr(study.store, "studies", fails)
            assert [get(server, path)[0].status for path in paths] == [status] * len(paths)
    assert get(server, PLACE)[0].status == 200
    assert [record.getMessage() for record in caplog.records if record.levelname == "WARNING"] == [
        "no answer to 127.0.0.1: ZeroDivisionError: division by zero"
    ]
    assert capfd.readouterr().err == ""


def test_served_boards_have_the_stated_share_of_the_target(study):
    for loss in ("lmh", "lseh"):
        for step, m_recall in ((2, 31.0), (3, 25.0)):
            study.validate(loss, step, m_recall)
        study.writer.finish_attempt(study.runs[loss], "finished", summary={}, error=None)
    with running(study, target_share=0.9) as server:
        for path in (PLACE, "/all"):
            (shown,) = json.loads(get(server, f"{path}/board.json")[1])["data"]["boards"]
            assert shown["board"]["rows"][1]["comparison"]["epochs"]["share"] == 0.9


def test_galleries_are_served_in_a_sandbox_and_no_other_file(server, study, tmp_path):
    page, secret = tmp_path / "test.html", folder_of_study(NAME) / "trials" / "lmh-c0-s0" / "best.safetensors"
    secret.parent.mkdir(parents=True)
    for file in (page, secret):
        file.write_text(f"<p>{file.name}</p>")
    run = study.runs["lmh"]
    study.store.keep_artifacts(run, [page], folder="gallery")
    name = secret.relative_to(folder_of_study(NAME)).as_posix()
    study.writer.finish_attempt(run, "finished", summary={}, files=[name], error=None)
    place = f"{PLACE}/artifacts/{run.removeprefix(f'{NAME}/')}"
    answer, content = get(server, f"{place}/gallery/test.html")
    assert (answer.status, content) == (200, b"<p>test.html</p>")
    assert answer.headers["Content-Security-Policy"] == "sandbox allow-scripts"
    for path in ("best.safetensors", "gallery/../best.safetensors", "gallery/%2e%2e/best.safetensors", "gallery/none"):
        assert get(server, f"{place}/{path}")[0].status == 404
    assert f'<a href="{place}/gallery/test.html">'.encode() in get(server, f"{PLACE}/galleries")[1]
    assert get(server, f"{PLACE}/artifacts/unknown/1/gallery/test.html")[0].status == 404
    assert get(server, "/studies/unknown")[0].status == 404


def test_a_port_that_is_taken_is_told_in_one_line(study):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with refused("VSE-B004", by=UsageError, host="127.0.0.1", port=port):
            StudyServer(study.store, [], host="127.0.0.1", port=port, ask=nothing)


@pytest.mark.slow
@pytest.mark.skipif(headless_browser.PROGRAM is None, reason="no Chromium on this machine")
def test_a_page_follows_its_study_and_keeps_sort_filter_and_focus(server, study, tmp_path):
    study.start("lsh", 25.0)
    order = "board.shown().map((row) => row.dataset.key.split('\\t')[2]).join()"
    with headless_browser.headless_browser(tmp_path) as browser:
        tab = browser.tab()
        tab.open(f"http://127.0.0.1:{server.port}{PLACE}")
        tab.run("document.querySelector('[data-filter=loss][data-value=lseh]').click();"
                "document.querySelector('[data-filter=loss][data-value=lsh]').click();"
                "page.sorts[''] = {column: 'best_m_recall', direction: 'descending'}; page.changed();"
                "document.querySelector('th[data-column=best_m_recall] button').focus()")
        assert tab.run(order) == "lseh,lsh"
        study.validate("lsh", 2, 50.0)
        tab.wait(f"{order} === 'lsh,lseh'")
        assert tab.run("document.activeElement.closest('th').dataset.column") == "best_m_recall"
        assert tab.run("document.querySelector('[data-value=lsh]').getAttribute('aria-pressed')") == "true"
        study.start("info_nce", 10.0)
        tab.wait("document.querySelector('[data-value=info_nce]') !== null")
        assert tab.run(order) == "lsh,lseh"
        assert tab.problems == []
