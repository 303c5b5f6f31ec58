"""Reading bytes from a local path or an `s3://bucket/key` address; uploading finished files.

S3 goes through boto3 alone. Credentials and endpoint come from boto3's usual sources (AWS_ENDPOINT_URL_S3,
AWS_ENDPOINT_URL, AWS_PROFILE, ...). No other scheme is opened: shards and configs come from other people, so there is
no `pipe:`.
"""

from __future__ import annotations

import io
import os
from functools import cache
from pathlib import Path
from typing import Any, BinaryIO, cast

from vsetune.config.secrets import shown_url
from vsetune.errors import DataError, StorageError

_S3 = "s3://"


def is_remote(url: str) -> bool:
    """True for `s3://` addresses. DataError for any other scheme; paths have none."""
    if url.startswith(_S3):
        return True
    if "://" in url or url.startswith("pipe:"):
        raise DataError(f"{url}: unknown kind of address, need a local path or s3://bucket/prefix.")
    return False


def join(url: str, name: str) -> str:
    """Address of a file inside a folder or prefix."""
    if is_remote(url):
        return f"{url.rstrip('/')}/{name}"
    return str(Path(url) / name)


def exists(url: str) -> bool:
    """True when the file (not a folder) stands there."""
    if not is_remote(url):
        return Path(url).is_file()
    bucket, key = _bucket_and_key(url)
    try:
        _client().head_object(Bucket=bucket, Key=key)
    except Exception as error:  # botocore builds its exception classes at run time
        if _code_of(error) in {"404", "NoSuchKey", "NoSuchBucket", "NotFound"}:
            return False
        raise _unreachable(url, error) from error
    return True


def open_stream(url: str) -> BinaryIO:
    """The file as a binary stream, read from its start; the caller closes it. DataError when it is missing."""
    if not is_remote(url):
        try:
            return open(url, "rb")
        except OSError as error:
            raise DataError(f"{url}: cannot open ({error.strerror}); check the path.") from error
    bucket, key = _bucket_and_key(url)
    try:
        body = _client().get_object(Bucket=bucket, Key=key)["Body"]
    except Exception as error:
        if _code_of(error) in {"404", "NoSuchKey", "NoSuchBucket"}:
            raise DataError(f"{url}: no such object; check bucket and prefix.") from error
        raise _unreachable(url, error) from error
    return io.BufferedReader(_BodyStream(body, url), buffer_size=1 << 20)


def read_bytes(url: str) -> bytes:
    """The whole content of a small file. DataError when it is missing."""
    with open_stream(url) as stream:
        return stream.read()


def upload(path: Path, url: str) -> None:
    """Copy a local file to an s3:// address. StorageError when it cannot be stored."""
    bucket, key = _bucket_and_key(url)
    try:
        _client().upload_file(str(path), bucket, key)
    except Exception as error:
        raise StorageError(f"{url}: cannot upload {path.name} ({error}); check bucket, rights and endpoint.") from error


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
            raise DataError(f"{self._url}: connection broke while reading ({error}); start again.") from error
        buffer[: len(chunk)] = chunk
        return len(chunk)

    def close(self) -> None:
        if not self.closed:
            self._body.close()
        super().close()


@cache
def _client() -> Any:
    """One boto3 client per process, made when the first s3:// address is opened."""
    import boto3

    return boto3.client("s3")


# A forked reader must not talk through the connections of its parent.
os.register_at_fork(after_in_child=_client.cache_clear)


def _bucket_and_key(url: str) -> tuple[str, str]:
    if shown_url(url) != url:
        raise DataError(
            f"{shown_url(url)}: keys do not belong in the address; need s3://bucket/prefix, and AWS_ACCESS_KEY_ID and "
            "AWS_SECRET_ACCESS_KEY or a profile."
        )
    bucket, _, key = url.removeprefix(_S3).partition("/")
    if not bucket or not key:
        raise DataError(f"{url}: need s3://bucket/prefix.")
    return bucket, key


def _code_of(error: Exception) -> str:
    response = cast(dict[str, Any], getattr(error, "response", {}))
    return str(response.get("Error", {}).get("Code", ""))


def _unreachable(url: str, error: Exception) -> StorageError:
    return StorageError(f"{url}: S3 does not answer ({error}); check credentials, rights and endpoint.")
