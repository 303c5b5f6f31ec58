"""An export that somebody else made: read within bounds, checked whole before anything is written, refused in a line.
"""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
import stat
import struct
import zipfile
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from foreign_exports import CONFIG, bring, changed, everything_below, export, read, run_of, write

from vsetune.errors import UsageError
from vsetune.tracking import moving, open_store
from vsetune.tracking.pieces import in_pieces
from vsetune.tracking.point_blocks import packed

__all__ = ["export"]


@pytest.fixture
def folder(export: Path, tmp_path: Path) -> Path:
    """A copy to be spoiled."""
    shutil.copytree(export, tmp_path / "export")
    return tmp_path / "export"


def refused(place: Path, home: Path) -> str:
    """The one line of an import that is refused; it leaves nothing behind."""
    before = everything_below(home)
    with pytest.raises(UsageError) as caught:
        bring(place, home)
    said = str(caught.value)
    assert said.isprintable()
    assert len(said) < 1000
    assert everything_below(home) == before
    return said


@pytest.fixture
def elsewhere(tmp_path: Path) -> Path:
    (tmp_path / "elsewhere").mkdir()
    return tmp_path / "elsewhere"


@pytest.mark.parametrize("name", ["../../../evil", "/evil", ".", "..", "", "a/b", "a\nb", "a\0b", "x" * 300, 3, None])
def test_a_study_whose_name_is_a_way_out_is_refused_before_anything_is_written(
    folder: Path, elsewhere: Path, name: object
) -> None:
    write(folder, "study.json", read(folder) | {"study": name})
    assert "study.json: study: " in refused(folder, elsewhere)


HEADERS: dict[str, Callable[[dict[str, Any]], object]] = {
    "fingerprint": lambda plain: plain.update(fingerprint="../x"),
    "runs: run": lambda plain: plain["runs"].append(plain["runs"][0]),
    "runs": lambda plain: plain.update(runs="all"),
    "runs.0": lambda plain: plain.update(runs=["../../x", *plain["runs"][1:]]),
    "runs/": lambda plain: plain["files"].pop(f"runs/{plain['runs'][0]}.json"),
    "experiment_tags.a": lambda plain: plain["experiment_tags"].update(a={"b": 1}),
    "experiment_tags": lambda plain: plain["experiment_tags"].pop("vsetune.kind"),
    "files.search.db.size": lambda plain: plain["files"]["search.db"].update(size="much"),
    "files.search.db.sha256": lambda plain: plain["files"]["search.db"].update(sha256="0"),
    "files": lambda plain: plain["files"].update({"runs/../../../evil": {"sha256": "0" * 64, "size": 0}}),
    "files: /evil": lambda plain: plain["files"].update({"/evil": {"sha256": "0" * 64, "size": 0}}),
    "files: artifacts/nobody/x": lambda plain: plain["files"].update(
        {"artifacts/nobody/x": {"sha256": "0" * 64, "size": 0}}),
}


@pytest.mark.parametrize("where", HEADERS)
def test_a_header_that_is_not_as_an_export_writes_it_is_refused_with_its_place(
    folder: Path, elsewhere: Path, where: str
) -> None:
    changed(folder, "study.json", HEADERS[where])
    assert f"study.json: {where.partition(':')[0]}" in refused(folder, elsewhere)


def of_record(kind: str, **changes: Any) -> Callable[[dict[str, Any]], object]:
    """A run whose record says something else; in the form in which its tags hold it."""
    def change(plain: dict[str, Any]) -> None:
        tags = plain["tags"]
        for name in [name for name in tags if name.startswith("vsetune.record")]:
            del tags[name]
        record = {
            "study": {"name": "nightly", "fingerprint": "f00d", "config": CONFIG, "tags": {}},
            "attempt": {"study": "nightly", "trial": "t0", "cell": "vsepp.lmh", "network": "vsepp", "loss": "lmh",
                        "number": 1, "seed": 0, "phase": "search", "configuration": {}, "resolved": {},
                        "environment": {}, "protocol": {}},
        }[kind] | changes
        text = json.dumps(record) if kind == "study" else packed(record)
        tags.update(in_pieces("vsetune.record", text))

    return change


