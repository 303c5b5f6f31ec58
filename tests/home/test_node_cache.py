"""Each object is downloaded once per node, whole, of its hash, within the bound; else it is read from S3."""

from __future__ import annotations

import logging
import multiprocessing
import os
import shutil
import threading
import time
from collections import namedtuple
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from full_disk import largest_file
from object_server import ObjectServer, object_server
from refusals import refused

from vsetune.errors import ConfigError, StorageError
from vsetune.home import node_cache
from vsetune.home.locks import take_lock
from vsetune.home.node_cache import NodeCache, WrongContent
from vsetune.home.paths import home

Disk = namedtuple("Disk", "total used free")


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[ObjectServer]:
    monkeypatch.setattr(node_cache, "_logged", set())
    with object_server(monkeypatch) as server:
        yield server


def read(cache: NodeCache, url: str, sha256: str) -> bytes | None:
    descriptor = cache.open_copy(url, sha256=sha256)
    if descriptor is None:
        return None
    with open(descriptor, "rb") as file:
        return file.read()


def _read_in_a_process(cache: NodeCache, url: str, sha256: str, answers: multiprocessing.Queue[bytes | None]) -> None:
    answers.put(read(cache, url, sha256))


def test_several_processes_that_ask_at_once_download_once(server: ObjectServer, tmp_path: Path) -> None:
    url, sha256 = server.put("x", b"content" * 100_000)
    cache = NodeCache(tmp_path, 10**9)
    context = multiprocessing.get_context("fork")
    answers = context.Queue()
    processes = [
        context.Process(target=_read_in_a_process, args=(cache, url, sha256, answers)) for _ in range(4)
    ]
    for process in processes:
        process.start()
    found = [answers.get(timeout=30) for _ in processes]
    for process in processes:
        process.join(timeout=30)
    assert found == [b"content" * 100_000] * 4
    assert server.requests == [("/data/x", None)]


def test_what_was_not_used_longest_goes_first_and_stays_whole_for_its_reader(server, tmp_path):
    cache = NodeCache(tmp_path, 2500)
    names = [server.put(name, name.encode() * 1000) for name in "abc"]
    assert read(cache, *names[0]) == b"a" * 1000
    open_b = cache.open_copy(names[1][0], sha256=names[1][1])
    assert read(cache, *names[0]) == b"a" * 1000  # used after b
    assert read(cache, *names[2]) == b"c" * 1000
    there = {path.name for path in tmp_path.iterdir() if path.is_file()}
    assert there == {names[0][1], names[2][1]}
    assert open_b is not None
    with open(open_b, "rb") as file:
        assert file.read() == b"b" * 1000


@pytest.mark.parametrize("damage", [b"other!!", b"cut"])
def test_a_file_that_was_damaged_on_this_disk_is_fetched_again(server, tmp_path, damage):
    url, sha256 = server.put("x", b"content")
    cache = NodeCache(tmp_path, 10**9)
    read(cache, url, sha256)
    (tmp_path / sha256).write_bytes(damage)
    assert read(cache, url, sha256) == b"content"
    assert len(server.requests) == 2


def test_after_a_restart_of_the_machine_a_sound_file_is_kept(server, tmp_path, monkeypatch):
    url, sha256 = server.put("x", b"content")
    cache = NodeCache(tmp_path, 10**9)
    read(cache, url, sha256)
    monkeypatch.setattr(node_cache, "_boot", lambda: "another")
    assert read(cache, url, sha256) == b"content"
    assert len(server.requests) == 1


def test_a_copy_whose_content_is_found_wrong_is_removed(server: ObjectServer, tmp_path: Path) -> None:
    url, sha256 = server.put("x", b"content")
    cache = NodeCache(tmp_path, 10**9)
    read(cache, url, sha256)
    cache.require_sound(url, sha256=sha256)
    sealed = os.stat(tmp_path / sha256)
    (tmp_path / sha256).write_bytes(b"CONTENT")
    os.utime(tmp_path / sha256, ns=(sealed.st_atime_ns, sealed.st_mtime_ns))  # as a disk that turns bits over
    with refused("VSE-O024", by=StorageError, url="s3://data/x"):
        cache.require_sound(url, sha256=sha256)
    assert read(cache, url, sha256) == b"content"


def test_an_object_that_is_not_what_its_list_says_is_one_line_and_leaves_nothing(server, tmp_path):
    cache = NodeCache(tmp_path, 10**9)
    url, sha256 = server.put("x", b"content")
    server.put("x", b"CONTENT")
    with refused("VSE-O032", by=WrongContent, url="s3://data/x"):
        cache.open_copy(url, sha256=sha256, size=7)
    server.put("x", b"cont")
    with refused("VSE-O032", by=WrongContent, reason="4 bytes, the manifest says 7"):
        cache.open_copy(url, sha256=sha256, size=7)
    assert not [path for path in tmp_path.iterdir() if path.is_file()]


def test_a_hash_that_is_wrong_once_is_asked_for_again(server: ObjectServer, tmp_path: Path) -> None:
    url, sha256 = server.put("x", b"content")
    server.put("x", b"CONTENT")
    server.between = lambda: server.put("x", b"content")
    assert read(NodeCache(tmp_path, 10**9), url, sha256) == b"content"


