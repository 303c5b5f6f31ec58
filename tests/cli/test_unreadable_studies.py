"""A study that cannot be read is left out of what several studies are read for, by name and with its mend."""

from __future__ import annotations

import http.client
import json
import threading
import zlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from studied import POINTS, RECORD, start

import vsetune as library
from vsetune.board.serving import StudyServer
from vsetune.records.events import StudyRecord
from vsetune.records.log import LOG_FILE
from vsetune.records.studies import Studies
from vsetune.records.writer import StudyWriter


def flipped(line: int) -> Callable[[bytes], bytes]:
    """Another bit in the middle of a line."""

    def spoil(content: bytes) -> bytes:
        lines = content.splitlines(keepends=True)
        place = sum(map(len, lines[:line])) + len(lines[line]) // 2
        return content[:place] + bytes([content[place] ^ 4]) + content[place + 1:]

    return spoil


def added(kind: str, head: str) -> Callable[[bytes], bytes]:
    """One line more, with its checksum."""

    def spoil(content: bytes) -> bytes:
        line = f"{content.count(10)} {kind} {head}".encode()
        return content + b"%08x %s\n" % (zlib.crc32(line), line)

    return spoil


DAMAGE: dict[str, tuple[Callable[[bytes], bytes], str]] = {
    "a bit in its first line": (flipped(0), "tracking import"),
    "a bit in the line of an attempt": (flipped(1), "tracking import"),
    "an event of a newer version": (added("promoted", "{}"), "install that version"),
    "a log of a newer version": (
        added("opened", json.dumps({"record": {**vars(RECORD), "name": "spoiled"}, "at": 9, "format": 9})),
        "install the version",
    ),
    "a line without a sense": (added("validated", "[1"), "tracking import"),
    "a line nested without end": (added("drawn", "[" * 100_000), "tracking import"),
    "half of it zeros": (lambda content: content[: len(content) // 2] + bytes(len(content) // 2), "tracking import"),
    "no file that a disk delivers": (lambda _: b"", "check the disk"),
}


@pytest.fixture(params=DAMAGE, ids=str)
def spoiled(request: pytest.FixtureRequest, home: Path, opened: Callable[[StudyRecord], StudyWriter]) -> str:
    """A home with a sound study and a damaged one; what the warning on the latter advises."""
    for name in ("sound", "spoiled"):
        config = {**RECORD.config, "study": name, "networks": [{"name": "vsepp"}], "losses": [{"name": "lmh"}]}
        writer = opened(replace(RECORD, name=name, config=config))
        attempt = writer.start_attempt(replace(start(study=name), configuration={"depth": 3, "loss.margin": [1]}))
        writer.record_points(attempt, POINTS)
        writer.finish_attempt(attempt, "finished", summary={"best_m_recall": 40.0}, error=None)
        writer.finish_study("finished")
    log = home / "runs" / "spoiled" / LOG_FILE
    spoil, mend = DAMAGE[request.param]
    log.write_bytes(content := spoil(log.read_bytes()))
    if not content:
        log.unlink()
        log.symlink_to("/proc/self/mem")  # its first byte is an input/output error
    return mend


def named(text: str, mend: str) -> bool:
    return any("spoiled" in line and mend in line for line in text.splitlines())


@pytest.mark.parametrize("words", ["study list", "leaderboard show --all", "leaderboard export --all --csv b.csv"])
def test_commands_on_all_studies_show_the_sound_ones_and_name_the_other(
    vsetune, spoiled: str, words: str, caplog: pytest.LogCaptureFixture, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    said = vsetune(*words.split())
    assert said.code == 0, said
    assert "sound" in said.out or Path("b.csv").read_text()
    assert named(caplog.text, spoiled), caplog.text


def test_the_doctor_finds_it_and_examines_the_others(vsetune, spoiled: str) -> None:
    said = vsetune("tracking", "doctor")
    assert (said.code, named(said.out, spoiled)) == (1, True), said
    assert "2 studies examined" in said.err


def test_it_alone_is_one_line_or_shown_without_its_damaged_lines(vsetune, spoiled: str, caplog) -> None:
    said = vsetune("study", "show", "spoiled")
    assert said.code in (0, 2)
    assert named(said.err + caplog.text, spoiled), said


def test_python_lists_the_sound_ones(spoiled: str, caplog: pytest.LogCaptureFixture) -> None:
    assert "sound" in library.studies()
    assert named(caplog.text, spoiled)


def test_pages_show_the_sound_ones_and_the_server_names_the_other_once(
    spoiled: str, caplog: pytest.LogCaptureFixture
) -> None:
    with StudyServer(Studies(), [], host="127.0.0.1", port=0, ask=lambda *_: None) as server:  # type: ignore[arg-type]
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            found = {}
            for address in ("/", "/all", "/all", "/studies/sound"):
                asked = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
                asked.request("GET", address)
                answer = asked.getresponse()
                found[address] = answer.status, answer.read().decode()
                asked.close()
        finally:
            server.shutdown()
            thread.join()
    assert [status for status, _ in found.values()] == [200] * 3
    assert named(caplog.text, spoiled)
    if "left out: study spoiled" in caplog.text:
        assert caplog.text.count("left out: study spoiled") == 1
        assert all("spoiled" in found[address][1] for address in ("/", "/all"))
