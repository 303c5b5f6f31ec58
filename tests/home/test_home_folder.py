"""A folder is whole under the home, whatever happens while its files are sent or fetched."""

from __future__ import annotations

import base64
import json
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from refusals import refused

from vsetune.errors import DamagedObject, Overtaken, StorageError
from vsetune.home import background, home_folder, s3
from vsetune.home.earlier_layout import bring_earlier
from vsetune.home.hashes import sha256_hex
from vsetune.home.home_files import find_folder_in_home
from vsetune.home.home_folder import HomeFolder, last_writer_of
from vsetune.home.s3 import delete, listing, look, put_bytes, versions_below

BIG = bytes(range(256)) * 40
SETTLE_S = 60
Open = Callable[..., HomeFolder]


def is_sent(name: str) -> bool:
    return name != "own" and not name.startswith(".")


@pytest.fixture
def url(prefix: str) -> str:
    return f"{prefix}/runs/tiny/trials/one"


@pytest.fixture
def opened(url: str, tmp_path: Path) -> Iterator[Open]:
    """The folder tmp_path/NAME, fetched. Who writes `claim` last is who works in it."""
    open_ones: list[HomeFolder] = []

    def opening(name: str, *, every_s: float = 3600) -> HomeFolder:
        check = last_writer_of(f"{url}/claim")
        open_ones.append(HomeFolder(tmp_path / name, url, is_sent, every_s=every_s, check=check))
        open_ones[-1].fetch()
        return open_ones[-1]

    yield opening
    for each in open_ones:
        each.close(0)


def send(folder: HomeFolder) -> None:
    folder.send()
    folder.settle(SETTLE_S)


def files_of(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in sorted(folder.rglob("*"))
            if path.is_file() and is_sent(path.name)}


def names(url: str) -> list[str]:
    return sorted(each.removeprefix(f"{url}/") for each in listing(f"{url}/"))


def test_another_machine_finds_the_same_files_and_nothing_else_of_its_own(opened: Open, url: str, tmp_path: Path):
    first, one, other = opened("one"), tmp_path / "one", tmp_path / "other"
    (one / "sub").mkdir()
    for name, content in {"checkpoint": BIG, "sub/best": BIG[::-1], "small": b"{}", "own": b"stays"}.items():
        (one / name).write_bytes(content)
    send(first)
    assert names(url) == ["checkpoint", "small", "sub/best"], "one object for each file, under its name"
    other.mkdir()
    for name in ("checkpoint", "only here", "own"):
        (other / name).write_bytes(b"of an older attempt")
    second = opened("other")
    assert files_of(other) == {name: content for name, content in files_of(one).items() if name != "own"}
    assert second.was_brought
    assert (other / "own").read_bytes() == b"of an older attempt"
    (one / "checkpoint").unlink()
    send(first)
    assert names(url) == ["small", "sub/best"], "what was removed here is removed there"


def test_files_that_go_on_from_the_last_version_sent_stay_and_are_not_fetched_again(opened: Open, tmp_path: Path):
    first = opened("one")
    (tmp_path / "one" / "checkpoint").write_bytes(BIG)
    send(first)
    first.close(1)
    (tmp_path / "one" / "checkpoint").write_bytes(b"newer, S3 was away")
    again = opened("one")
    assert (tmp_path / "one" / "checkpoint").read_bytes() == b"newer, S3 was away"
    assert not again.was_brought
    again.forget()
    again.close(0)
    opened("one")
    assert (tmp_path / "one" / "checkpoint").read_bytes() == BIG


