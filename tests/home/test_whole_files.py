from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest
from full_disk import largest_file
from refusals import refused

from vsetune.errors import DataError, StorageError
from vsetune.home.whole_files import (
    free_name,
    make_folder,
    partials_in,
    read_json,
    readable_json,
    remove_partials,
    whole_file,
    write_json,
    write_text,
    write_whole,
)


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


@pytest.mark.parametrize("durable", [True, False])
def test_the_old_content_is_replaced(durable: bool, tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"old")
    write_whole(tmp_path / "a", b"new", durable=durable)
    assert (tmp_path / "a").read_bytes() == b"new"
    assert names(tmp_path) == ["a"]


@pytest.mark.parametrize("by_many", [True, False])
@pytest.mark.parametrize("how", [OSError, KeyboardInterrupt])
def test_what_is_cut_short_leaves_the_old_file_alone(by_many: bool, how: type[BaseException], tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"old")
    with pytest.raises(how):
        _cut_short(tmp_path / "a", by_many, how)
    assert (tmp_path / "a").read_bytes() == b"old"
    assert names(tmp_path) == ["a"]


def _cut_short(path: Path, by_many: bool, how: type[BaseException]) -> None:
    with whole_file(path, durable=True, by_many=by_many) as stream:
        stream.write(b"half")
        raise how


def test_a_full_disk_is_told_in_one_line_and_keeps_the_old_file(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"old")
    with largest_file(5_000), refused("VSE-O019", by=StorageError, file=tmp_path / "a", bytes=9_000):
        write_whole(tmp_path / "a", bytes(9_000), durable=True)
    assert (tmp_path / "a").read_bytes() == b"old"
    assert names(tmp_path) == ["a"]


def test_a_file_that_many_may_make_is_readable_by_all_and_made_under_names_of_their_own(tmp_path: Path) -> None:
    before = os.umask(0o077)
    try:
        with whole_file(tmp_path / "a", durable=False, by_many=True) as first:
            first.write(b"first")
            with whole_file(tmp_path / "a", durable=False, by_many=True) as second:
                second.write(b"second")
            assert (tmp_path / "a").read_bytes() == b"second"
    finally:
        os.umask(before)
    assert (tmp_path / "a").read_bytes() == b"first"
    assert stat.S_IMODE((tmp_path / "a").stat().st_mode) == 0o644
    assert names(tmp_path) == ["a"]


def test_a_file_of_one_writer_follows_the_umask(tmp_path: Path) -> None:
    before = os.umask(0o077)
    try:
        write_whole(tmp_path / "a", b"", durable=False)
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "a").stat().st_mode) == 0o600


def test_a_text_gets_its_folders(tmp_path: Path) -> None:
    write_text(tmp_path / "b" / "c" / "a.txt", "é\n")
    assert (tmp_path / "b" / "c" / "a.txt").read_bytes() == "é\n".encode()
    with refused("VSE-O019", by=StorageError, bytes=1, free="free space unknown"):
        write_text(tmp_path / "b" / "c" / "a.txt" / "b" / "x", "x")


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with refused("VSE-O020", by=StorageError, folder=tmp_path / "file" / "below"):
        make_folder(tmp_path / "file" / "below")


def test_json_for_people_has_one_form(tmp_path: Path) -> None:
    assert readable_json({"b": 1, "a": [True]}) == b'{\n "a": [\n  true\n ],\n "b": 1\n}\n'
    write_json(tmp_path / "a.json", {"x": 1.5}, durable=True)
    assert read_json(tmp_path / "a.json") == {"x": 1.5}
    assert read_json(tmp_path / "b.json") is None


def test_json_that_is_none_is_damage(tmp_path: Path) -> None:
    for content, reason in ((b"{", "Expecting"), (b"[" * 100_000, "recursion"), (bytes(2_000_000), "2,000,000 bytes")):
        (tmp_path / "a.json").write_bytes(content)
        with refused("VSE-O022", by=DataError, file=tmp_path / "a.json") as caught:
            read_json(tmp_path / "a.json")
        assert reason in str(caught.value)
    with refused("VSE-O022", by=DataError, reason="no regular file"):
        read_json(tmp_path)


def test_what_was_left_half_written_is_found_and_removed(tmp_path: Path) -> None:
    for name in ("a", "a.partial", "b.tar.partial"):
        (tmp_path / name).touch()
    assert sorted(path.name for path in partials_in(tmp_path)) == ["a.partial", "b.tar.partial"]
    remove_partials(tmp_path)
    assert names(tmp_path) == ["a"]


def test_a_free_name_passes_over_links_that_lead_nowhere(tmp_path: Path) -> None:
    (tmp_path / "a.broken-1").symlink_to(tmp_path / "nowhere")
    assert free_name(tmp_path / "a", "broken").name == "a.broken-2"