def test_what_does_not_fit_is_read_from_s3_and_told_once(server, tmp_path, caplog, monkeypatch):
    caplog.set_level(logging.WARNING)
    url, sha256 = server.put("sets/x", b"content")
    small, no_disk = NodeCache(tmp_path / "small", 6), NodeCache(tmp_path / "full", 10**9)
    for _ in range(2):
        assert read(small, url, sha256) is None
        assert small.open_copy(url, sha256=sha256, size=7) is None
    (line,) = caplog.messages
    assert line.startswith("s3://data/sets: ")
    monkeypatch.setattr(shutil, "disk_usage", lambda _: Disk(100, 90, 10))
    assert read(no_disk, url, sha256) is None
    assert not [path for path in no_disk.folder.iterdir() if path.is_file()]


def test_a_folder_that_cannot_be_written_is_told_once_and_nothing_is_kept(server, tmp_path, caplog):
    url, sha256 = server.put("x", b"content")
    (tmp_path / "file").write_bytes(b"")
    for _ in range(2):
        assert read(NodeCache(tmp_path / "file" / "cache", 10**9), url, sha256) is None
    (line,) = caplog.messages
    assert line.startswith(f"{tmp_path}/file/cache: cannot keep what is read from S3 (Not a directory)")


def test_a_disk_that_is_full_keeps_nothing(server, tmp_path, caplog):
    url, sha256 = server.put("x", b"content" * 1000)
    with largest_file(1000):
        assert read(NodeCache(tmp_path, 10**9), url, sha256) is None
    assert "cannot keep what is read from S3 (File too large)" in caplog.text
    assert not [path for path in tmp_path.iterdir() if path.is_file()]


def test_what_a_killed_download_left_is_removed_and_what_others_download_stays(server, tmp_path):
    url, sha256 = server.put("x", b"content")
    left, at_work = "0" * 64, "1" * 64
    (tmp_path / "locks").mkdir()
    for name in (left, at_work):
        (tmp_path / f"{name}.partial").write_bytes(b"half")
    with take_lock(tmp_path / "locks" / f"{at_work}.lock", wait_s=0):
        assert read(NodeCache(tmp_path, 10**9), url, sha256) == b"content"
    there = {path.name for path in tmp_path.iterdir() if path.is_file()}
    assert there == {sha256, f"{at_work}.partial"}


def test_fetching_ahead_leaves_the_work_to_whoever_is_at_it(server: ObjectServer, tmp_path: Path) -> None:
    url, sha256 = server.put("x", b"content")
    cache = NodeCache(tmp_path, 10**9)
    (tmp_path / "locks").mkdir()
    with take_lock(tmp_path / "locks" / f"{sha256}.lock", wait_s=0):
        cache.fetch(url, sha256=sha256, size=7, stop=threading.Event())
    assert not server.requests
    cache.fetch(url, sha256=sha256, size=7, stop=threading.Event())
    assert read(cache, url, sha256) == b"content"
    assert len(server.requests) == 1


def test_a_download_that_is_stopped_leaves_nothing(server: ObjectServer, tmp_path: Path) -> None:
    url, sha256 = server.put("x", os.urandom(3 << 20))
    stop = threading.Event()
    stop.set()
    cache = NodeCache(tmp_path, 10**9)
    cache.fetch(url, sha256=sha256, size=3 << 20, stop=stop)
    assert [path.name for path in tmp_path.iterdir()] == ["locks"]


def test_a_file_that_another_process_is_still_writing_is_not_taken_for_whole(server, tmp_path):
    """The folder was removed, hence its locks; the other one then writes under the same name."""
    content = os.urandom(5 << 20)
    url, sha256 = server.put("x", content)
    server.pause_after = 3 << 20
    cache = NodeCache(tmp_path / "cache", 10**9)
    with ThreadPoolExecutor(1) as pool:
        coming = pool.submit(read, cache, url, sha256)
        while not (tmp_path / "cache" / f"{sha256}.partial").exists():
            time.sleep(0.01)
        shutil.rmtree(tmp_path / "cache")
        (tmp_path / "cache").mkdir()
        (tmp_path / "cache" / f"{sha256}.partial").write_bytes(bytes(len(content)))
        server.go_on.set()
        coming.result()
    assert read(cache, url, sha256) == content


def test_the_environment_names_folder_and_size(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert node_cache.node_cache() == NodeCache(home() / "cache" / "shards", 50 * 10**9)
    monkeypatch.setenv("VSETUNE_NODE_CACHE", str(tmp_path))
    monkeypatch.setenv("VSETUNE_NODE_CACHE_GB", "0.5")
    assert node_cache.node_cache() == NodeCache(tmp_path, 5 * 10**8)
    for wrong in ("much", "-1", "nan"):
        monkeypatch.setenv("VSETUNE_NODE_CACHE_GB", wrong)
        with refused("VSE-O025", by=ConfigError, variable="VSETUNE_NODE_CACHE_GB", found=repr(wrong)):
            node_cache.node_cache()
    monkeypatch.setenv("VSETUNE_NODE_CACHE_GB", "1")
    monkeypatch.setenv("VSETUNE_NODE_CACHE", "s3://bucket/cache")
    with refused("VSE-O014", by=ConfigError, found="s3://bucket/cache"):
        node_cache.node_cache()