RUNS: dict[str, tuple[str, Callable[[dict[str, Any]], object]]] = {
    "started_ms": ("attempt", lambda plain: plain.update(started_ms="soon")),
    "started_ms: too late": ("attempt", lambda plain: plain.update(started_ms=10**30)),
    "ended_ms": ("attempt", lambda plain: plain.update(ended_ms=[1])),
    "status": ("attempt", lambda plain: plain.update(status="BORED")),
    "name": ("attempt", lambda plain: plain.update(name="a\0b")),
    "run": ("attempt", lambda plain: plain.update(run="another")),
    "surprise": ("attempt", lambda plain: plain.update(surprise=1)),
    "params": ("attempt", lambda plain: plain.update(params=[])),
    "params.x": ("attempt", lambda plain: plain["params"].update(x=1)),
    "params.../x": ("attempt", lambda plain: plain["params"].update({"../x": "1"})),
    "tags.x": ("attempt", lambda plain: plain["tags"].update(x="y" * 10_000)),
    "tags.mlflow.parentRunId": ("attempt", lambda plain: plain["tags"].update({"mlflow.parentRunId": "../x"})),
    "metrics.m_recall": ("attempt", lambda plain: plain["metrics"]["m_recall"].append([1, 2])),
    "metrics.m_recall.0": ("attempt", lambda plain: plain["metrics"].update(m_recall=[[1, 2, "large"]])),
    "metrics.m_recall.0.0": ("attempt", lambda plain: plain["metrics"].update(m_recall=[[2**64, 2, 3.0]])),
    "data_sets.0": ("attempt", lambda plain: plain.update(data_sets=[{"name": 3}])),
    "artifacts": ("attempt", lambda plain: plain["artifacts"].append({"path": "x", "sha256": "0" * 64, "size": 0})),
    "tags.status": ("attempt", lambda plain: plain["tags"].update(status="bored")),
    "tags.vsetune.seen": ("attempt", lambda plain: plain["tags"].update({"vsetune.seen": "lately"})),
    "tags.vsetune.summary": ("attempt", lambda plain: plain["tags"].update({"vsetune.summary": '{"a": "b"}'})),
    "tags.vsetune.points": ("attempt", lambda plain: plain["tags"].update({"vsetune.points.0": "1 AAAA BBBB"})),
    "tags.vsetune.points: step": ("attempt", lambda plain: plain["tags"].update(
        {"vsetune.points.0": f"1 {packed([['a'], [1], [2], [3], [None]])} {packed([[1], {}])}"})),
    "tags.vsetune.record: bomb": ("attempt", lambda plain: plain["tags"].update(
        in_pieces("vsetune.record", packed("0" * (100 << 20))))),
    "tags.vsetune.record: text": ("attempt", lambda plain: plain["tags"].update({"vsetune.record": "nothing"})),
    "tags.vsetune.record: deep": ("attempt", lambda plain: plain["tags"].update(
        {"vsetune.record": '{"study":' + "[" * 2000 + "]" * 2000 + "}"})),
    "tags.vsetune.record: study": ("attempt", of_record("attempt", study="other")),
    "tags.vsetune.record: trial": ("attempt", of_record("attempt", trial="../../../evil")),
    "tags.vsetune.record: cell": ("attempt", of_record("attempt", cell="/evil")),
    "tags.vsetune.record: number": ("attempt", of_record("attempt", number="first")),
    "tags.vsetune.record: resolved.plugins": ("attempt", of_record("attempt", resolved={"plugins": {"loss.x": "../"}})),
    "tags.vsetune.record: resolved.network": ("attempt", of_record("attempt", resolved={"network": 3})),
    "tags.vsetune.record: name": ("study", of_record("study", name="other")),
    "tags.vsetune.record: fingerprint": ("study", of_record("study", fingerprint="beef")),
    "tags.vsetune.record: config.tracking": ("study", of_record("study", config=CONFIG | {"tracking": "x"})),
    "tags.vsetune.record: config.losses": ("study", of_record("study", config=CONFIG | {"losses": 3})),
}


@pytest.mark.parametrize("where", RUNS)
def test_a_run_that_is_not_as_an_export_writes_it_is_refused_with_its_place(
    folder: Path, elsewhere: Path, where: str
) -> None:
    kind, change = RUNS[where]
    name = run_of(folder, kind)
    changed(folder, name, change)
    said = refused(folder, elsewhere)
    assert f"{name}: {where.partition(':')[0]}" in said
    assert where.rpartition(": ")[2] in said or where.endswith(("bomb", "text", "deep", "too late"))


