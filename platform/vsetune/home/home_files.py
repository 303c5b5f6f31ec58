"""Files of the home by their paths on this machine, whether the home is a folder or a prefix on object storage.

With a remote home the files below `home()` are copies; what counts is the object at the same place under the prefix.
"""

from __future__ import annotations

import uuid
from contextlib import nullcontext, suppress
from pathlib import Path

from vsetune.errors import StorageError
from vsetune.home.addresses import join
from vsetune.home.earlier_layout import bring_earlier, earlier_names
from vsetune.home.hashes import sha256_hex, sha256_of_file
from vsetune.home.locks import take_lock
from vsetune.home.paths import home, remote_home, remote_place
from vsetune.home.s3 import ObjectChanged, delete, download, find, listing, look, put_bytes, upload, versions_below
from vsetune.home.whole_files import make_folder, unreadable, write_whole


def read(path: Path, *, most: int) -> tuple[bytes, str] | None:
    """(content, version) of a small file; None if there is none. most: bytes. DataError, StorageError."""
    url = _place(path)
    if url is not None:
        found = find(url, most=most)
        return None if found is None else (found[0], found[1].etag)
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise unreadable(path, error) from error
    return content, sha256_hex(content)


def write(path: Path, content: bytes, *, if_absent: bool = False, if_unchanged: str | None = None) -> str:
    """Write a small file whole. Returns its version.

    if_absent: only if there is none. if_unchanged: only over this version. ObjectChanged if another one is there;
    StorageError.
    """
    url = _place(path)
    if url is not None:
        return put_bytes(url, content, if_absent=if_absent, if_match=if_unchanged)
    make_folder(path.parent)
    is_conditional = if_absent or if_unchanged is not None
    with take_lock(path.parent / ".lock", wait_s=None) if is_conditional else nullcontext():
        there = read(path, most=0) if is_conditional else None
        version = None if there is None else there[1]
        if (if_absent and there is not None) or (if_unchanged is not None and version != if_unchanged):
            raise ObjectChanged(
                "VSE-O035", "{url}: another process has written it meanwhile ({code}).", url=path, code="its SHA-256"
            )
        write_whole(path, content, durable=True)
    return sha256_hex(content)


def names_in(folder: Path) -> list[str]:
    """Names of the files in a folder and below it, relative, in alphabetical order, without hidden ones. StorageError.
    """
    url = _place(folder)
    if url is not None:
        found = [each.removeprefix(f"{url}/") for each in listing(f"{url}/")]
    else:
        found = [path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()]
    return sorted(name for name in found if not name.rpartition("/")[2].startswith("."))


def remove(path: Path) -> None:
    """Remove a file, here and under a remote home; a missing one is no error. StorageError."""
    url = _place(path)
    if url is not None:
        delete([url])
    with suppress(OSError):
        path.unlink(missing_ok=True)


def versions_in(folder: Path) -> dict[str, str] | None:
    """The versions of the files in a folder under the remote home, by their names there; None with a local home."""
    url = _place(folder)
    return None if url is None else versions_below(url, lambda name: not name.startswith("."))


def keep_in_home(file: Path) -> str | None:
    """Store a file of the node's folder under the remote home too. Returns its address, None if nothing was done.

    StorageError.
    """
    url = _place(file)
    if url is not None:
        upload(file, url)
    return url


def find_in_home(file: Path, *, into: Path | None = None) -> bool:
    """Fetch a file from the remote home, unless it is here already. Returns whether the remote home has it.

    into: a folder to write it to, in place of its own. DamagedObject when it differs from what was written;
    StorageError when it cannot be had whole.
    """
    url, path = _place(file), file if into is None else into / file.name
    if url is None:
        return False
    there = look(url)
    if there is None:
        return bring_earlier(url, path)
    if there.sha256 is None:
        return False
    if not path.is_file() or path.stat().st_size != there.size or sha256_of_file(path) != there.sha256:
        download(url, path)
    return True


def find_folder_in_home(folder: Path) -> None:
    """Fetch all files of a folder from the remote home, unless they are here already. Errors as in `find_in_home`."""
    url = _place(folder)
    if url is not None:
        below = f"{folder.name}/"
        earlier = earlier_names(url.rpartition("/")[0], lambda name: name.startswith(below))
        for name in [*names_in(folder), *(each.removeprefix(below) for each in earlier)]:
            find_in_home(folder / name)


def _place(path: Path) -> str | None:
    if remote_home() is None or not path.absolute().is_relative_to(home()):
        return None
    return remote_place(path.absolute())


def require_usable(prefix: str, *, named: str) -> None:
    """Write, read and remove a small object there. named: how the prefix was given; opens the messages.

    StorageError in one line: no such bucket, wrong keys, no right to write, a clock too far off, a server that is
    unreachable or does not support conditional writes. The probe object is removed.
    """
    probe = join(prefix, f"probe-{uuid.uuid4().hex}")
    try:
        try:
            etag = put_bytes(probe, b"1", if_absent=True)
            if look(probe) is None:
                raise StorageError(
                    "VSE-O038", "{url}: written, and not there; need a server that shows what was written.", url=probe
                )
            _require_refused(probe, "If-None-Match", if_absent=True)
            _require_refused(probe, "If-Match", if_match='"00000000000000000000000000000000"')
            put_bytes(probe, b"2", if_match=etag)
        finally:
            with suppress(StorageError):
                delete([probe])
    except StorageError as error:
        raise StorageError(error.problem.at(named)) from error


def _require_refused(probe: str, header: str, *, if_absent: bool = False, if_match: str | None = None) -> None:
    try:
        put_bytes(probe, b"3", if_absent=if_absent, if_match=if_match)
    except ObjectChanged:
        return
    raise StorageError(
        "VSE-O037", "{url}: the server ignores conditional writes ({header}), so two drivers could not exclude each "
        "other; need one that knows If-Match and If-None-Match (AWS, seaweedfs, MinIO).", url=probe, header=header,
    )
