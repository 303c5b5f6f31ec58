"""Objects of an S3-compatible server, through boto3 alone: read, look up, write whole, list, delete.

A write is whole or not at all and carries checksums: S3's own, which the server compares, and the SHA-256 of the
content in the object's metadata, which readers can compare. Conditional writes (`if_absent`, `if_match`) let several
machines agree without any other server.

Credentials and endpoint come from boto3's usual sources (AWS_ENDPOINT_URL_S3, AWS_ENDPOINT_URL, AWS_PROFILE, ...).
StorageError: the server could not be reached, it refused, or the reading broke off; the same may succeed later.
DataError: the address is not a possible one.
"""

from __future__ import annotations

import base64
import io
import math
import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from email.utils import parsedate_to_datetime
from functools import cache
from pathlib import Path
from typing import Any, BinaryIO, cast

from vsetune.errors import DamagedObject, DataError, StorageError, UsageError, one_line
from vsetune.home.addresses import bucket_and_key
from vsetune.home.hashes import HashingReader, sha256_hex, sha256_of_stream
from vsetune.home.whole_files import make_folder, whole_file

_BUFFER = 1 << 20
_CONNECT_S, _READ_S, _TRIES = 3, 5, 2
"""For reading: a dead or silent endpoint is noticed within about ten seconds."""
_FIRST_PAUSE_S, _GO_ON_WITHIN_S = 0.1, 8.0
"""For a body that broke off: pause before the first retry, and time without a new byte before it is given up."""
_UPLOAD_READ_S, _UPLOAD_TRIES = 60, 5

_SMALL_BYTES = 1 << 20
_PART_BYTES, _PARTS_AT_ONCE = 16 << 20, 4
"""Larger files are uploaded in parts of this size, this many at once; a failed part is sent again on its own."""
_SHA256 = "sha256"  # key in an object's metadata

_MISSING = {"404", "NoSuchKey", "NoSuchBucket", "NotFound"}
_NOT_AS_EXPECTED = {"PreconditionFailed", "ConditionalRequestConflict", "412", "409"}
_ADVICE = {
    "NoSuchBucket": "no such bucket; make it, or check its name and the endpoint",
    "InvalidBucketName": "no possible name of a bucket; need s3://bucket/prefix",
    "InvalidAccessKeyId": "the server does not know this access key; check AWS_ACCESS_KEY_ID, the profile or the role",
    "SignatureDoesNotMatch": "the secret key is wrong; check AWS_SECRET_ACCESS_KEY",
    "ExpiredToken": "the session token has expired; get a new one, or use a role",
    "NoCredentialsError": "no keys found; set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, a profile or a role",
    "AccessDenied": "not allowed; need the rights to list, get, put and delete objects under this prefix",
    "403": "not allowed; check the keys, and the rights to list, get, put and delete objects under this prefix",
    "RequestTimeTooSkewed": "this machine's clock is too far from the server's; set it (NTP), then repeat",
    "RequestExpired": "this machine's clock is too far from the server's; set it (NTP), then repeat",
}
_CHANGED = {"412", "PreconditionFailed", *_MISSING}
"""Error codes that mean the object changed after its beginning was read."""


class NothingThere(DataError):
    """No object exists at this address; the caller, which knows what belongs there, advises how to restore it."""


class ObjectChanged(StorageError):
    """The object at this address is not the version that the writer saw last, so nothing was written."""


@dataclass(frozen=True)
class ObjectState:
    """State of an object as the server reports it. etag: changes with the content. modified, now: by the server's own
    clock, to the second; now: when it answered, None if unknown. sha256: of the content, None for an object written by
    other software."""

    size: int
    etag: str
    modified: datetime
    now: datetime | None
    sha256: str | None


def open_object(url: str) -> tuple[BinaryIO, int]:
    """(stream, length in bytes). NothingThere; DataError without a bucket; StorageError, also from a later read.

    A body that breaks off continues at the byte it reached, with growing pauses; see `_BodyStream`.
    """
    answer = _answer(url)
    return _stream(answer, url), int(answer["ContentLength"])


def _answer(url: str) -> dict[str, Any]:
    """S3's answer to a reader, with the body still to be read."""
    bucket, key = bucket_and_key(url)
    try:
        return cast(dict[str, Any], _reading_client().get_object(Bucket=bucket, Key=key))
    except Exception as error:
        if _code_of(error) == "NoSuchBucket":
            raise DataError(
                "VSE-O028", "{url}: no such object, nor a bucket {bucket}; check name and endpoint.", url=url,
                bucket=bucket,
            ) from error
        if _code_of(error) in _MISSING:
            raise NothingThere("VSE-O029", "{url}: no such object; check bucket and prefix.", url=url) from error
        raise _refused(url, error) from error


def _stream(answer: dict[str, Any], url: str) -> BinaryIO:
    return io.BufferedReader(_BodyStream(answer, url), buffer_size=_BUFFER)


