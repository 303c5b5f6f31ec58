"""What a home promises of single files, whether it is a folder or a prefix on object storage."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from real_servers import s3_server

from vsetune.home import s3
from vsetune.home.home_files import find_in_home, keep_in_home, names_in, read, remove, require_usable, write
from vsetune.home.paths import home
from vsetune.home.s3 import ObjectChanged

SMALL = 4096


@pytest.fixture(scope="module")
def seaweedfs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """The environment of a real server."""
    with s3_server(tmp_path_factory.mktemp("server")) as variables:
        yield variables


@pytest.fixture(params=["folder", "moto", pytest.param("seaweedfs", marks=pytest.mark.slow)])
def folder(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder of a home of each kind."""
    monkeypatch.setenv("VSETUNE_HOME", str(tmp_path / "home"))
    if request.param == "moto":
        monkeypatch.setenv("VSETUNE_HOME", request.getfixturevalue("prefix"))
    if request.param != "seaweedfs":
        monkeypatch.setenv("VSETUNE_NODE_FOLDER", str(tmp_path / "home"))
        yield home() / "nightly" / "small"
        return
    prefix = f"s3://home/{tmp_path.name}"
    for name, value in request.getfixturevalue("seaweedfs").items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("VSETUNE_HOME", prefix)
    monkeypatch.setenv("VSETUNE_NODE_FOLDER", str(tmp_path / "home"))
    s3._client.cache_clear()
    require_usable(prefix, named="VSETUNE_HOME")
    yield home() / "nightly" / "small"
    s3._client.cache_clear()


def content_of(path: Path) -> bytes | None:
    found = read(path, most=SMALL)
    return None if found is None else found[0]


def test_what_was_written_is_read_and_what_was_removed_is_not(folder: Path) -> None:
    assert read(folder / "a", most=SMALL) is None
    version = write(folder / "a", b"one")
    assert read(folder / "a", most=SMALL) == (b"one", version)
    assert write(folder / "a", b"two") != version
    assert content_of(folder / "a") == b"two"
    for _ in range(2):
        remove(folder / "a")
    assert content_of(folder / "a") is None


def test_names_are_those_of_all_files_below(folder: Path) -> None:
    assert names_in(folder) == []
    for name in ("b", "a/c", "a/d e", ".hidden"):
        write(folder / name, b"x")
    write(folder.with_name("small-too") / "other", b"x")
    assert names_in(folder) == ["a/c", "a/d e", "b"]


def test_a_file_is_written_once_if_it_must_be_absent(folder: Path) -> None:
    write(folder / "a", b"one", if_absent=True)
    with pytest.raises(ObjectChanged):
        write(folder / "a", b"two", if_absent=True)
    assert content_of(folder / "a") == b"one"


def test_a_file_is_written_over_the_version_that_was_read_alone(folder: Path) -> None:
    with pytest.raises(ObjectChanged):
        write(folder / "a", b"two", if_unchanged=write(folder / "other", b"one"))
    first = write(folder / "a", b"one")
    second = write(folder / "a", b"two", if_unchanged=first)
    with pytest.raises(ObjectChanged):
        write(folder / "a", b"three", if_unchanged=first)
    assert read(folder / "a", most=SMALL) == (b"two", second)


def test_of_many_at_once_one_writes(folder: Path) -> None:
    version = write(folder / "a", b"before")

    def tried(number: int) -> int | None:
        try:
            write(folder / "a", f"by {number}".encode(), if_unchanged=version)
            return number
        except ObjectChanged:
            return None

    with ThreadPoolExecutor(8) as pool:
        winners = [number for number in pool.map(tried, range(16)) if number is not None]
    assert len(winners) == 1
    assert content_of(folder / "a") == f"by {winners[0]}".encode()


def test_a_file_of_one_machine_is_found_on_another(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder.mkdir(parents=True)
    (folder / "page.html").write_bytes(b"a page" * 1000)
    address = keep_in_home(folder / "page.html")
    if address is None:  # a folder: every machine has it
        assert not find_in_home(folder / "page.html")
        return
    monkeypatch.setenv("VSETUNE_NODE_FOLDER", str(tmp_path / "another"))
    there = home() / "nightly" / "small" / "page.html"
    for spoil in (lambda: None, lambda: there.write_bytes(b"other"), lambda: None):
        spoil()
        assert find_in_home(there)
        assert there.read_bytes() == b"a page" * 1000
    assert find_in_home(there, into=tmp_path / "aside")
    assert (tmp_path / "aside" / "page.html").read_bytes() == b"a page" * 1000
    assert not find_in_home(there.with_name("missing"))


@pytest.mark.parametrize(
    "name", ["plain", "with blank", "ünï", "100%+&?#", "a=b;c"], ids=["plain", "blank", "letters", "signs", "others"]
)
def test_names_of_any_signs_hold(folder: Path, name: str) -> None:
    write(folder / name, name.encode())
    assert content_of(folder / name) == name.encode()
    assert names_in(folder) == [name]


def test_large_content_is_whole(folder: Path) -> None:
    content = bytes(range(256)) * 5000
    write(folder / "large", content)
    assert (read(folder / "large", most=1 << 24) or (b"", ""))[0] == content
