"""Shards changed at random, their hashes renewed: sound, or one line; `verify` and training agree."""

from __future__ import annotations

import hashlib
import io
import itertools
import json
import struct
import tarfile
import zlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import strategies as st

from vsetune.data.stored.manifest import FeatureInfo, ShardInfo
from vsetune.data.stored.plain_files import Flaw, array_from_bytes
from vsetune.data.stored.shards import shard_samples
from vsetune.errors import DataError

Fuzz = Callable[..., None]
Change = Callable[[Path], None]
Members = list[tuple[str, bytes, bytes, int | None]]
"""(name, content, type of the header, size it declares or None for the true one)."""


def header(text: str, version: int = 1) -> bytes:
    line = text.encode("latin-1").ljust(118) if len(text) < 118 else text.encode("latin-1")
    return b"\x93NUMPY" + bytes([version, 0]) + struct.pack("<H" if version == 1 else "<I", len(line)) + line


def described(descr: str = "'<f2'", order: str = "False", shape: str = "(2, 3)") -> bytes:
    return header(f"{{'descr': {descr}, 'fortran_order': {order}, 'shape': {shape}, }}\n")


def saved(array: np.ndarray, *, pickles: bool = False) -> bytes:
    stream = io.BytesIO()
    np.save(stream, array, allow_pickle=pickles)
    return stream.getvalue()


def png(width: int, height: int, data: bytes) -> bytes:
    def chunk(kind: bytes, content: bytes) -> bytes:
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))

    size = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", size) + chunk(b"IDAT", zlib.compress(data)) + chunk(b"IEND", b"")


ARRAYS = [
    described(shape="(1000000000000, 1000000000000)"), described(shape="(-2, 3)"), described(shape="(2, 3, 0)") * 2,
    described("'|O'"), described("'<m8'"),
    described(shape="(" + "1," * 64 + ")"), described("[('a', '<f2')]"), described(shape="(2, 10**9)"), described() * 3,
    header("{" * 5000), header("__import__('os').abort()"), header("{}"), header("x" * 60_000), header("", 2)[:9],
    header("{'descr': '<f2', 'fortran_order': False, 'shape': (2, 3)}", 3), b"", b"PK\x03\x04" + bytes(100),
    saved(np.full((2, 3), np.nan, np.float16)), saved(np.full((2, 3), np.inf, np.float16)), saved(np.zeros((2, 4))),
    saved(np.array([{}], object), pickles=True), saved(np.zeros((2, 3), np.float16))[:-1], saved(np.zeros((), "f2")),
    saved(np.full((2, 4), np.nan, np.float32)), saved(np.full((2, 4), 2, np.float32)), saved(np.zeros((2, 3), ">f2")),
    described("'<f8'") + bytes(48), described(order="True") + bytes(12),
]
RECORDS = [
    b"", b"null", b"[]", b"[" * 100_000, b'{"captions":' * 100_000, b"\xff", b'{"captions": null}', b"NaN",
    b"9" * 9_999,
]
PHOTOGRAPHS = [
    b"", b"\xff\xd8\xff", b"\xff\xd8\xff\xe0" + bytes(50), b"\x89PNG\r\n\x1a\n", png(30_000, 30_000, b""),
    png(6, 5, b""), png(0, 5, b""), png(12_000, 9_000, b""), png(6, 5, bytes(95))[:50], png(2**31, 2**31, b""),
    png(6, 5, bytes(1_000_000)), b"II*\0" + bytes(40), b"RIFF\x10\0\0\0WEBPVP8 ",
]
CONTENTS = st.one_of(st.sampled_from([*ARRAYS, *RECORDS, *PHOTOGRAPHS]), st.binary(max_size=40))
TYPES = [
    tarfile.REGTYPE, tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.BLKTYPE, tarfile.FIFOTYPE,
    tarfile.DIRTYPE, tarfile.GNUTYPE_SPARSE, tarfile.GNUTYPE_LONGNAME, tarfile.XHDTYPE, tarfile.XGLTYPE, b"Z",
]
SIZES = [None, 0, 1, 511, 10**9, 8 * 2**30, -1]
ODD_NAMES = ["../x.json", "/etc/x.json", "00000000.json", "a\nb.json", "x" * 90, "00000001.png", ".json", "\0"]
FIELDS = ["captions", "tokens", "index", "first_caption", "image"]
VALUES = [
    None, True, 0, -1, 3, 10**40, 1.5, "", "a", "\ud800", [], [[]], [None], ["a", "b"], [["a"]], {"a": 1},
    ["x" * 30_000],
    [["w"] * 30_000], [["\ud800"]],
]


def members_of(path: Path) -> Members:
    with tarfile.open(path) as tar:
        return [(each.name, tar.extractfile(each).read(), each.type, None) for each in tar]  # type: ignore[union-attr]


def write(path: Path, members: Members) -> None:
    stream = io.BytesIO()
    for name, content, kind, size in members:
        info = tarfile.TarInfo(name)
        info.type, info.size = kind, len(content) if size is None else size
        stream.write(info.tobuf(tarfile.GNU_FORMAT, "utf-8", "surrogateescape"))
        stream.write(content + bytes(-len(content) % tarfile.BLOCKSIZE))
    path.write_bytes(stream.getvalue() + bytes(2 * tarfile.BLOCKSIZE))


