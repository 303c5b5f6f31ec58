"""Objects of an S3-compatible server, through boto3 alone: read, whether one is there, upload.

Credentials and endpoint come from boto3's usual sources (AWS_ENDPOINT_URL_S3, AWS_ENDPOINT_URL, AWS_PROFILE, ...).
StorageError: the server could not be reached, refused, or the reading broke off; the same may succeed later.
DataError: the address can be none.
"""

from __future__ import annotations

import io
import os
from functools import cache
from pathlib import Path
from typing import Any, BinaryIO, cast

from vsetune.config.spec.foreign_text import one_line
from vsetune.errors import DataError, StorageError, UsageError
from vsetune.object_storage.addresses import bucket_and_key

_BUFFER = 1 << 20
_CONNECT_S, _READ_S, _TRIES = 3, 5, 2
"""Reading: an endpoint that is dead or says nothing is noticed within about ten seconds."""
_UPLOAD_READ_S, _UPLOAD_TRIES = 60, 5

_MISSING = {"404", "NoSuchKey", "NoSuchBucket", "NotFound"}


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
    """(stream, bytes it should have). NothingThere, StorageError; the latter also by a later read."""
    bucket, key = bucket_and_key(url)
    try:
        answer = _client().get_object(Bucket=bucket, Key=key)
    except Exception as error:
        if _code_of(error) in _MISSING:
            raise NothingThere(f"{url}: no such object; check bucket and prefix.") from error
        raise _refused(url, error) from error
    return io.BufferedReader(_BodyStream(answer["Body"], url), buffer_size=_BUFFER), int(answer["ContentLength"])


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
    """The body of an S3 answer as a raw stream, so that io.BufferedReader gives exact reads."""

    def __init__(self, body: Any, url: str) -> None:
        self._body = body
        self._url = url

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        try:
            chunk = self._body.read(len(buffer))
        except Exception as error:
            raise StorageError(
                f"{self._url}: connection broke while reading ({one_line(error)}); start again."
            ) from error
        buffer[: len(chunk)] = chunk
        return len(chunk)

    def close(self) -> None:
        if not self.closed:
            self._body.close()
        super().close()


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
