"""An export that somebody else made: read within bounds, checked whole before anything is placed, refused in a line."""

from __future__ import annotations

import copy
import json
import os
import shutil
import struct
import tempfile
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from foreign_exports import PAGE, WEIGHTS, export, header, log_lines, write, write_header, write_log
from hypothesis import given, settings
from hypothesis import strategies as st
from refusals import refused
from spoiled_files import VALUES, seeded

from vsetune.board.building import build
from vsetune.errors import Problem, UsageError
from vsetune.records.log import LOG_FILE
from vsetune.records.moved_study import HEADER, import_study
from vsetune.records.studies import Studies

__all__ = ["export"]
NOTHING = {"sha256": "0" * 64, "size": 0}


@pytest.fixture
def folder(export: Path, tmp_path: Path) -> Path:
    """A copy to be spoiled."""
    shutil.copytree(export, tmp_path / "export")
    return tmp_path / "export"


@pytest.fixture
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty home."""
    (tmp_path / "elsewhere" / "runs").mkdir(parents=True)
    monkeypatch.setenv("VSETUNE_HOME", str(tmp_path / "elsewhere"))
    return tmp_path / "elsewhere"


def assert_refused(place: Path, home: Path, message: str, **fields: object) -> Problem:
    """An import is refused in one line; it leaves nothing behind, in the home and beside it."""
    around = [home.parent, home]
    before = [sorted(each.rglob("*")) for each in around]
    with refused(message, by=UsageError, **fields) as caught:
        import_study(place)
    said = caught.value.problem
    assert said.isprintable()
    assert len(said) < 1000
    assert [sorted(each.rglob("*")) for each in around] == before
    return said


def refusal(place: Path) -> str | None:
    try:
        import_study(place)
    except UsageError as error:
        return str(error)
    return None


def test_the_export_that_is_spoiled_here_is_taken_as_it_is(folder: Path, elsewhere: Path) -> None:
    assert import_study(folder) == ("nightly", 5)


@pytest.mark.parametrize("name", ["../../../evil", "/evil", ".", "..", "", "a/b", "a\nb", "a\0b", "x" * 300, 3, None])
def test_a_study_whose_name_is_a_way_out_is_refused_before_anything_is_written(
    folder: Path, elsewhere: Path, name: object
) -> None:
    write_header(folder, header(folder) | {"study": name})
    assert_refused(folder, elsewhere, "VSE-R014", file="export.json: study")


def file_named(name: str, **facts: object) -> Callable[[Any], object]:
    return lambda plain: plain["files"].update({name: NOTHING | facts})


HEADERS: dict[str, Callable[[Any], object]] = {
    "files": lambda plain: plain.update(files="all"),
    "files: list": lambda plain: plain.update(files=[LOG_FILE]),
    "files: log": lambda plain: plain["files"].pop(LOG_FILE),
    "surprise": lambda plain: plain.update(surprise=1),
    f"files.{WEIGHTS}.size": file_named(WEIGHTS, size="much"),
    f"files.{WEIGHTS}.size: 1": file_named(WEIGHTS, size=True),
    f"files.{WEIGHTS}.size: 2": file_named(WEIGHTS, size=-1),
    f"files.{WEIGHTS}.size: 3": file_named(WEIGHTS, size=10**400),
    f"files.{WEIGHTS}.sha256": file_named(WEIGHTS, sha256="0"),
    f"files.{WEIGHTS}": lambda plain: plain["files"].update({WEIGHTS: 3}),
    **{f"files.{name}": file_named(name) for name in (
        "kept/../../../evil", "/evil.html", "../evil.html", "kept//evil", "kept/./evil", "kept/", "kept\\..\\evil",
        "C:\\evil.html", "trials/../best.safetensors", "trials/a/b/best.safetensors", "plugins/own/plugin.json",
        "mlflow.json", "lock", ".study.snapshot.json", "study.log/x",
    )},
    "files.kept/a": file_named("kept/a\nb"), "files.kept/b": file_named("kept/b\0c"),
    "files.kept/c": file_named("kept/c\ud800"), "files.kept/xxx": file_named("kept/" + "x" * 300),
    "files.kept/yyy": file_named("kept/" + "yyy/" * 2000 + "y"),
}


@pytest.mark.parametrize("where", HEADERS)
def test_a_header_that_is_not_as_an_export_writes_it_is_refused_with_its_place(
    folder: Path, elsewhere: Path, where: str
) -> None:
    plain = header(folder)
    HEADERS[where](plain)
    write_header(folder, plain)
    assert f"export.json: {where.partition(':')[0]}" in assert_refused(folder, elsewhere, "VSE-R014")


@pytest.mark.parametrize("text", [
    b"[" * 100_000, b'{"a":' * 100_000, b"\xff", b"", b"{", b'"\\ud800"', b"9" * 10_000, b"3", b"[]", b"null",
])
def test_a_header_that_is_no_json_of_ours_is_one_line(folder: Path, elsewhere: Path, text: bytes) -> None:
    write_header(folder, text)
    assert_refused(folder, elsewhere, "VSE-R014")


def opened(change: Callable[[Any], object]) -> tuple[int, Callable[[Any], object]]:
    return 0, lambda plain: change(plain["record"])


def begun(change: Callable[[Any], object]) -> tuple[int, Callable[[Any], object]]:
    return 2, lambda plain: change(plain["start"])


LINES: dict[str, tuple[int, Callable[[Any], object]]] = {
    "record.name": opened(lambda record: record.update(name="other")),
    "record.name: b": opened(lambda record: record.update(name="../evil")),
    "record.fingerprint": opened(lambda record: record.update(fingerprint="../x")),
    "record.config": opened(lambda record: record.update(config=[])),
    "record.config.losses": opened(lambda record: record["config"].update(losses=3)),
    "record.config.tracking": opened(lambda record: record["config"].update(tracking="x")),
    "record.config: deep": opened(lambda record: record["config"].update(deep=2**64)),
    "record.tags.a": opened(lambda record: record["tags"].update(a={"b": 1})),
    "record.tags": opened(lambda record: record["tags"].update({"vsetune.plugin.loss.own": "../x"})),
    "record.tags: list": opened(lambda record: record.update(tags=[])),
    "at": (0, lambda plain: plain.update(at="soon")),
    "at: late": (0, lambda plain: plain.update(at=10**30)),
    "at: nan": (0, lambda plain: plain.update(at=float("nan"))),
    "format": (0, lambda plain: plain.update(format="x")),
    "the log has format 9": (0, lambda plain: plain.update(format=9)),
    "surprise": (0, lambda plain: plain.update(surprise=1)),
    "cell": (1, lambda plain: plain.update(cell="../x")),
    "number": (1, lambda plain: plain.update(number="first")),
    "state": (1, lambda plain: plain.update(state="bored")),
    "configuration": (1, lambda plain: plain.update(configuration=3)),
    "distributions.loss.margin": (1, lambda plain: plain["distributions"].update({"loss.margin": 3})),
    "value": (1, lambda plain: plain.update(value=float("inf"))),
    "start.study": begun(lambda start: start.update(study="../x")),
    "start.trial": begun(lambda start: start.update(trial="../../../evil")),
    "start.cell": begun(lambda start: start.update(cell="/evil")),
    "start.number": begun(lambda start: start.update(number="first")),
    "start.number: 0": begun(lambda start: start.update(number=0)),
    "start.seed": begun(lambda start: start.update(seed=2**70)),
    "start.phase": begun(lambda start: start.update(phase="bored")),
    "start.resolved.plugins.loss.x": begun(lambda start: start.update(resolved={"plugins": {"loss.x": "../"}})),
    "start.resolved.network": begun(lambda start: start.update(resolved={"network": 3})),
    "start.environment.a": begun(lambda start: start.update(environment={"a": 3})),
    "start.environment": begun(lambda start: start.update(environment={"usd_per_hour": "much"})),
    "points.0.m_recall": (3, lambda plain: plain[2][0].__setitem__(2, "large")),
    "points.0.step": (3, lambda plain: plain[2][0].__setitem__(0, 2**64)),
    "points.0.epoch": (3, lambda plain: plain[2][0].__setitem__(1, float("nan"))),
    "attempt: number": (3, lambda plain: plain.__setitem__(0, 3)),
    "attempt nightly/none/1": (3, lambda plain: plain.__setitem__(0, "nightly/none/1")),
    "attempt nightly/gone/1": (4, lambda plain: plain.update(attempt="nightly/gone/1")),
    "status": (4, lambda plain: plain.update(status="bored")),
    "summary.a": (4, lambda plain: plain.update(summary={"a": "b"})),
    "files.0": (4, lambda plain: plain.update(files=["../../../../etc/passwd"])),
    "files.0: absolute": (4, lambda plain: plain.update(files=["/etc/passwd"])),
    "error": (4, lambda plain: plain.update(error="a\0b")),
    "status: study": (9, lambda plain: plain.update(status="running")),
    "files.0: study": (9, lambda plain: plain.update(files=["../mlflow.db"])),
}

UNFIT = {"record.name", "surprise", "the log has format 9", "attempt nightly/none/1", "attempt nightly/gone/1"}
"""Refused as a whole: each value is sound, and does not fit the study or the lines before it."""


@pytest.mark.parametrize("where", LINES)
def test_a_line_of_the_log_that_is_not_as_a_driver_writes_it_is_refused_with_its_place(
    folder: Path, elsewhere: Path, where: str
) -> None:
    number, change = LINES[where]
    lines = log_lines(folder)
    plain = json.loads(lines[number][1])
    change(plain)
    lines[number][1] = json.dumps(plain).encode()
    write_log(folder, lines)
    fields = {"log": f"{folder}: study.log", "line": number}
    if where in UNFIT:
        assert where in assert_refused(folder, elsewhere, "VSE-R021", **fields)
    else:
        assert_refused(folder, elsewhere, "VSE-R022", key=where.partition(":")[0], **fields)


@pytest.mark.parametrize("lines", [
    [], [[b"opened", b"{}", b""]], [[b"opened", b"[" * 100_000, b""]], [[b"opened", b"\xff", b""]],
    [[b"\xff", b"{}", b""]], [[b"told", b"{}", b""]], [[b"validated", b"[]", b"[]"]],
    [[b"validated", b"3", b""]],
])
def test_a_log_that_is_none_is_one_line(folder: Path, elsewhere: Path, lines: list[list[bytes]]) -> None:
    write_log(folder, lines)
    assert_refused(folder, elsewhere, "VSE-R021" if lines else "VSE-R020")


def test_lines_of_two_studies_or_a_damaged_one_are_refused(folder: Path, elsewhere: Path) -> None:
    lines = log_lines(folder)
    again = copy.deepcopy(lines[0])
    again[1] = again[1].replace(b'"f00d"', b'"beef"')
    write_log(folder, [*lines, again])
    assert "got beef, need f00d" in assert_refused(folder, elsewhere, "VSE-R021", line=10)
    content = (folder / "files" / LOG_FILE).read_bytes()
    write(folder, LOG_FILE, content.replace(b'"phase":"search"', b'"phase":"confirm"', 1))
    assert_refused(folder, elsewhere, "VSE-R021", line=2)
    first, second, *rest = content.splitlines(keepends=True)
    write(folder, LOG_FILE, b"".join([first, *rest, second]))
    assert_refused(folder, elsewhere, "VSE-R021", line=1)


def test_a_line_without_an_end_is_not_read_as_a_whole(folder: Path, elsewhere: Path) -> None:
    write(folder, LOG_FILE, bytes(70 << 20))
    assert_refused(folder, elsewhere, "VSE-R020")


@pytest.mark.parametrize("kind", ["link", "fifo", "folder"])
@pytest.mark.parametrize("name", [HEADER, f"files/{LOG_FILE}", f"files/{WEIGHTS}", "files"])
def test_a_fifo_a_link_and_a_folder_in_place_of_a_file_are_refused_at_once(
    folder: Path, elsewhere: Path, tmp_path: Path, name: str, kind: str
) -> None:
    file, kept = folder / name, tmp_path / "kept"
    shutil.move(file, kept)
    {"link": lambda: file.symlink_to(kept), "fifo": lambda: os.mkfifo(file), "folder": file.mkdir}[kind]()
    assert_refused(folder, elsewhere, "VSE-R014" if name == HEADER else "VSE-R016")


def test_a_fifo_in_place_of_an_archive_is_refused_at_once(elsewhere: Path, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo.zip")
    assert_refused(tmp_path / "fifo.zip", elsewhere, "VSE-R014")


@pytest.mark.parametrize("names", [("kept/a", "kept/a/b"), ("kept/a/b", "kept/a"), ("kept/a", "kept/a/b/c")])
def test_a_name_that_is_a_file_and_a_folder_is_refused(
    folder: Path, tmp_path: Path, elsewhere: Path, names: tuple[str, str]
) -> None:
    for name in names:
        shutil.rmtree(folder / "files" / "kept")
        write(folder, name, b"x")
    place = zipped(folder, tmp_path / "both.zip")
    with zipfile.ZipFile(place, "a") as archive:
        for name in set(names) | {PAGE}:
            if f"files/{name}" not in archive.namelist():
                archive.writestr(f"files/{name}", b"<p>gallery</p>" if name == PAGE else b"x")
    assert_refused(place, elsewhere, "VSE-R016")


def zipped(folder: Path, place: Path, method: int = zipfile.ZIP_DEFLATED) -> Path:
    with zipfile.ZipFile(place, "w", method) as archive:
        for file in sorted(path for path in folder.rglob("*") if path.is_file()):
            archive.write(file, file.relative_to(folder).as_posix())
    return place


def test_an_export_that_somebody_zipped_again_is_taken(folder: Path, elsewhere: Path, tmp_path: Path) -> None:
    assert import_study(zipped(folder, tmp_path / "again.zip")) == ("nightly", 5)


@pytest.mark.parametrize("name", ["../evil", "/evil", "files/../../evil", "a\\..\\evil", "C:\\evil", "link"])
def test_members_of_a_zip_that_its_header_does_not_name_are_not_unpacked(
    folder: Path, elsewhere: Path, tmp_path: Path, name: str
) -> None:
    place = zipped(folder, tmp_path / "names.zip")
    link = zipfile.ZipInfo(name)
    link.external_attr = 0o120777 << 16
    with zipfile.ZipFile(place, "a") as archive:
        archive.writestr(link, "/etc/passwd")
    before = set(tmp_path.rglob("*"))
    import_study(place)
    new = {path.relative_to(elsewhere / "runs" / "nightly") for path in set(tmp_path.rglob("*")) - before
           if path.is_file()}
    assert {path.as_posix() for path in new} == {LOG_FILE, WEIGHTS, PAGE, "leaderboard.html", "study.yaml", "lock"}


def test_a_zip_that_names_a_file_twice_is_refused(folder: Path, elsewhere: Path, tmp_path: Path) -> None:
    place = zipped(folder, tmp_path / "twice.zip")
    with zipfile.ZipFile(place, "a") as archive, pytest.warns(UserWarning, match="Duplicate name"):
        archive.writestr(HEADER, b"evil")
    assert_refused(place, elsewhere, "VSE-R016")


@pytest.mark.parametrize("method", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_other_kinds_of_packing_are_refused(folder: Path, elsewhere: Path, tmp_path: Path, method: int) -> None:
    assert_refused(zipped(folder, tmp_path / "other.zip", method), elsewhere, "VSE-R014")


def test_a_zip_that_is_damaged_inside_or_cut_short_is_one_line(folder: Path, elsewhere: Path, tmp_path: Path) -> None:
    content = zipped(folder, tmp_path / "whole.zip").read_bytes()
    place = tmp_path / "damaged.zip"
    for at in range(0, len(content), 97):
        place.write_bytes(content[:at] + bytes([content[at] ^ 255]) + content[at + 1 :])
        said = refusal(place)
        assert said is None or said.isprintable(), at
    assert build(Studies().attempts("nightly"), baseline="lmh").rows
    place.write_bytes(content[: len(content) // 2])
    with refused("VSE-R014"):
        import_study(place)


def test_a_file_that_unpacks_to_far_more_than_its_size_is_refused_without_unpacking_it(
    folder: Path, elsewhere: Path, tmp_path: Path
) -> None:
    place = tmp_path / "bomb.zip"
    plain = header(folder)
    plain["files"]["kept/bomb"] = NOTHING | {"size": 300 << 20}
    write_header(folder, plain)
    zipped(folder, place)
    with zipfile.ZipFile(place, "a", zipfile.ZIP_DEFLATED) as archive, archive.open("files/kept/bomb", "w") as bomb:
        for _ in range(300):
            bomb.write(bytes(1 << 20))
    assert place.stat().st_size < 1 << 20
    assert_refused(place, elsewhere, "VSE-R017")
    plain["files"]["kept/bomb"]["size"] = 1000
    with zipfile.ZipFile(place, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(HEADER, json.dumps(plain))
        for file in sorted(path for path in (folder / "files").rglob("*") if path.is_file()):
            archive.write(file, file.relative_to(folder).as_posix())
        archive.writestr("files/kept/bomb", bytes(100 << 20))
    assert_refused(place, elsewhere, "VSE-R016", file="kept/bomb")


def test_files_that_lie_over_one_another_in_a_zip_are_refused(folder: Path, elsewhere: Path, tmp_path: Path) -> None:
    """As in bombs that use one packed file many times."""
    place = tmp_path / "over.zip"
    plain = header(folder)
    for number in range(10_000):
        plain["files"][f"kept/{number:05}"] = NOTHING | {"size": 100_000}
    write_header(folder, plain)
    with zipfile.ZipFile(place, "w") as archive:
        archive.writestr("files/kept/x----", bytes(100_000))
        archive.write(folder / HEADER, HEADER)
    content = place.read_bytes()
    end = content.rindex(b"PK\5\6")
    size, start = struct.unpack("<II", content[end + 12 : end + 20])
    entries = content[start : start + size]
    first = entries[: 46 + sum(struct.unpack("<HHH", entries[28:34]))]
    copies = b"".join(first[:46] + f"files/kept/{number:05}".encode() + first[62:] for number in range(10_000))
    closing_part = struct.pack("<4s4H2LH", b"PK\5\6", 0, 0, 10_002, 10_002, size + len(copies), start, 0)
    place.write_bytes(content[:start] + entries + copies + closing_part)
    assert_refused(place, elsewhere, "VSE-R017")


def test_more_than_the_disk_has_room_for_is_refused_unread(folder: Path, elsewhere: Path) -> None:
    plain = header(folder)
    plain["files"][WEIGHTS]["size"] = 1 << 49
    write_header(folder, plain)
    os.truncate(folder / "files" / WEIGHTS, 1 << 40)  # sparse; reading it would take minutes
    assert_refused(folder, elsewhere, "VSE-R018")


def test_a_file_that_is_longer_than_its_header_says_is_refused_without_reading_all_of_it(
    folder: Path, elsewhere: Path
) -> None:
    os.truncate(folder / "files" / WEIGHTS, 1 << 40)
    assert_refused(folder, elsewhere, "VSE-R016", file=WEIGHTS)
    os.truncate(folder / HEADER, 1 << 40)
    assert_refused(folder, elsewhere, "VSE-R014", file=HEADER)


def places(value: Any, place: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    """Every place in JSON."""
    yield place
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in items:
        yield from places(inner, (*place, key))


def spoil(plain: Any, place: tuple[str | int, ...], value: Any) -> Any:
    if not place:
        return value
    plain[place[0]] = spoil(plain[place[0]], place[1:], value)
    return plain


def as_json(value: Any) -> bytes:
    return json.dumps(value, default=str).encode(errors="surrogatepass")


def spoiled(draw: st.DrawFn, text: bytes) -> bytes:
    """JSON with other values in one or two places, or other bytes."""
    if draw(st.integers(0, 4)) == 0:
        content = bytearray(text)
        for _ in range(draw(st.integers(1, 3))):
            at = draw(st.integers(0, len(content) - 1))
            content[at : at + draw(st.integers(0, 3))] = draw(st.binary(max_size=4)).replace(b"\n", b" ")
        return bytes(content)
    plain = json.loads(text)
    for _ in range(draw(st.integers(1, 2))):
        place = draw(st.sampled_from(sorted(places(plain), key=str)))
        plain = spoil(plain, place, copy.deepcopy(draw(st.sampled_from(VALUES))))
    return as_json(plain)


@st.composite
def spoils(draw: st.DrawFn, place: Path) -> None:
    """Spoils an export: its header, or a line of its log under the right checksums."""
    if draw(st.integers(0, 3)) == 0:
        write_header(place, spoiled(draw, (place / HEADER).read_bytes()))
        return
    lines = log_lines(place)
    number = draw(st.integers(0, len(lines) - 1))
    part = 2 if lines[number][2] and draw(st.booleans()) else 1
    lines[number][part] = spoiled(draw, lines[number][part])
    write_log(place, lines)


def assert_refused_or_whole(data: st.DataObject, export: Path, folder: Path) -> None:
    """An import says what is wrong and writes nothing, or every reader takes what it wrote."""
    own = Path(tempfile.mkdtemp(dir=folder))
    place, home = own / "spoiled", own / "home"
    shutil.copytree(export, place)
    (home / "runs").mkdir(parents=True)
    data.draw(spoils(place))
    with pytest.MonkeyPatch.context() as there:
        there.setenv("VSETUNE_HOME", str(home))
        said = refusal(place)
        if said is not None:
            assert said.isprintable()
            assert len(said) < 1000
            assert list((home / "runs").iterdir()) == []
            return
        studies = Studies()
        for record in studies.studies():
            assert record.name == "nightly"
            assert "uri" not in (record.config.get("tracking") or {})
            attempts = studies.attempts("nightly")
            assert {attempt.start.study for attempt in attempts} <= {"nightly"}
            for attempt in attempts:
                studies.points(attempt.attempt_id)
            build(attempts, baseline="lmh")
        assert import_study(place) == ("nightly", 0)


@settings(seeded, max_examples=60)
@given(data=st.data())
def test_spoiled_exports_are_refused_or_whole(data: st.DataObject, export: Path, tmp_path: Path) -> None:
    assert_refused_or_whole(data, export, tmp_path)


@pytest.mark.slow
@pytest.mark.timeout(1800)
@settings(seeded, max_examples=3000)
@given(data=st.data())
def test_three_thousand_spoiled_exports_are_refused_or_whole(
    data: st.DataObject, export: Path, tmp_path: Path
) -> None:
    assert_refused_or_whole(data, export, tmp_path)