def download(url: str, path: Path) -> str:
    """Write the object to a file, whole or not at all; its folder is made. Returns the ETag.

    NothingThere; DamagedObject when it differs from what was written; StorageError.
    """
    answer = _answer(url)
    state = _state(answer)
    make_folder(path.parent)
    try:
        with _stream(answer, url) as stream, whole_file(path, durable=False, by_many=True) as written:
            reader = HashingReader(stream)
            while block := reader.read(_BUFFER):
                written.write(block)
            if written.tell() != state.size or state.sha256 not in (None, reader.sha256):
                raise DamagedObject(
                    "VSE-O043", "{url}: is not what was written ({found:,} of {need:,} bytes, or another SHA-256); it "
                    "was damaged on the server, bring it back or start what it belongs to again.", url=url,
                    found=written.tell(), need=state.size,
                )
    except OSError as error:
        raise StorageError(
            "VSE-O023", "{file}: cannot be written ({reason}); free space, or set VSETUNE_NODE_FOLDER", file=path,
            reason=error.strerror or error,
        ) from error
    return state.etag


def upload(path: Path, url: str) -> str:
    """Copy a local file to an s3:// address: all of it appears at once, or nothing. Returns the ETag.

    The file may be replaced meanwhile: what is sent is the one that was there. A large file is sent in parts; the
    server compares a checksum of each. FileNotFoundError; StorageError when it cannot be stored.
    """
    from boto3.s3.transfer import TransferConfig

    with open(path, "rb") as stream:
        if os.fstat(stream.fileno()).st_size <= _SMALL_BYTES:
            return put_bytes(url, stream.read())
        digest = sha256_of_stream(stream)
        stream.seek(0)
        bucket, key = bucket_and_key(url)
        try:
            _client(_UPLOAD_READ_S, _UPLOAD_TRIES).upload_fileobj(
                stream, bucket, key, ExtraArgs={"ChecksumAlgorithm": "SHA256", "Metadata": {_SHA256: digest}},
                Config=TransferConfig(
                    multipart_threshold=_PART_BYTES, multipart_chunksize=_PART_BYTES, max_concurrency=_PARTS_AT_ONCE
                ),
            )
        except Exception as error:
            answer = error.__context__  # boto3 rewords the server's answer
            if isinstance(answer, Exception) and _code_of(answer) in _ADVICE:
                raise _refused(url, answer) from error
            raise StorageError(
                "VSE-O036", "{url}: cannot upload {file} ({reason}); check bucket, rights and endpoint.", url=url,
                file=path.name, reason=one_line(error),
            ) from error
    there = look(url)
    return "" if there is None else there.etag


def put_bytes(url: str, content: bytes, *, if_absent: bool = False, if_match: str | None = None) -> str:
    """Write a small object whole. Returns its ETag.

    if_absent: only if no object exists yet. if_match: only over the object with this ETag. ObjectChanged if another
    object is there. Where this very content is there, only the answer to an earlier try was lost, and it is written.
    """
    bucket, key = bucket_and_key(url)
    digest = sha256_hex(content)
    condition = {"IfNoneMatch": "*"} if if_absent else {} if if_match is None else {"IfMatch": if_match}
    try:
        answer = _client().put_object(
            Bucket=bucket, Key=key, Body=content, Metadata={_SHA256: digest},
            ChecksumSHA256=base64.b64encode(bytes.fromhex(digest)).decode(), **condition,
        )
    except Exception as error:
        code = _code_of(error)
        if code in _NOT_AS_EXPECTED or (if_match is not None and code in _MISSING - {"NoSuchBucket"}):
            there = look(url) if condition else None
            if there is not None and there.sha256 == digest:
                return there.etag
            raise ObjectChanged(
                "VSE-O035", "{url}: another process has written it meanwhile ({code}).", url=url, code=code
            ) from error
        raise _refused(url, error) from error
    return str(answer["ETag"])


def look(url: str) -> ObjectState | None:
    """State of the object at this address, None if there is none. StorageError when that cannot be determined."""
    bucket, key = bucket_and_key(url)
    try:
        return _state(_client().head_object(Bucket=bucket, Key=key))
    except Exception as error:
        if _code_of(error) in _MISSING:
            return None
        raise _refused(url, error) from error


def find(url: str, *, most: int) -> tuple[bytes, ObjectState] | None:
    """A small object of at most `most` bytes, content and state in one request; None if there is none.

    DataError when it is larger or does not match its checksum; StorageError when it cannot be read.
    """
    bucket, key = bucket_and_key(url)
    try:
        answer = _client().get_object(Bucket=bucket, Key=key)
        state = _state(answer)
        content = cast(bytes, answer["Body"].read(most + 1))
    except Exception as error:
        if _code_of(error) in _MISSING - {"NoSuchBucket"}:
            return None
        raise _refused(url, error) from error
    if len(content) > most:
        raise DataError(
            "VSE-O030", "{url}: {bytes:,} bytes, need at most {most:,}; it is not the object that belongs there.",
            url=url, bytes=state.size, most=most,
        )
    if len(content) != state.size or state.sha256 not in (None, sha256_hex(content)):
        raise DataError(
            "VSE-O031", "{url}: is not what was written ({found:,} of {bytes:,} bytes, or its SHA-256).", url=url,
            found=len(content), bytes=state.size,
        )
    return content, state