def test_a_server_that_lists_versions_without_quotes_is_understood(
    opened: Open, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = home_folder.versions_below

    def unquoted(*words: Any) -> dict[str, str]:
        return {name: etag.strip('"') for name, etag in real(*words).items()}

    monkeypatch.setattr(home_folder, "versions_below", unquoted)
    for content in (BIG, b"newer, S3 was away"):
        again = opened("one")
        (tmp_path / "one" / "checkpoint").write_bytes(content)
        if content == BIG:
            send(again)
        again.close(0)
    assert not opened("one").was_brought
    assert (tmp_path / "one" / "checkpoint").read_bytes() == b"newer, S3 was away"


def test_what_is_newer_here_is_sent_by_the_next_process_and_what_is_not_is_not_sent_again(
    opened: Open, url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = opened("one")
    for name in ("checkpoint", "best"):
        (tmp_path / "one" / name).write_bytes(BIG)
    send(first)
    first.close(1)
    (tmp_path / "one" / "checkpoint").write_bytes(b"newer, S3 was away")
    again, sent, real = opened("one"), [], s3.upload

    def upload(path: Path, url: str) -> str:
        sent.append(path.name)
        return real(path, url)

    monkeypatch.setattr(home_folder, "upload", upload)
    send(again)
    send(again)
    assert sent == ["checkpoint"]
    again.close(0)
    opened("other")
    assert (tmp_path / "other" / "checkpoint").read_bytes() == b"newer, S3 was away"


def test_a_process_that_was_succeeded_sends_nothing_more(opened: Open, url: str, tmp_path: Path) -> None:
    first = opened("one")
    (tmp_path / "one" / "claim").write_bytes(b"1")
    (tmp_path / "one" / "checkpoint").write_bytes(BIG)
    send(first)
    second = opened("other")
    (tmp_path / "other" / "claim").write_bytes(b"2")
    send(second)
    before = versions_below(url, is_sent)
    (tmp_path / "one" / "checkpoint").write_bytes(b"of the first")
    for use in (lambda: send(first), first.check, lambda: first.settle(0)):
        with refused("VSE-O040", by=Overtaken, url=f"{url}/claim"):
            use()
    assert versions_below(url, is_sent) == before
    first.close(0, clear=True)
    assert not (tmp_path / "one").exists(), "what does not count need not stay"
    (tmp_path / "other" / "checkpoint").write_bytes(b"of the second")
    send(second)
    opened("third")
    assert files_of(tmp_path / "third") == files_of(tmp_path / "other")


@pytest.mark.parametrize("damage", [BIG[:100], BIG[::-1]], ids=["cut", "changed"])
def test_a_damaged_object_is_refused_and_leaves_no_half_file(
    opened: Open, url: str, tmp_path: Path, damage: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = opened("one")
    (tmp_path / "one" / "checkpoint").write_bytes(BIG)
    monkeypatch.setattr(s3, "sha256_hex", lambda content: "0" * 64)  # of other content than is stored
    put_bytes(f"{url}/checkpoint", damage)
    monkeypatch.undo()
    with refused("VSE-O043", by=DamagedObject, url=f"{url}/checkpoint", need=len(damage)):
        opened("other")
    assert files_of(tmp_path / "other") == {}
    first.close(0)


def test_an_object_that_goes_while_it_is_fetched_is_an_outage(
    opened: Open, url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put_bytes(f"{url}/checkpoint", BIG)
    real = home_folder.versions_below

    def then_removed(*words: object) -> dict[str, str]:
        found = real(*words)  # type: ignore[arg-type]
        delete([f"{url}/checkpoint"])
        return found

    monkeypatch.setattr(home_folder, "versions_below", then_removed)
    with refused("VSE-O034", by=StorageError, url=f"{url}/checkpoint"):
        opened("one")


def test_while_the_server_is_away_the_writer_goes_on_and_the_newest_version_arrives(
    opened: Open, url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(background, "_FIRST_PAUSE_S", 0.01)
    first = opened("one")
    is_back, tried, real = threading.Event(), threading.Event(), s3.upload

    def upload(path: Path, url: str) -> str:
        tried.set()
        if not is_back.is_set():
            raise StorageError("S3 is away")
        return real(path, url)

    monkeypatch.setattr(home_folder, "upload", upload)
    for version in range(3):
        (tmp_path / "one" / ".next").write_bytes(BIG + bytes([version]))
        (tmp_path / "one" / ".next").replace(tmp_path / "one" / "checkpoint")
        first.send()
        assert tried.wait(30)
    with pytest.raises(StorageError, match=r"S3 is away|not sent within"):
        first.settle(0.05)
    is_back.set()
    first.settle(SETTLE_S)
    opened("other")
    assert (tmp_path / "other" / "checkpoint").read_bytes() == BIG + bytes([2])


def test_a_folder_that_is_stored_nowhere_else_is_not_removed(
    opened: Open, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = opened("one")

    def away(*words: object) -> str:
        raise StorageError("S3 is away")

    monkeypatch.setattr(home_folder, "upload", away)
    (tmp_path / "one" / "checkpoint").write_bytes(BIG)
    first.send()
    first.close(0.05, clear=True)
    assert (tmp_path / "one" / "checkpoint").read_bytes() == BIG
    monkeypatch.undo()
    again = opened("one")
    again.send()
    again.close(SETTLE_S, clear=True)
    assert not (tmp_path / "one").exists()


def test_changes_are_sent_without_being_asked_for(opened: Open, url: str, tmp_path: Path) -> None:
    first = opened("one", every_s=0.02)
    first.send()
    first.settle(SETTLE_S)
    (tmp_path / "one" / "progress").write_bytes(b"how far it came")
    while "progress" not in names(url):
        first.check()


def test_a_file_that_is_replaced_while_it_is_sent_arrives_as_it_was_and_then_as_it_is(
    opened: Open, url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, file, arrived, real = opened("one"), tmp_path / "one" / "checkpoint", [], s3.put_bytes

    def replaced_meanwhile(url: str, content: bytes, **options: object) -> str:
        if not arrived:
            file.with_name(".next").write_bytes(b"the next one")
            file.with_name(".next").replace(file)
        arrived.append(content)
        return real(url, content, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(s3, "put_bytes", replaced_meanwhile)
    file.write_bytes(BIG)
    send(first)
    send(first)
    assert arrived == [BIG, b"the next one"]


def test_a_large_file_goes_up_in_parts_and_comes_back_whole(
    opened: Open, url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(s3, "_PART_BYTES", 5 << 20)
    content, first = BIG * 600, opened("one")
    (tmp_path / "one" / "checkpoint").write_bytes(content)
    send(first)
    assert (look(f"{url}/checkpoint") or pytest.fail("gone")).etag.endswith('-2"')
    opened("other")
    assert (tmp_path / "other" / "checkpoint").read_bytes() == content
    send(first)
    assert first.check() is None


@pytest.mark.parametrize("note", [b"{", b"[]", b'{"checkpoint": 1}', b'{"checkpoint": ["x", 3]}'])
def test_a_damaged_note_of_versions_brings_everything_anew(opened: Open, tmp_path: Path, note: bytes) -> None:
    first = opened("one")
    (tmp_path / "one" / "checkpoint").write_bytes(BIG)
    send(first)
    first.close(1)
    (tmp_path / "one" / "checkpoint").write_bytes(b"newer")
    (tmp_path / "one" / ".versions.json").write_bytes(note)
    assert opened("one").was_brought
    assert (tmp_path / "one" / "checkpoint").read_bytes() == BIG


def stored_earlier(url: str, files: Mapping[str, bytes]) -> None:
    """As version 0.2 stored a folder: small files in the list, others in pieces."""
    plain: dict[str, object] = {}
    for name, content in files.items():
        if len(content) < 100:
            plain[name] = {"content": base64.b64encode(content).decode()}
            continue
        pieces = []
        for piece in (content[:5000], content[5000:]):
            key = f"objects/{sha256_hex(piece)}-0a0b0c0d"
            put_bytes(f"{url}/{key}", piece)
            pieces.append({"key": key, "size": len(piece), "sha256": sha256_hex(piece)})
        plain[name] = {"size": len(content), "pieces": pieces}
    put_bytes(f"{url}/contents.json", json.dumps({"format": 1, "number": 3, "writer": "x", "files": plain}).encode())


EARLIER = {"checkpoint": BIG, "executions.json": b"{}", "sub/best": BIG[::-1]}


def test_a_folder_of_an_earlier_version_is_read_and_then_goes_on_as_objects(opened: Open, url: str, tmp_path: Path):
    stored_earlier(url, EARLIER)
    for name, content in EARLIER.items():
        assert bring_earlier(f"{url}/{name}", tmp_path / "looked")
        assert (tmp_path / "looked").read_bytes() == content
    assert not bring_earlier(f"{url}/other", tmp_path / "looked")
    opened("one")
    assert files_of(tmp_path / "one") == EARLIER
    assert names(url) == sorted(EARLIER)


def test_a_folder_within_one_of_an_earlier_version_is_found(
    url: str, prefix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VSETUNE_HOME", prefix)
    monkeypatch.setenv("VSETUNE_NODE_FOLDER", str(tmp_path))
    stored_earlier(f"{prefix}/runs/tiny", {"study.yaml": b"study", "plugins/a/loss.py": BIG, "plugins/b.py": b"code"})
    find_folder_in_home(tmp_path / "runs" / "tiny" / "plugins")
    assert files_of(tmp_path / "runs") == {"tiny/plugins/a/loss.py": BIG, "tiny/plugins/b.py": b"code"}


def test_what_died_while_it_was_converted_is_converted_by_the_next(opened: Open, url: str, tmp_path: Path) -> None:
    stored_earlier(url, EARLIER)
    put_bytes(f"{url}/checkpoint", BIG)
    opened("one")
    assert files_of(tmp_path / "one") == EARLIER


@pytest.mark.parametrize(
    "content", [b"{", b"[]", b'{"format": 1}', b'{"format": 1, "files": {"../x": {"content": ""}}}'],
    ids=["torn", "list", "no files", "leads out"],
)
def test_a_damaged_list_of_an_earlier_version_is_refused(opened: Open, url: str, content: bytes) -> None:
    put_bytes(f"{url}/contents.json", content)
    with refused("VSE-O041", by=StorageError, url=f"{url}/contents.json"):
        opened("one")


@pytest.mark.parametrize("damage", ["gone", "changed"])
def test_a_damaged_piece_of_an_earlier_version_is_refused(opened: Open, url: str, damage: str) -> None:
    stored_earlier(url, EARLIER)
    piece = next(listing(f"{url}/objects/"))
    if damage == "gone":
        delete([piece])
    else:
        put_bytes(piece, b"other")
    with refused("VSE-O043", by=DamagedObject, url=piece):
        opened("one")