def vouch(folder: Path, name: str) -> None:
    """Put the hash of the changed shard wherever it is compared, so that only its content can speak against it."""
    content = (folder / name).read_bytes()
    plain = json.loads((folder / "manifest.json").read_bytes())
    for shard in plain["splits"]["train"]["shards"]:
        if shard["file"] == name:
            shard |= {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}
    (folder / "manifest.json").write_text(json.dumps(plain))
    parses = json.loads((folder / "parses.json").read_bytes())
    hashes = " ".join(shard["sha256"] for shard in plain["splits"]["train"]["shards"])
    parses["splits"]["train"]["captions_fingerprint"] = hashlib.sha256(hashes.encode()).hexdigest()[:12]
    (folder / "parses.json").write_text(json.dumps(parses))


@st.composite
def changes(draw: st.DrawFn) -> Change:
    """A change to one shard; mostly the manifest then vouches for its bytes."""
    name = draw(st.sampled_from(["train-000000.tar", "train-000001.tar"]))
    kind = draw(st.sampled_from(["content", "content", "field", "field", "more", "header", "order", "bytes", "cut"]))
    number, content = draw(st.integers(0, 100)), draw(CONTENTS)
    field, value = draw(st.sampled_from(FIELDS)), draw(st.sampled_from(VALUES))
    type_, size = draw(st.sampled_from(TYPES)), draw(st.sampled_from(SIZES))
    called = draw(st.one_of(st.none(), st.sampled_from(ODD_NAMES)))
    order, vouched = draw(st.sampled_from(["remove", "twice", "swap", "none"])), draw(st.integers(0, 5)) < 5
    where, flip = draw(st.lists(st.floats(0, 1), min_size=1, max_size=4)), draw(st.integers(1, 255))

    def change(folder: Path) -> None:
        path = folder / name
        members = members_of(path)
        at = number % len(members)
        if kind == "content":
            members[at] = (members[at][0], content, *members[at][2:])
        elif kind == "field":
            records = [place for place, each in enumerate(members) if each[0].endswith(".json")]
            at = records[number % len(records)]
            plain = json.loads(members[at][1]) | {field: value}
            members[at] = (members[at][0], json.dumps(plain).encode(), *members[at][2:])
        elif kind == "more":  # a member that nobody asks for is passed over
            key, suffix = members[-1][0].partition(".")[0], "json" if number == 7 else "txt"
            members.append((f"{key}.{suffix}", content, tarfile.REGTYPE, None))
        elif kind == "header":
            members[at] = (called or members[at][0], members[at][1], type_, size)
        elif order == "remove":
            del members[at]
        elif order == "twice":
            members.append(members[at])
        elif order == "swap":
            members.insert(0, members.pop(at))
        else:
            members = []
        if kind not in {"bytes", "cut"}:
            write(path, members)
        damaged = bytearray(path.read_bytes())
        places = [min(int(each * len(damaged)), len(damaged) - 1) for each in where]
        if kind == "bytes":
            for place in places:
                damaged[place] ^= flip
        path.write_bytes(damaged[: places[0]] if kind == "cut" else damaged)
        if vouched:
            vouch(folder, name)

    return change


def test_changed_shards_are_sound_or_one_line(sound_data: Path, fuzz: Fuzz) -> None:
    fuzz(sound_data, changes(), examples=60)


@pytest.mark.slow
def test_thousands_of_changed_shards_are_sound_or_one_line(sound_data: Path, fuzz: Fuzz) -> None:
    fuzz(sound_data, changes(), examples=2000)


@pytest.mark.parametrize("content", ARRAYS[:15])
def test_an_array_that_lies_is_refused_without_taking_its_memory(content: bytes) -> None:
    with pytest.raises(Flaw):
        array_from_bytes(content)


@pytest.mark.parametrize("dtype", ["float16", "float32", "int16", "bool"])
def test_plain_arrays_are_read_as_numpy_wrote_them(dtype: str) -> None:
    for shape, order in itertools.product([(), (0, 3), (4,), (2, 3), (2, 3, 4)], ["C", "F"]):
        array = np.asarray(np.arange(np.prod(shape, dtype=int)).reshape(shape), dtype, order=order)
        read = array_from_bytes(saved(array))
        assert read.dtype == array.dtype
        assert np.array_equal(read, array)


@pytest.mark.parametrize("type_", TYPES[1:])
def test_members_that_are_no_regular_files_are_refused(tmp_path: Path, type_: bytes) -> None:
    kept = type_ == tarfile.GNUTYPE_SPARSE  # a regular file with holes; this one has no content
    need = "not JSON" if kept else "need regular files only|end of file header"
    write(tmp_path / "x.tar", [("0.json", b"{}", type_, None)])
    size = (tmp_path / "x.tar").stat().st_size
    shard = ShardInfo(file="x.tar", sha256="", bytes=size, images=1, captions=1, first_image=0, first_caption=0)
    features = FeatureInfo(extractor="none", regions=1, regions_min=1, width=1)
    with open(tmp_path / "x.tar", "rb") as stream, pytest.raises((Flaw, DataError), match=need):
        list(shard_samples(stream, size, "x.tar", shard, features, ()))
