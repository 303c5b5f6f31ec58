"""Manifests and the files beside them, changed at random: sound, or one line; `verify` and training agree."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import strategies as st
from nested_places import places, put

Fuzz = Callable[..., None]
Change = Callable[[Path], None]

NAMES = [
    "../manifest.json", "/dev/zero", "/etc/passwd", "fifo", "zero", "outside", "folder", "", ".", "..", "a\0b",
    "\ud800", "x" * 5000, "s3://bucket/x", "pipe:cat /etc/passwd", "train-000000.tar", "vocabulary.json", "a\nb",
    "loop",
]
VALUES = st.one_of(
    st.sampled_from([*NAMES, None, True, -1, 0, 1, 2, 10**12, 10**30, 1e308, -0.5, [], {}, [[]], {"a": {}}]),
    st.integers(-5, 50),
    st.text(max_size=5),
)
UNREAD: list[tuple[str, ...]] = [("name",), ("notes",), ("features", "recipe"), ("features", "recipe", "model")]
"""Places of a manifest that take many values."""
RAW = st.sampled_from([
    b"", b"null", b"[]", b"{", b"[" * 100_000, b'{"a":' * 100_000, b'"\xff\xfe"', b"NaN", b"1" * 5_000, b"\0" * 64,
    b'{"format": "vsetune-data", "format": "vsetune-data", "version": 1}', b'{"words": null}', b'{"words": [1]}',
])


@st.composite
def changes(draw: st.DrawFn) -> Change:
    """A change to one of the JSON files; often the manifest then vouches for the changed file."""
    name = draw(st.sampled_from(["manifest.json", "manifest.json", "vocabulary.json", "parses.json"]))
    kind = draw(st.sampled_from(["values", "values", "values", "unread", "bytes", "raw", "special"]))
    vouched = draw(st.booleans())
    number, value = draw(st.integers(0, 10_000)), draw(VALUES)
    more = draw(st.lists(st.tuples(st.integers(0, 10_000), VALUES, st.booleans()), max_size=2))
    remove, raw = draw(st.booleans()) and draw(st.booleans()), draw(RAW)
    special = draw(st.sampled_from(["fifo", "zero", "outside", "folder", "loop", "nothing"]))
    where, flip, cut = draw(st.floats(0, 1)), draw(st.integers(1, 255)), draw(st.booleans())

    def change(folder: Path) -> None:
        path = folder / name
        if kind == "values":
            plain = json.loads(path.read_bytes())
            for at, what, gone in [(number, value, remove), *more]:
                known = places(plain)
                plain = put(plain, known[at % len(known)], what, remove=gone)
                if not isinstance(plain, (dict, list)):
                    break
            path.write_text(json.dumps(plain))
        elif kind == "unread":
            plain = json.loads((folder / "manifest.json").read_bytes())
            plain = put(plain, UNREAD[number % len(UNREAD)], value, remove=False)
            (folder / "manifest.json").write_text(json.dumps(plain))
        elif kind == "bytes":
            content = bytearray(path.read_bytes())
            at = min(int(where * len(content)), len(content) - 1)
            content[at] ^= flip
            path.write_bytes(content[:at] if cut else content)
        elif kind == "raw":
            path.write_bytes(raw)
        else:
            path.unlink()
            if special != "nothing":
                path.symlink_to(special)
        if vouched and name == "vocabulary.json" and path.is_file() and path.stat().st_size < 1 << 20:
            plain = json.loads((folder / "manifest.json").read_bytes())
            plain["vocabulary"]["sha256"] = hashlib.sha256(path.read_bytes()).hexdigest()
            (folder / "manifest.json").write_text(json.dumps(plain))

    return change


@pytest.fixture
def hostile(sound_data: Path) -> Path:
    """A sound data set in a folder where nasty files wait to be named."""
    os.mkfifo(sound_data / "fifo")
    (sound_data / "zero").symlink_to("/dev/zero")
    (sound_data / "outside").symlink_to("/etc/hostname")
    (sound_data / "loop").symlink_to("loop")
    (sound_data / "folder").mkdir()
    return sound_data


def test_changed_manifests_are_sound_or_one_line(hostile: Path, fuzz: Fuzz) -> None:
    fuzz(hostile, changes(), examples=60)


@pytest.mark.slow
def test_thousands_of_changed_manifests_are_sound_or_one_line(hostile: Path, fuzz: Fuzz) -> None:
    fuzz(hostile, changes(), examples=2000)


def test_the_data_set_that_is_changed_is_sound(sound_data: Path, verdicts: Callable[[Path], tuple[Any, Any]]) -> None:
    assert verdicts(sound_data) == ([], None)


@pytest.mark.parametrize("name", ["manifest.json", "vocabulary.json", "train-000000.tar", "parses.json"])
@pytest.mark.parametrize("special", ["fifo", "/dev/zero", "/etc/hostname", "folder", "loop"])
def test_nothing_but_regular_files_of_the_folder_is_opened(hostile, verdicts, name, special):
    (hostile / name).unlink()
    (hostile / name).symlink_to(special)
    told, read = verdicts(hostile)
    assert told or (name == "parses.json" and special in {"loop", "folder"})  # no such file: no parses
    assert read or name == "parses.json"


def test_the_folder_itself_may_be_a_link(sound_data, tmp_path, verdicts):
    (tmp_path / "link").symlink_to(shutil.copytree(sound_data, tmp_path / "elsewhere"))
    assert verdicts(tmp_path / "link") == ([], None)
