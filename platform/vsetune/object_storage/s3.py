"""Objects of an S3-compatible server, through boto3 alone: read, whether one is there, upload.

Credentials and endpoint come from boto3's usual sources (AWS_ENDPOINT_URL_S3, AWS_ENDPOINT_URL, AWS_PROFILE, ...).
StorageError: the server could not be reached, refused, or the reading broke off; the same may succeed later.
DataError: the address can be none.
"""

from __future__ import annotations

import io
import math
import os
import threading
import time
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any, BinaryIO, cast

from vsetune.config.spec.foreign_text import one_line
from vsetune.errors import DataError, StorageError, UsageError
from vsetune.object_storage.addresses import bucket_and_key

_BUFFER = 1 << 20
_CONNECT_S, _READ_S, _TRIES = 3, 5, 2
"""Reading: an endpoint that is dead or says nothing is noticed within about ten seconds."""
_FIRST_PAUSE_S, _GO_ON_WITHIN_S = 0.1, 8.0
"""Of a body that broke off: before the first try to go on, and without a new byte before it is given up."""
_UPLOAD_READ_S, _UPLOAD_TRIES = 60, 5

_MISSING = {"404", "NoSuchKey", "NoSuchBucket", "NotFound"}
_CHANGED = {"412", "PreconditionFailed", *_MISSING}
"""Of an object whose beginning was read."""


class NothingThere(DataError):
    """Nothing stands at this address; whoever knows what should tells how to bring it back."""


def is_there(url: str) -> bool:
    """Whether there is an object at this address. StorageError when that cannot be found out."""
    bucket, key = bucket_and_key(url)
    try:
        _client().head_object(Bucket=bucket, Key=key)
    except Exception as error:  # botocore builds its exception classes at run time
        if _code_of(error) in _MISSING:
            return False
        raise _refused(url, error) from error
    return True


def open_object(url: str) -> tuple[BinaryIO, int]:
    """(stream, bytes it should have). NothingThere, DataError without a bucket; StorageError, also by a later read.

    A body that breaks off goes on at its byte, with growing pauses; see `_BodyStream`.
    """
    bucket, key = bucket_and_key(url)
    try:
        answer = _reading_client().get_object(Bucket=bucket, Key=key)
    except Exception as error:
        if _code_of(error) == "NoSuchBucket":
            raise DataError(f"{url}: no such object, nor a bucket {bucket}; check name and endpoint.") from error
        if _code_of(error) in _MISSING:
            raise NothingThere(f"{url}: no such object; check bucket and prefix.") from error
        raise _refused(url, error) from error
    return io.BufferedReader(_BodyStream(answer, url), buffer_size=_BUFFER), int(answer["ContentLength"])


def upload(path: Path, url: str) -> None:
    """Copy a local file to an s3:// address. StorageError when it cannot be stored."""
    bucket, key = bucket_and_key(url)
    try:
        _client(_UPLOAD_READ_S, _UPLOAD_TRIES).upload_file(str(path), bucket, key)
    except Exception as error:
        raise StorageError(
            f"{url}: cannot upload {path.name} ({one_line(error)}); check bucket, rights and endpoint."
        ) from error


class _BodyStream(io.RawIOBase):
    """The body of an S3 answer as a raw stream, so that io.BufferedReader gives exact reads.

    When the connection breaks, the rest is asked for from the byte that was reached, under the condition that the
    object is still the same (its ETag); pauses grow from 0.1 s, and after 8 s without a new byte it is given up.
    """

    def __init__(self, answer: dict[str, Any], url: str) -> None:
        self._body, self._url = answer["Body"], url
        self._length, self._etag = int(answer["ContentLength"]), answer.get("ETag")
        self._position = 0
        self._pause_s, self._broken_since = _FIRST_PAUSE_S, math.inf

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while True:
            try:
                chunk = self._body.read(len(buffer))
                break
            except Exception as error:  # of botocore or urllib3, from below either
                self._go_on(error)
        if chunk:
            self._position += len(chunk)
            self._pause_s, self._broken_since = _FIRST_PAUSE_S, math.inf
        buffer[: len(chunk)] = chunk
        return len(chunk)

    def close(self) -> None:
        if not self.closed:
            self._body.close()
        super().close()

    def _go_on(self, reason: Exception) -> None:
        """A new body for the rest. StorageError when it cannot be had, or is the rest of another object."""
        self._body.close()
        self._broken_since = min(self._broken_since, time.monotonic())
        while self._etag and self._position < self._length:
            if time.monotonic() + self._pause_s - self._broken_since > _GO_ON_WITHIN_S:
                break
            time.sleep(self._pause_s)
            self._pause_s *= 2
            try:
                self._body = self._rest()
                return
            except Exception as error:
                if _code_of(error) in _CHANGED:
                    raise StorageError(f"{self._url}: was changed while it was read; start again.") from error
                reason = error
        raise StorageError(
            f"{self._url}: connection broke while reading ({one_line(reason)}); start again."
        ) from reason

    def _rest(self) -> Any:
        bucket, key = bucket_and_key(self._url)
        wanted = f"bytes={self._position}-"
        answer = _reading_client(tries=1).get_object(Bucket=bucket, Key=key, Range=wanted, IfMatch=self._etag)
        given = str(answer.get("ContentRange", ""))
        if not given.startswith(f"bytes {self._position}-"):
            answer["Body"].close()
            raise OSError(f"the server gives {given or 'the whole object'} for {wanted}")
        return answer["Body"]


def remove(urls: Iterable[str]) -> None:
    """Remove objects, one request each; one that is not there is no error. StorageError."""
    for url in urls:
        bucket, key = bucket_and_key(url)
        try:
            _client().delete_object(Bucket=bucket, Key=key)
        except Exception as error:
            if _code_of(error) not in _MISSING:
                raise _refused(url, error) from error


def _reading_client(tries: int | None = None) -> Any:
    """The client for reading, one per process whichever thread asks first: boto3 makes only one at a time."""
    with _making_client:
        return _client() if tries is None else _client(tries=tries)


_making_client = threading.Lock()
os.register_at_fork(
    before=_making_client.acquire, after_in_parent=_making_client.release, after_in_child=_making_client.release
)


@cache
def _client(read_timeout_s: float = _READ_S, tries: int = _TRIES) -> Any:
    """One boto3 client per process and purpose, made when the first s3:// address is opened."""
    import boto3
    from botocore.config import Config

    return boto3.client("s3", config=Config(
        connect_timeout=_CONNECT_S, read_timeout=read_timeout_s, tcp_keepalive=True,
        retries={"mode": "standard", "total_max_attempts": tries},
    ))


# A forked reader must not talk through the connections of its parent.
os.register_at_fork(after_in_child=_client.cache_clear)


def _code_of(error: Exception) -> str:
    response = cast(dict[str, Any], getattr(error, "response", None) or {})
    return str(response.get("Error", {}).get("Code", ""))


def _refused(url: str, error: Exception) -> UsageError:
    from botocore.exceptions import ParamValidationError

    if isinstance(error, ParamValidationError):
        return DataError(f"{one_line(url)}: no possible address ({one_line(error)}); need s3://bucket/prefix.")
    return StorageError(f"{url}: S3 does not answer ({one_line(error)}); check credentials, rights and endpoint.")
