"""Check that a prefix can be a home. Runs at the start, in six small requests, so that nothing fails hours later."""

from __future__ import annotations

import uuid
from contextlib import suppress

from vsetune.errors import StorageError
from vsetune.object_storage.addresses import join
from vsetune.object_storage.s3 import ObjectChanged, delete, look, put_bytes


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
                raise StorageError(f"{probe}: written, and not there; need a server that shows what was written.")
            _require_refused(probe, "If-None-Match", if_absent=True)
            _require_refused(probe, "If-Match", if_match='"00000000000000000000000000000000"')
            put_bytes(probe, b"2", if_match=etag)
        finally:
            with suppress(StorageError):
                delete([probe])
    except StorageError as error:
        raise StorageError(f"{named}: {error}") from error


def _require_refused(probe: str, header: str, *, if_absent: bool = False, if_match: str | None = None) -> None:
    try:
        put_bytes(probe, b"3", if_absent=if_absent, if_match=if_match)
    except ObjectChanged:
        return
    raise StorageError(
        f"{probe}: the server ignores conditional writes ({header}), so two drivers could not exclude "
        "each other; need one that knows If-Match and If-None-Match (AWS, seaweedfs, MinIO)."
    )