def listing(prefix: str) -> Iterator[str]:
    """The addresses of all objects that begin with this address, a thousand per request. StorageError."""
    bucket, _ = bucket_and_key(prefix)
    for page in _pages(prefix):
        yield from (f"s3://{bucket}/{found['Key']}" for found in page.get("Contents", ()))


def versions_below(prefix: str, wanted: Callable[[str], bool]) -> dict[str, str]:
    """The ETags of the objects below a prefix, by their names there. wanted: of a first part of names. StorageError."""
    start = f"{prefix.rstrip('/')}/"
    bucket, key = bucket_and_key(start)
    found: dict[str, str] = {}
    for page in _pages(start, Delimiter="/"):
        below = [each["Prefix"] for each in page.get("CommonPrefixes", ())]
        pages = [page, *(
            inner for each in below if wanted(each[len(key) : -1]) for inner in _pages(f"s3://{bucket}/{each}")
        )]
        found |= {each["Key"][len(key):]: str(each["ETag"]) for one in pages for each in one.get("Contents", ())}
    return {name: etag for name, etag in found.items() if wanted(name.split("/")[0])}


def _pages(prefix: str, **options: str) -> Iterator[dict[str, Any]]:
    bucket, start = bucket_and_key(prefix)
    try:
        yield from _client().get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix=start, **options)
    except Exception as error:
        raise _refused(prefix, error) from error


def delete(urls: Iterable[str]) -> None:
    """Remove objects, one request each; a missing object is no error. StorageError."""
    for url in urls:
        bucket, key = bucket_and_key(url)
        try:
            _client().delete_object(Bucket=bucket, Key=key)
        except Exception as error:
            if _code_of(error) not in _MISSING - {"NoSuchBucket"}:
                raise _refused(url, error) from error


def drop_unfinished(prefix: str) -> None:
    """Abort uploads in parts that killed processes left unfinished under this address; they cost as much as objects."""
    bucket, start = bucket_and_key(prefix)
    try:
        for page in _client().get_paginator("list_multipart_uploads").paginate(Bucket=bucket, Prefix=start):
            for left in page.get("Uploads", ()):
                _client().abort_multipart_upload(Bucket=bucket, Key=left["Key"], UploadId=left["UploadId"])
    except Exception as error:
        raise _refused(prefix, error) from error


class _BodyStream(io.RawIOBase):
    """The body of an S3 answer as a raw stream, so that io.BufferedReader gives exact reads.

    When the connection breaks, the rest is requested from the byte that was reached, on condition that the object is
    unchanged (its ETag). Pauses grow from 0.1 s; after 8 s without a new byte the read fails.
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
            except Exception as error:  # of botocore or urllib3, or from a lower layer
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
        """Open a new body for the rest. StorageError when it cannot be had or the object has changed."""
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
                    raise StorageError(
                        "VSE-O034", "{url}: was changed while it was read; start again.", url=self._url
                    ) from error
                reason = error
        raise StorageError(
            "VSE-O033", "{url}: connection broke while reading ({reason}); start again.", url=self._url,
            reason=one_line(reason),
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


def _reading_client(tries: int | None = None) -> Any:
    """The client for reading, one per process and made under a lock, since boto3 can make only one at a time."""
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

    # a session of its own, since threads that share one must not make clients at the same time
    return boto3.Session().client("s3", config=Config(
        connect_timeout=_CONNECT_S, read_timeout=read_timeout_s, tcp_keepalive=True,
        retries={"mode": "standard", "total_max_attempts": tries},
    ))


# A forked reader must not talk through the connections of its parent.
os.register_at_fork(after_in_child=_client.cache_clear)


def _code_of(error: Exception) -> str:
    response = cast(dict[str, Any], getattr(error, "response", None) or {})
    return str(response.get("Error", {}).get("Code", ""))


def _state(answer: Any) -> ObjectState:
    date = answer["ResponseMetadata"]["HTTPHeaders"].get("date")
    return ObjectState(
        int(answer["ContentLength"]), str(answer["ETag"]), answer["LastModified"],
        None if date is None else parsedate_to_datetime(date), answer.get("Metadata", {}).get(_SHA256),
    )


def _refused(url: str, error: Exception) -> UsageError:
    from botocore.exceptions import ParamValidationError

    if isinstance(error, ParamValidationError):
        return DataError(
            "VSE-O003", "{url}: no possible address ({reason}); need s3://bucket/prefix.", url=one_line(url),
            reason=one_line(error),
        )
    advice = _ADVICE.get(_code_of(error) or type(error).__name__)
    if advice is not None:
        return StorageError("VSE-O027", "{url}: {advice}.", url=url, advice=advice)
    return StorageError(
        "VSE-O026", "{url}: S3 does not answer ({reason}); check credentials, rights and endpoint.", url=url,
        reason=one_line(error),
    )
