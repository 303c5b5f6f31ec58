"""Exports of a small study, to be spoiled as somebody else might have made them: `from foreign_exports import export`.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from vsetune.board.building import build
from vsetune.board.export import curves_to_csv, to_csv
from vsetune.home.hashes import sha256_of_file
from vsetune.records.events import AttemptStart, Drawn, StudyRecord, ValidationPoint
from vsetune.records.log import LOG_FILE, LogWriter
from vsetune.records.moved_study import FILES, HEADER, export_study
from vsetune.records.studies import Studies, folder_of_study
from vsetune.records.writer import StudyWriter

CONFIG = {
    "study": "nightly", "networks": [{"name": "vsepp"}], "losses": [{"name": "lmh"}], "baseline": "lmh",
    "tracking": {"uri": "http://sender:5000", "series": "all"},
}
RECORD = StudyRecord("nightly", "f00d", CONFIG, {"vsetune.plugin.loss.own": "ab" * 32})
WEIGHTS, PAGE = "trials/vsepp.lmh-c000-s0/best.safetensors", "kept/vsepp.lmh-c000-s0/gallery/page.html"


def trial(seed: int) -> str:
    return f"vsepp.lmh-c000-s{seed}"


def begin(writer: StudyWriter, seed: int) -> str:
    """An attempt that has begun; its name."""
    return writer.start_attempt(AttemptStart(
        "nightly", trial(seed), "vsepp.lmh", "vsepp", "lmh", 1, seed, "search", {"loss.margin": 0.2},
        {"network": {"name": "vsepp"}, "plugins": {}}, {"device": "cpu"}, {"images": 400},
    ))


def record(folder: Path) -> None:
    """The study `nightly`: two finished attempts with numbers, weights, a gallery and a sampled configuration."""
    log = LogWriter(folder)
    writer = StudyWriter(log)
    writer.open_study(RECORD, resume=False)
    for number in range(2):
        writer.draw(Drawn("vsepp.lmh", number, "running", {"loss.margin": 0.2}, {"loss.margin": "{}"}, {}, 5.0))
        attempt = begin(writer, number)
        writer.record_points(attempt, [
            ValidationPoint(10, 0.5, 640, 50.0, 2.0, {"loss": 0.1}),
            ValidationPoint(20, 1.0, 1280, 60.0 + number / 7, 4.0, {"device_seconds": 5.0}),
        ])
        writer.finish_attempt(attempt, "finished", summary={"best_m_recall": 60.0 + number / 7},
                              files=[WEIGHTS] if number == 0 else [], error=None)
    writer.finish_study("finished", ["leaderboard.html"])
    log.close()
    for name, content in {WEIGHTS: b"weights", PAGE: b"<p>gallery</p>", "leaderboard.html": b"<p>board</p>",
                          "study.yaml": b"study: nightly\n"}.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)


@pytest.fixture(scope="module")
def export(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder."""
    place = tmp_path_factory.mktemp("original")
    with pytest.MonkeyPatch.context() as there:
        there.setenv("VSETUNE_HOME", str(place / "home"))
        record(folder_of_study("nightly"))
        export_study("nightly", place / "export")
    return place / "export"


def header(folder: Path) -> Any:
    return json.loads((folder / HEADER).read_text())


def write_header(folder: Path, plain: Any) -> None:
    (folder / HEADER).write_bytes(plain if isinstance(plain, bytes) else json.dumps(plain).encode())


def write(folder: Path, name: str, content: bytes) -> None:
    """A file of the export with the right hash, as its sender would write it."""
    file = folder / FILES / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(content)
    plain = header(folder)
    plain["files"][name] = {"sha256": sha256_of_file(file), "size": file.stat().st_size}
    write_header(folder, plain)


def log_lines(folder: Path) -> list[list[bytes]]:
    """Of the export's log, every line as [kind, head, rest]."""
    found = []
    for line in (folder / FILES / LOG_FILE).read_bytes().splitlines():
        begin, _, rest = line[9:].partition(b"\t")
        found.append([*begin.split(b" ", 2)[1:], rest])
    return found


def write_log(folder: Path, lines: list[list[bytes]]) -> None:
    """The log of the export, with the right numbers and checksums."""
    content = b""
    for number, (kind, head, rest) in enumerate(lines):
        line = b"%d %s %s" % (number, kind, head) + (b"\t" + rest if rest else b"")
        content += b"%08x %s\n" % (zlib.crc32(line), line)
    write(folder, LOG_FILE, content)


@pytest.fixture
def at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Path]:
    """at(name): this process goes on with the home of that name; the folder of the study there."""

    def go(name: str) -> Path:
        monkeypatch.setenv("VSETUNE_HOME", str(tmp_path / name))
        return folder_of_study("nightly")

    return go


def boards() -> tuple[str, str]:
    """The board and the curves of the study in this home."""
    board = build(Studies().attempts("nightly"), baseline="lmh")
    return to_csv(board), curves_to_csv(board)


def goes_on(folder: Path, seed: int) -> None:
    """The study is resumed and trains one more attempt."""
    log = LogWriter(folder)
    writer = StudyWriter(log)
    writer.open_study(RECORD, resume=True)
    writer.finish_attempt(begin(writer, seed), "pruned", summary={"best_m_recall": 50.0}, error=None)
    writer.finish_study("finished")
    log.close()