@pytest.mark.parametrize("text", [b"[" * 100_000, b'{"a":' * 100_000, b"\xff", b"", b"{", b'"\\ud800"', b"9" * 10_000])
@pytest.mark.parametrize("name", ["study.json", "run"])
def test_text_that_is_no_json_of_ours_is_one_line(folder: Path, elsewhere: Path, name: str, text: bytes) -> None:
    file = run_of(folder, "attempt") if name == "run" else name
    write(folder, file, text)
    assert f"{file}: " in refused(folder, elsewhere)


def test_an_import_keeps_the_places_of_its_own_home_and_not_those_of_the_sender(
    folder: Path, elsewhere: Path
) -> None:
    config = CONFIG | {"tracking": {"folder": "/anywhere", "uri": "http://sender:5000", "series": "all"}}
    changed(folder, run_of(folder, "study"), of_record("study", config=config))
    assert bring(folder, elsewhere) == moving.Imported(3, 0, 0)
    (record,) = open_store(f"sqlite:///{elsewhere / 'mlflow.db'}", None).studies()
    assert record.config == CONFIG | {"tracking": {"series": "all"}}
    assert bring(folder, elsewhere) == moving.Imported(0, 0, 3)


def test_tags_of_a_move_that_the_sender_wrote_do_not_count(folder: Path, elsewhere: Path) -> None:
    changed(folder, run_of(folder, "attempt"), lambda plain: plain["tags"].update(
        {"vsetune.moved": "no JSON", "vsetune.moved_from": "another"}))
    assert bring(folder, elsewhere) == moving.Imported(3, 0, 0)
    assert bring(folder, elsewhere) == moving.Imported(0, 0, 3)


@pytest.mark.parametrize("name", ["study.json", "search.db", "run"])
def test_a_fifo_a_link_and_a_folder_in_place_of_a_file_are_refused_at_once(
    folder: Path, elsewhere: Path, tmp_path: Path, name: str
) -> None:
    file = folder / (run_of(folder, "attempt") if name == "run" else name)
    kept = tmp_path / "kept"
    shutil.move(file, kept)
    file.symlink_to(kept)
    assert "regular file" in refused(folder, elsewhere)
    file.unlink()
    os.mkfifo(file)
    assert "regular file" in refused(folder, elsewhere)
    file.unlink()
    file.mkdir()
    assert "regular file" in refused(folder, elsewhere)
    os.mkfifo(tmp_path / "fifo.zip")
    assert "no export of a study" in refused(tmp_path / "fifo.zip", elsewhere)


def test_a_folder_that_is_a_link_inside_an_export_is_refused(folder: Path, elsewhere: Path, tmp_path: Path) -> None:
    shutil.move(folder / "runs", tmp_path / "runs")
    (folder / "runs").symlink_to(tmp_path / "runs")
    assert "regular file" in refused(folder, elsewhere)


def zipped(folder: Path, place: Path, method: int = zipfile.ZIP_DEFLATED) -> Path:
    with zipfile.ZipFile(place, "w", method) as archive:
        for file in sorted(path for path in folder.rglob("*") if path.is_file()):
            archive.write(file, file.relative_to(folder).as_posix())
    return place


def test_an_export_that_somebody_zipped_again_is_taken(folder: Path, elsewhere: Path, tmp_path: Path) -> None:
    assert bring(zipped(folder, tmp_path / "again.zip"), elsewhere) == moving.Imported(3, 0, 0)


@pytest.mark.parametrize("name", ["../evil", "/evil", "a/../../evil", "a\\..\\evil", "study.json", "C:\\evil"])
def test_zip_names_that_lead_out_or_stand_there_twice_are_refused(
    folder: Path, elsewhere: Path, tmp_path: Path, name: str
) -> None:
    place = zipped(folder, tmp_path / "names.zip")
    with zipfile.ZipFile(place, "a") as archive, pytest.MonkeyPatch.context() as patch:
        patch.setattr("warnings.warn", lambda *_, **__: None)  # zipfile warns of a name that is there
        archive.writestr(name, b"evil")
    assert "twice" in refused(place, elsewhere) if name == "study.json" else "leads out" in refused(place, elsewhere)


