"""The log of a study whose home is on object storage: nothing of an overtaken driver counts, nothing sent is lost."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest
from refusals import refused
from s3_server import endpoint, machine, prefix
from studied import BEGUN, OPENED, POINTS, attempt_of, point

from vsetune.errors import Overtaken, StorageError
from vsetune.home import s3
from vsetune.home.s3 import listing
from vsetune.records import log as logs
from vsetune.records.events import Event, Validated
from vsetune.records.log import LOG_FILE, LogWriter, bring_up_to_date, lines_of

__all__ = ["endpoint", "machine", "prefix"]


@pytest.fixture
def writer(prefix: str, tmp_path: Path) -> Callable[..., LogWriter]:
    """A writer on the machine of that name."""

    def on(name: str, **words: Callable[[str], None]) -> LogWriter:
        return LogWriter(tmp_path / name, f"{prefix}/runs/tiny", **words)

    return on


def there(prefix: str, tmp_path: Path) -> list[Event]:
    """What the server has, read by a machine that had nothing."""
    path = tmp_path / f"reader-{time.monotonic_ns()}" / LOG_FILE
    bring_up_to_date(path, f"{prefix}/runs/tiny")
    return [line.event() for line in lines_of(path, number=0, strict=True)]


def test_a_driver_that_was_overtaken_adds_nothing_and_hears_of_it_once(
    writer: Callable[..., LogWriter], prefix: str, tmp_path: Path
) -> None:
    heard: list[str] = []
    paused = writer("paused", on_overtaken=heard.append)
    paused.append(OPENED)
    paused.settle()
    second = writer("second")
    second.append(BEGUN)
    second.settle()
    paused.append(Validated(attempt_of(BEGUN), (point(99),), 4.0))
    for _ in range(2):
        with refused("VSE-R004", by=Overtaken):
            paused.settle()
    second.append(Validated(attempt_of(BEGUN), POINTS, 5.0))
    second.close()
    paused.close()
    assert len(heard) == 1
    assert there(prefix, tmp_path) == [OPENED, BEGUN, Validated(attempt_of(BEGUN), POINTS, 5.0)]


def test_the_settled_end_is_behind_what_the_server_has(
    writer: Callable[..., LogWriter], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logs, "_SEND_EVERY_S", 3600.0)
    log = writer("first")
    log.append(OPENED)
    log.settle()
    sent = log.settled_end
    assert sent == log.path.stat().st_size
    log.append(BEGUN)  # not sent
    assert log.settled_end == sent < log.path.stat().st_size
    log.close()
    assert log.settled_end == log.path.stat().st_size


def test_a_server_that_is_away_for_a_while_gets_everything_afterwards_and_files_are_forgotten_only_then(
    writer: Callable[..., LogWriter], prefix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun = writer("first")
    begun.append(OPENED)
    begun.settle()
    done: list[str] = []
    with monkeypatch.context() as away:
        def refuse(*_: object, **__: object) -> str:
            raise StorageError("the server is away")

        away.setattr(logs, "put_bytes", refuse)
        begun.append(BEGUN)
        begun.after_settled(lambda: done.append("forgotten"))
        with pytest.raises(StorageError, match="the server is away"):
            begun.settle(within_s=0.5)
        assert done == []
    begun.settle(within_s=60)
    begun.close()
    assert done == ["forgotten"]
    assert there(prefix, tmp_path) == [OPENED, BEGUN]
    assert len(list(listing(f"{prefix}/runs/tiny/log/"))) == 2


def sent(prefix: str) -> list[str]:
    """The server's objects of the log."""
    return sorted(listing(f"{prefix}/runs/tiny/log/"))


@pytest.fixture
def on_disk(tmp_path: Path) -> Path:
    """The log of a study whose home was a folder until now."""
    log = LogWriter(tmp_path / "moved")
    for event in (OPENED, BEGUN, Validated(attempt_of(BEGUN), POINTS, 4.0)):
        log.append(event)
    log.close()
    return log.path


def test_a_log_from_a_home_on_disk_stays_whole_before_an_empty_server_and_is_sent_by_its_next_driver(
    on_disk: Path, writer: Callable[..., LogWriter], prefix: str, tmp_path: Path
) -> None:
    before = on_disk.read_bytes()
    for _ in range(2):
        assert bring_up_to_date(on_disk, f"{prefix}/runs/tiny") == (0, 0)
        assert on_disk.read_bytes() == before
    log = writer("moved")
    assert log.last == 2
    log.close()
    assert on_disk.read_bytes() == before
    assert len(there(prefix, tmp_path)) == 3


