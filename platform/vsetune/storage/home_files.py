"""Single files of a home on object storage, and the check that a prefix can be a home."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from vsetune.errors import StorageError
from vsetune.storage.addresses import join
from vsetune.storage.mirror_contents import Piece, StoredFile, bring, fetch
from vsetune.storage.paths import home, remote_home, remote_place
from vsetune.storage.s3 import ObjectChanged, delete, look, put_bytes, upload


def keep_in_home(file: Path) -> str | None:
    """Store a file of the node's folder under the remote home too. Returns its address, None if nothing was done.

    StorageError.
    """
    url = _place(file)
    if url is not None:
        upload(file, url)
    return url


def find_in_home(file: Path) -> bool:
    """Fetch a file that `keep_in_home` has stored, unless it is here already. Returns whether it is here now.

    StorageError when it cannot be had whole.
    """
    url, remote = _place(file), remote_home()
    if url is None or remote is None:
        return False
    there = look(url)
    if there is None or there.sha256 is None:
        return False
    key = url.removeprefix(f"{remote}/")
    bring(remote, StoredFile((Piece(key, there.size, there.sha256),)), file)
    return True


def bring_mirrored(folder: Path, wanted: Callable[[str], bool], *, into: Path | None = None) -> None:
    """Fetch those files of a folder mirrored by another machine whose names are wanted. into: None for the folder
    itself, which no other process may then be writing. StorageError."""
    url = _place(folder)
    if url is not None:
        fetch(url, folder if into is None else into, wanted)


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