@pytest.mark.parametrize("kind", [stat.S_IFLNK, stat.S_IFIFO, stat.S_IFCHR])
def test_links_and_devices_in_a_zip_are_refused(folder: Path, elsewhere: Path, tmp_path: Path, kind: int) -> None:
    place = zipped(folder, tmp_path / "links.zip")
    link = zipfile.ZipInfo("link")
    link.external_attr = (kind | 0o777) << 16
    with zipfile.ZipFile(place, "a") as archive:
        archive.writestr(link, "/etc/passwd")
    assert "link: is no regular file" in refused(place, elsewhere)


@pytest.mark.parametrize("method", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_other_kinds_of_packing_are_refused(folder: Path, elsewhere: Path, tmp_path: Path, method: int) -> None:
    assert "packed in a way" in refused(zipped(folder, tmp_path / "other.zip", method), elsewhere)


def test_a_file_that_unpacks_to_far_more_than_its_size_is_refused_without_unpacking_it(
    folder: Path, elsewhere: Path, tmp_path: Path
) -> None:
    place = zipped(folder, tmp_path / "bomb.zip")
    with zipfile.ZipFile(place, "a", zipfile.ZIP_DEFLATED) as archive, archive.open("artifacts/x", "w") as bomb:
        for _ in range(300):
            bomb.write(bytes(1 << 20))
    assert place.stat().st_size < 1 << 20
    assert "unpacks to" in refused(place, elsewhere)


def test_files_that_lie_over_one_another_in_a_zip_are_refused(folder: Path, elsewhere: Path, tmp_path: Path) -> None:
    """As in bombs that use one packed file many times."""
    place = tmp_path / "over.zip"
    with zipfile.ZipFile(place, "w") as archive:
        archive.writestr("artifacts/x", bytes(100_000))
        for file in (path for path in folder.rglob("*") if path.is_file()):
            archive.write(file, file.relative_to(folder).as_posix())
    content = place.read_bytes()
    end = content.rindex(b"PK\5\6")
    size, start = struct.unpack("<II", content[end + 12 : end + 20])
    entries = content[start : start + size]
    first = entries[: 46 + sum(struct.unpack("<HHH", entries[28:34]))]
    length = struct.unpack("<H", first[28:30])[0]
    copies = b"".join(
        first[:46] + f"{number:0{length}}".encode() + first[46 + length :] for number in range(10_000)
    )
    closing_part = struct.pack("<4s4H2LH", b"PK\5\6", 0, 0, 0xFFFF, 0xFFFF, size + len(copies), start, 0)
    place.write_bytes(content[:start] + entries + copies + closing_part)
    assert "over one another" in refused(place, elsewhere)


def test_a_file_whose_size_differs_from_the_header_is_refused_unread(folder: Path, elsewhere: Path) -> None:
    with open(folder / "search.db", "ab") as file:
        file.truncate(1 << 40)  # sparse; reading it would take minutes
    assert "search.db" in refused(folder, elsewhere)


def test_a_run_or_a_header_larger_than_any_of_ours_is_refused_unread(folder: Path, elsewhere: Path) -> None:
    name = run_of(folder, "attempt")
    header = read(folder)
    header["files"][name]["size"] = 1 << 40
    write(folder, "study.json", header)
    os.truncate(folder / name, 1 << 40)
    assert "need at most" in refused(folder, elsewhere)
    os.truncate(folder / "study.json", 1 << 40)
    assert "need at most" in refused(folder, elsewhere)


@pytest.mark.parametrize("content", [b"", b"text", b"SQLite format 3\0" + bytes(200)])
def test_a_search_that_is_no_database_is_refused(folder: Path, elsewhere: Path, content: bytes) -> None:
    write(folder, "search.db", content)
    assert "search.db: " in refused(folder, elsewhere)


def test_a_search_that_acts_by_itself_is_refused(folder: Path, elsewhere: Path) -> None:
    with closing(sqlite3.connect(folder / "search.db")) as search, search:
        search.execute("CREATE TRIGGER t AFTER INSERT ON trials BEGIN DELETE FROM trials; END")
    write(folder, "search.db", (folder / "search.db").read_bytes())
    assert "search.db: has a trigger" in refused(folder, elsewhere)