def test_sending_a_long_log_that_was_interrupted_goes_on_with_the_lines_that_the_server_lacks(
    on_disk: Path, writer: Callable[..., LogWriter], prefix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logs, "_LARGEST_SENT", 10)
    before = on_disk.read_bytes()
    put, puts = s3.put_bytes, []
    with monkeypatch.context() as broken:
        def break_off(*words: object, **more: object) -> str:
            puts.append(1)
            if len(puts) > 1:
                raise StorageError("the server is away")
            return put(*words, **more)  # type: ignore[arg-type]

        broken.setattr(logs, "put_bytes", break_off)
        log = writer("moved")
        with pytest.raises(StorageError, match="the server is away"):
            log.settle(within_s=1.0)
        log.close(within_s=0.1)
    assert len(sent(prefix)) == 1
    (on_disk.parent / ".study.log.objects").unlink()  # as a kill leaves it between the object and the note of it
    again = writer("moved")
    assert (again.last, again.settled_end) == (2, len(before.splitlines(keepends=True)[0]))
    again.close()
    assert on_disk.read_bytes() == before
    assert len(sent(prefix)) == 3
    assert b"".join(found[0] for name in sent(prefix) if (found := s3.find(name, most=1 << 20))) == before


@pytest.mark.parametrize("left", [1, 0])
def test_a_server_that_has_lost_objects_gets_their_lines_again(
    on_disk: Path, writer: Callable[..., LogWriter], prefix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    left: int,
) -> None:
    monkeypatch.setattr(logs, "_LARGEST_SENT", 10)
    writer("moved").close()
    before = on_disk.read_bytes()
    s3.delete(sent(prefix)[left:])
    bring_up_to_date(on_disk, f"{prefix}/runs/tiny")
    assert on_disk.read_bytes() == before
    writer("moved").close()
    assert on_disk.read_bytes() == before
    assert len(sent(prefix)) == 3
    assert len(there(prefix, tmp_path)) == 3


def test_bringing_that_breaks_off_leaves_the_copy_as_long_as_it_was_and_is_repeated(
    on_disk: Path, writer: Callable[..., LogWriter], prefix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = writer("other")
    for event in (OPENED, BEGUN, Validated(attempt_of(BEGUN), POINTS, 4.0), Validated(attempt_of(BEGUN), POINTS, 5.0)):
        other.append(event)
        other.settle()
    other.close()
    before, there_now = on_disk.read_bytes(), other.path.read_bytes()
    find, finds = s3.find, []
    with monkeypatch.context() as broken:
        def break_off(url: str, *, most: int) -> object:
            finds.append(url)
            if url.endswith("2"):
                raise StorageError("the server is away")
            return find(url, most=most)

        broken.setattr(logs, "find", break_off)
        with pytest.raises(StorageError, match="the server is away"):
            bring_up_to_date(on_disk, f"{prefix}/runs/tiny")
    assert on_disk.read_bytes() == before
    bring_up_to_date(on_disk, f"{prefix}/runs/tiny")
    assert on_disk.read_bytes() == there_now
    assert list(on_disk.parent.glob("*superseded*")) == []


def test_lines_that_the_server_contradicts_are_kept_beside_the_log(
    on_disk: Path, writer: Callable[..., LogWriter], prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logs, "_SEND_EVERY_S", 3600.0)
    other = writer("other")
    other.append(OPENED)
    other.settle()
    other.append(Validated(attempt_of(BEGUN), POINTS, 9.0))
    other.close()
    before = on_disk.read_bytes()
    bring_up_to_date(on_disk, f"{prefix}/runs/tiny")
    assert on_disk.read_bytes() == other.path.read_bytes()
    (kept,) = on_disk.parent.glob("study.log.superseded-*")
    assert before.splitlines(keepends=True)[0] + kept.read_bytes() == before


@pytest.mark.parametrize("spoil", [
    lambda raw: raw[:60] + bytes([raw[60] ^ 1]) + raw[61:], lambda raw: raw[: len(raw) // 2] + bytes(len(raw) // 2),
], ids=["a bit", "half of it zeros"])
def test_a_copy_that_this_disk_damaged_is_mended_from_the_server(
    on_disk: Path, writer: Callable[..., LogWriter], spoil: Callable[[bytes], bytes]
) -> None:
    writer("moved").close()
    before = on_disk.read_bytes()
    on_disk.write_bytes(spoil(before))
    log = writer("moved")
    assert log.last == 2
    log.close()
    assert on_disk.read_bytes() == before
    assert list(on_disk.parent.glob("*superseded*")) == []
