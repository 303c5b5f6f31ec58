"""A mirrored folder is whole and consistent on the server, whatever happens while it is sent or fetched."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from refusals import refused

from vsetune.errors import StorageError
from vsetune.storage import mirror as mirrors
from vsetune.storage import mirror_contents, s3
from vsetune.storage.mirror import Mirror, MirroredFiles
from vsetune.storage.mirror_contents import DamagedObject, TakenOver, read_contents
from vsetune.storage.s3 import delete, listing, put_bytes

BIG = bytes(range(256)) * 40
SETTLE_S = 60


def names(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if ".mirror" not in path.parts
                  and path.is_file() and "superseded" not in path.name)


FILES = MirroredFiles(names, refreshed=lambda name: name == "marker", refresh_s=3600, growing=frozenset({"log"}),
                      kept_aside=frozenset({"log"}))


@pytest.fixture
def open_mirror(prefix: str, tmp_path: Path) -> Iterator[Callable[..., Mirror]]:
    """A mirror of tmp_path/NAME, fetched."""
    opened: list[Mirror] = []

    def opening(name: str, files: MirroredFiles = FILES) -> Mirror:
        (tmp_path / name).mkdir(exist_ok=True)
        opened.append(Mirror(tmp_path / name, f"{prefix}/trial", files))
        opened[-1].fetch()
        return opened[-1]

    yield opening
    for each in opened:
        each.close(0)


def send(mirror: Mirror) -> None:
    mirror.send()
    mirror.settle(SETTLE_S)


def files_of(folder: Path) -> dict[str, bytes]:
    return {name: (folder / name).read_bytes() for name in names(folder)}


def objects(prefix: str) -> list[str]:
    return sorted(url for url in listing(f"{prefix}/trial/objects/"))


def test_another_machine_finds_the_same_files_and_nothing_else_of_its_own(open_mirror, prefix, tmp_path):
    first = open_mirror("one")
    one, other = tmp_path / "one", tmp_path / "other"
    (one / "sub").mkdir()
    for name, content in {"checkpoint": BIG, "sub/best": BIG[::-1], "small": b"{}", "log": BIG * 3}.items():
        (one / name).write_bytes(content)
    send(first)
    other.mkdir()
    (other / "checkpoint").write_bytes(b"of an older attempt")
    (other / "log").write_bytes(b"not known elsewhere")
    second = open_mirror("other")
    assert files_of(other) == files_of(one)
    assert second.was_brought
    assert (other / "log.superseded-1").read_bytes() == b"not known elsewhere"
    (one / "checkpoint").unlink()
    send(first)
    assert len(objects(prefix)) == 2, "what the list no longer names is removed"


def test_a_log_that_another_machine_went_on_with_is_not_kept_aside(open_mirror, tmp_path):
    first, second = open_mirror("one"), tmp_path / "two"
    (tmp_path / "one/log").write_bytes(BIG)
    send(first)
    other = open_mirror("two")
    (second / "log").write_bytes(BIG * 2)
    send(other)
    first.close(0)
    open_mirror("one")
    assert [path.name for path in (tmp_path / "one").glob("log*")] == ["log"]
    assert (tmp_path / "one/log").read_bytes() == BIG * 2


def test_files_that_go_on_from_the_last_version_sent_stay_and_are_not_fetched_again(open_mirror, tmp_path):
    first = open_mirror("one")
    (tmp_path / "one" / "checkpoint").write_bytes(BIG)
    send(first)
    first.close(1)
    (tmp_path / "one" / "checkpoint").write_bytes(b"newer, S3 was away")
    again = open_mirror("one")
    assert (tmp_path / "one" / "checkpoint").read_bytes() == b"newer, S3 was away"
    assert not again.was_brought
    again.forget()
    again.close(0)
    open_mirror("one")
    assert (tmp_path / "one" / "checkpoint").read_bytes() == BIG


def test_a_process_that_was_succeeded_sends_nothing_more_and_removes_nothing_of_its_successor(
    open_mirror: Callable[..., Mirror], prefix: str, tmp_path: Path
) -> None:
    first = open_mirror("one")
    (tmp_path / "one" / "checkpoint").write_bytes(BIG)
    send(first)
    second = open_mirror("other")
    send(second)
    for name in ("one", "other"):
        (tmp_path / name / "checkpoint").write_bytes(BIG + b"the same step, trained twice")
    send(second)
    before = objects(prefix)
    for use in (lambda: send(first), first.check):
        with refused("VSE-O040", by=TakenOver):
            use()
    assert objects(prefix) == before
    assert files_of(tmp_path / "other") == files_of(tmp_path / "one")


def test_who_dies_before_the_list_is_written_leaves_the_old_version_whole(open_mirror, prefix, tmp_path, monkeypatch):
    first = open_mirror("one")
    (tmp_path / "one" / "checkpoint").write_bytes(BIG)
    send(first)

    def dies(*args: object, **options: object) -> str:
        raise StorageError("cut off")

    monkeypatch.setattr(mirror_contents, "put_bytes", dies)
    (tmp_path / "one" / "checkpoint").write_bytes(BIG[::-1])
    first.send()
    with pytest.raises(StorageError, match="cut off"):
        first.settle(0.5)
    first.close(0)
    monkeypatch.undo()
    assert len(objects(prefix)) == 2
    second = open_mirror("other")
    assert (tmp_path / "other" / "checkpoint").read_bytes() == BIG
    send(second)
    assert len(objects(prefix)) == 1, "what no list names is removed by the next writer"


@pytest.mark.parametrize("damage", ["cut", "changed", "gone"])
def test_a_damaged_object_is_refused_and_leaves_no_half_file(open_mirror, prefix, tmp_path, damage):
    first = open_mirror("one")
    (tmp_path / "one" / "checkpoint").write_bytes(BIG)
    send(first)
    (url,) = objects(prefix)
    if damage == "gone":
        delete([url])
    else:
        put_bytes(url, BIG[:100] if damage == "cut" else BIG[::-1])
    message = "VSE-O042" if damage == "gone" else "VSE-O043"
    with refused(message, by=DamagedObject, url=url, need=10_240):
        open_mirror("other")
    assert files_of(tmp_path / "other") == {}


@pytest.mark.parametrize(
    "content",
    [b"{", b"[]", b'{"format": 2}', b'{"format": 1, "number": 1, "writer": "", "files": {"../x": {"content": ""}}}'],
    ids=["torn", "list", "format", "leads out"],
)
def test_a_damaged_list_is_refused(open_mirror: Callable[..., Mirror], prefix: str, content: bytes) -> None:
    put_bytes(f"{prefix}/trial/contents.json", content)
    with refused("VSE-O041", by=StorageError, url=f"{prefix}/trial/contents.json"):
        open_mirror("one")


def test_while_the_server_is_away_the_writer_goes_on_and_the_newest_version_arrives(
    open_mirror: Callable[..., Mirror], prefix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mirrors, "FIRST_PAUSE_S", 0.01)
    first = open_mirror("one")
    is_back, tried = threading.Event(), threading.Event()
    real = mirror_contents.upload

    def upload(path: Path, url: str, *, sha256: str) -> None:
        tried.set()
        if not is_back.is_set():
            raise StorageError("S3 is away")
        real(path, url, sha256=sha256)

    monkeypatch.setattr(mirror_contents, "upload", upload)
    for version in range(3):
        (tmp_path / "one" / "next").write_bytes(BIG + bytes([version]))
        (tmp_path / "one" / "next").replace(tmp_path / "one" / "checkpoint")
        first.send()
        assert tried.wait(30)
    with pytest.raises(StorageError, match=r"S3 is away|not sent within"):
        first.settle(0.05)
    is_back.set()
    first.settle(SETTLE_S)
    assert read_contents(first.url).number >= 1
    assert len(objects(prefix)) == 1
    open_mirror("other")
    assert (tmp_path / "other" / "checkpoint").read_bytes() == BIG + bytes([2])
    assert not list((tmp_path / "one" / ".mirror").glob("snapshot-*"))


def test_of_a_log_that_grows_only_the_end_is_sent_again(open_mirror, prefix, tmp_path, monkeypatch):
    monkeypatch.setattr(mirror_contents, "_PIECE_BYTES", 1000)
    first, log = open_mirror("one"), tmp_path / "one" / "log"
    with log.open("ab", buffering=0) as stream:
        stream.write(BIG[:2500])
        send(first)
        before = set(objects(prefix))
        stream.write(BIG[2500:3300])
        send(first)
    assert len(before & set(objects(prefix))) == 2
    assert len(objects(prefix)) == 4
    open_mirror("other")
    assert (tmp_path / "other" / "log").read_bytes() == BIG[:3300]


def test_small_files_that_are_refreshed_go_without_a_send(open_mirror, tmp_path):
    files = MirroredFiles(names, refreshed=lambda name: name == "marker", refresh_s=0.02)
    first = open_mirror("one", files)
    (tmp_path / "one" / "checkpoint").write_bytes(BIG)
    first.send()
    first.settle(SETTLE_S)
    (tmp_path / "one" / "marker").write_bytes(b"how far it came")
    (tmp_path / "one" / "checkpoint").write_bytes(b"belongs to the next version")
    while "marker" not in read_contents(first.url).files:
        first.check()
    open_mirror("other")
    assert (tmp_path / "other" / "checkpoint").read_bytes() == BIG


def test_an_answer_that_was_lost_is_no_other_writer(open_mirror, tmp_path, monkeypatch):
    first = open_mirror("one")

    def put_twice(*args: object, **options: object) -> str:
        put_bytes(*args, **options)  # type: ignore[arg-type]
        return put_bytes(*args, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(mirror_contents, "put_bytes", put_twice)
    for content in (BIG, b"small"):
        (tmp_path / "one" / "checkpoint").write_bytes(content)
        send(first)
    open_mirror("other")
    assert (tmp_path / "other" / "checkpoint").read_bytes() == b"small"


def test_a_large_file_goes_up_in_parts_and_comes_back_whole(open_mirror, prefix, tmp_path, monkeypatch):
    monkeypatch.setattr(s3, "_PART_BYTES", 5 << 20)
    content = BIG * 600
    first = open_mirror("one")
    (tmp_path / "one" / "checkpoint").write_bytes(content)
    send(first)
    (url,) = objects(prefix)
    assert (s3.look(url) or pytest.fail("gone")).etag.endswith('-2"')
    open_mirror("other")
    assert (tmp_path / "other" / "checkpoint").read_bytes() == content
