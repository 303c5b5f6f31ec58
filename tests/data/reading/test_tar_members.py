"""Tars that any program wrote: the members that Python's `tarfile` finds in them, and what is refused."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import subprocess
import tarfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vsetune.data.stored.plain_files import Flaw
from vsetune.data.stored.tar_members import file_places, tar_members

CONTENT = {"a.jpg": b"first", "deep/b.jpg": b"x" * 1300, f"{'long/' * 40}c.jpg": b"third", "d\u00e9j\u00e0.jpg": b""}


def archive(format_: int, mode: Any = "w") -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode=mode, format=format_) as tar:
        folder = tarfile.TarInfo("deep")
        folder.type = tarfile.DIRTYPE
        tar.addfile(folder)
        for name, content in CONTENT.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
        link = tarfile.TarInfo("e.jpg")
        link.type, link.linkname = tarfile.SYMTYPE, "a.jpg"
        tar.addfile(link)
    return buffer.getvalue()


@pytest.mark.parametrize("format_", [tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
def test_files_stand_where_their_places_say_and_links_and_folders_are_passed_over(format_: int) -> None:
    written = archive(format_)
    places = list(file_places(io.BytesIO(written)))
    assert {each.name: written[each.offset : each.offset + each.size] for each in places} == CONTENT


def test_a_sparse_file_is_refused() -> None:
    header = bytearray(tarfile.TarInfo("holes.jpg").tobuf(tarfile.GNU_FORMAT))
    header[156:157] = tarfile.GNUTYPE_SPARSE
    header[148:156] = f"{256 + sum(header[:148]) + sum(header[156:]):06o}\0 ".encode()
    with pytest.raises(Flaw, match=r"member holes\.jpg is sparse"):
        list(file_places(io.BytesIO(bytes(header) + bytes(1024))))


def member(name: str, content: bytes = b"", type_: bytes = tarfile.REGTYPE, **fields: Any) -> tuple[Any, bytes]:
    header = tarfile.TarInfo(name)
    header.type, header.size = type_, len(content)
    for field, value in fields.items():
        setattr(header, field, value)
    return header, content


def tar_of(members: Iterable[tuple[Any, bytes]], format_: int = tarfile.GNU_FORMAT, **options: Any) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=format_, **options) as tar:
        for header, content in members:
            tar.addfile(header, io.BytesIO(content))
    return buffer.getvalue()


def patched(written: bytes, offset: int, value: bytes) -> bytes:
    """The first header with other bytes, and the checksum of them."""
    header = bytearray(written[:512])
    header[offset : offset + len(value)] = value
    header[148:156] = f"{256 + sum(header[:148]) + sum(header[156:]):06o}\0 ".encode()
    return bytes(header) + written[512:]


def read(content: bytes) -> list[tuple[str, bytes]]:
    return [(header.name, found) for header, found in tar_members(io.BytesIO(content), limit=lambda name: 1 << 24)
            if found is not None]


def by_tarfile(content: bytes) -> list[tuple[str, bytes]]:
    with tarfile.open(fileobj=io.BytesIO(content), mode="r:", encoding="utf-8", errors="backslashreplace") as tar:
        return [(each.name, tar.extractfile(each).read()) for each in tar if each.isreg()]  # type: ignore[union-attr]


SHORT = ("a.jpg", b"picture")
PLAIN = tar_of([member(*SHORT), member("a.txt", b"x" * 600)])


@pytest.mark.parametrize("written", [
    pytest.param(tar_of([member("a.npy", b"x" * 700, tarfile.CONTTYPE), member(*SHORT)]), id="contiguous"),
    pytest.param(patched(PLAIN, 156, b"\0"), id="version 7"),
    pytest.param(patched(PLAIN, 124, b"\x80" + bytes(10) + b"\7"), id="base-256 size"),
    pytest.param(tar_of([member("f/" * 60 + "a.jpg", b"x")], tarfile.USTAR_FORMAT), id="prefix"),
    pytest.param(tar_of([member(*SHORT)], tarfile.PAX_FORMAT, pax_headers={"comment": "c" * 40}), id="global header"),
    pytest.param(tar_of([member(*SHORT, pax_headers={"path": "other.jpg"})], tarfile.PAX_FORMAT), id="path of pax"),
    pytest.param(PLAIN + bytes(20 << 10) + bytes(100), id="zeros behind it"),
    pytest.param(PLAIN.rstrip(b"\0") + bytes(-len(PLAIN.rstrip(b"\0")) % 512) + bytes(512), id="short end mark"),
    pytest.param(tar_of([member("\x41\udce9.jpg", b"1"), member("\x41\udce8.jpg", b"2")]), id="undecodable"),
    pytest.param(tar_of([member("\u202f\u3000\xa0\xad\u200d.jpg", b"1")], tarfile.PAX_FORMAT), id="blanks"),
    pytest.param(tar_of([member("v.hdr", b"x" * 513, b"V"), member(*SHORT)]), id="unknown type"),
    pytest.param(tar_of([]), id="empty"),
])
def test_members_are_those_of_tarfile(written: bytes) -> None:
    assert read(written) == by_tarfile(written)
    assert len(dict(read(written))) == len(read(written))


@pytest.mark.parametrize("options", [
    ["--format=gnu"], *(["--format=posix", f"--sparse-version={version}"] for version in ("0.0", "0.1", "1.0")),
], ids=" ".join)
def test_sparse_files_are_read_and_passed_over(tmp_path: Path, options: list[str]) -> None:
    with open(tmp_path / "a.npy", "wb") as file:
        for part in range(9):  # more parts than fit into the first header of a GNU tar
            file.seek(part * 100_000)
            file.write(bytes([part + 1]) * 5000)
        file.truncate(1_000_001)
    (tmp_path / "b.jpg").write_bytes(b"picture")
    names = ["a.npy", "b.jpg"]
    written = subprocess.run(
        ["tar", "-c", "-S", "--hole-detection=raw", *options, *names], cwd=tmp_path, capture_output=True, check=True
    ).stdout
    assert len(written) < 100_000
    assert read(written) == [(name, (tmp_path / name).read_bytes()) for name in names]
    found = {header.name: content for header, content in tar_members(
        io.BytesIO(written), limit=lambda name: 9 if name == "b.jpg" else None
    )}
    assert found == {"a.npy": None, "b.jpg": b"picture"}
    with pytest.raises(Flaw):
        read(written[:20_000])


def test_tars_one_behind_the_other_are_read_like_one() -> None:
    second = tar_of([member("b.jpg", b"2")])
    assert [name for name, _ in read(PLAIN + second)] == ["a.jpg", "a.txt", "b.jpg"]
    assert [place.name for place in file_places(io.BytesIO(PLAIN + second))] == ["a.jpg", "a.txt", "b.jpg"]


BROKEN = {
    "gzip -dc": gzip.compress(PLAIN), "bzip2 -dc": bz2.compress(PLAIN), "xz -dc": lzma.compress(PLAIN),
    "zstd -dc": b"\x28\xb5\x2f\xfd" + bytes(600), "a zip archive": b"PK\3\4" + bytes(600),
    "git lfs pull": b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 9\n",
    "HTML": b"<!DOCTYPE html>", "no tar: empty": b"", "no tar: truncated": b"x" * 300, "no tar: ": b"x" * 3000,
    "no header of a member at byte 1,024, where": PLAIN[:1024] + b"?" * 512 + PLAIN[1536:],
    "no header of a member at byte .* behind its end": PLAIN + b"?" * 512,
    "cut short: ends without the mark": PLAIN[:2560], "cut short: member a.txt ends after 76 of": PLAIN[:1612],
    "control character": tar_of([member("a\nb.jpg")]),
    "an extension header of": patched(PLAIN, 124, b"77777777777\0" + bytes(20) + b"x"),
    "has -1 bytes": patched(PLAIN, 124, b"\xff" * 12),
}


@pytest.mark.parametrize("told", BROKEN)
def test_what_is_no_sound_tar_is_told(told: str) -> None:
    with pytest.raises(Flaw, match=told):
        read(BROKEN[told])


def test_bytes_that_are_not_wanted_are_missed_too_when_a_tar_is_cut() -> None:
    with pytest.raises(Flaw, match="cut short"):
        list(tar_members(io.BytesIO(PLAIN[:1612]), limit=lambda name: None))
    assert len(list(tar_members(io.BytesIO(PLAIN), limit=lambda name: 7))) == 2


TYPES = [
    tarfile.REGTYPE, tarfile.AREGTYPE, tarfile.CONTTYPE, tarfile.DIRTYPE, tarfile.SYMTYPE, tarfile.LNKTYPE,
    tarfile.FIFOTYPE, b"V",
]
NAMES = st.text("ab./\u00e9\u3000\udcff", min_size=1, max_size=4)


@settings(max_examples=150, deadline=None)
@given(
    st.lists(st.tuples(NAMES, st.integers(0, 1), st.sampled_from(TYPES), st.integers(0, 1500)), max_size=6),
    st.sampled_from([tarfile.GNU_FORMAT, tarfile.PAX_FORMAT]), st.integers(0, 99),
)
def test_any_tar_is_read_as_tarfile_reads_it(drawn: list[Any], format_: int, cut: int) -> None:
    members = []
    for name, is_long, type_, size in drawn:
        has_content = type_ in TYPES[:3] or type_ == b"V"
        name += "n" * 150 * is_long + ".x"  # tarfile takes a name that ends in a slash for a folder
        members.append(member(name, b"x" * size * has_content, type_, linkname=name))
    written = tar_of(members, format_)
    assert read(written) == by_tarfile(written)
    end = len(written.rstrip(b"\0")) * cut // 100
    with pytest.raises(Flaw):
        read(written[:end])
