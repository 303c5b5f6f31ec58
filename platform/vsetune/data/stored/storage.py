"""Reading bytes from a local path or an `s3://bucket/key` address; uploading finished files.

S3 goes through boto3 alone. Credentials and endpoint come from boto3's usual sources (AWS_ENDPOINT_URL_S3,
AWS_ENDPOINT_URL, AWS_PROFILE, ...). No other scheme is opened: shards and configs come from other people, so there is
no `pipe:`. For the same reason only regular files are opened, and of a data folder only what lies in it.

Two kinds of failure are kept apart. StorageError: the place could not be reached or the reading broke off (no answer,
no rights, a device that fails); the same reading may succeed later. DataError: what stands there is not what it should
be (missing, too large, no file); it will be the same next time.
"""

from __future__ import annotations

import errno
import io
import os
import stat
from functools import cache
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO, cast

from vsetune.config.spec.secrets import shown_url
from vsetune.data.stored.foreign_text import one_line
from vsetune.errors import DataError, StorageError, UsageError
from vsetune.files.hashes import sha256_of_stream

_S3 = "s3://"
_BUFFER = 1 << 20
SMALL_FILE_BYTES = 64 << 20
"""Most bytes of a file that is read whole and parsed (a manifest, a vocabulary), unless another bound is given."""

_CONNECT_S, _READ_S, _TRIES = 3, 5, 2
"""Reading: an endpoint that is dead or says nothing is noticed within about ten seconds."""
_UPLOAD_READ_S, _UPLOAD_TRIES = 60, 5

_MISSING = {"404", "NoSuchKey", "NoSuchBucket", "NotFound"}
_OF_THE_PATH = {
    errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.ELOOP, errno.ENAMETOOLONG, errno.EINVAL, errno.ENXIO, errno.ENODEV,
}
_KINDS = {
    stat.S_IFIFO: "a FIFO", stat.S_IFSOCK: "a socket", stat.S_IFCHR: "a device", stat.S_IFBLK: "a device",
    stat.S_IFDIR: "a folder",
}


class NothingThere(DataError):
    """Nothing stands at this address; whoever knows what should tells how to bring it back."""


def is_remote(url: str) -> bool:
    """True for `s3://` addresses. DataError for any other scheme; paths have none."""
    if url.startswith(_S3):
        return True
    if "://" in url or url.startswith("pipe:"):
        raise DataError(f"{one_line(url)}: unknown kind of address, need a local path or s3://bucket/prefix.")
    return False


def join(url: str, name: str) -> str:
    """Address of a file inside a folder or prefix."""
    if is_remote(url):
        return f"{url.rstrip('/')}/{name}"
    return str(Path(url) / name)


def is_inside(name: str) -> bool:
    """Whether a name from a manifest or a list can only mean a file of its folder; links are seen on opening."""
    parts = PurePosixPath(name).parts
    is_plain = name.isprintable() and "\\" not in name and "://" not in name and not name.startswith("/")
    return bool(parts) and is_plain and ".." not in parts


def exists(url: str) -> bool:
    """True when something that is no folder stands there. StorageError when that cannot be found out."""
    if not is_remote(url):
        try:
            return not stat.S_ISDIR(os.stat(url).st_mode)
        except ValueError:  # a NUL in the path
            return False
        except OSError as error:
            if error.errno in _OF_THE_PATH:
                return False
            raise read_failure(url, error) from error
    bucket, key = _bucket_and_key(url)
    try:
        _client().head_object(Bucket=bucket, Key=key)
    except Exception as error:  # botocore builds its exception classes at run time
        if _code_of(error) in _MISSING:
            return False
        raise _refused(url, error) from error
    return True


def open_stream(url: str) -> BinaryIO:
    """The file as a binary stream, read from its start; the caller closes it.

    DataError when it is missing or no regular file; StorageError when it cannot be reached, also by a later read.
    """
    return open_sized(url)[0]


def open_inside(folder: str, name: str) -> tuple[BinaryIO, int]:
    """`open_sized` of a file of a data folder or prefix; DataError when name or link lead out of it."""
    url = join(folder, name)
    return open_sized(_resolved_inside(folder, name), named=url)


def size_inside(folder: str, name: str) -> int | None:
    """Bytes of a regular file of a local data folder, None where there is none. Errors as of `open_inside`."""
    target = _resolved_inside(folder, name)
    if not exists(target):
        return None
    descriptor, size = _open_regular(target, join(folder, name))
    os.close(descriptor)
    return size


def open_sized(url: str, *, named: str | None = None) -> tuple[BinaryIO, int]:
    """(stream, bytes it should have). named: what messages call it. Errors as of `open_stream`."""
    if not is_remote(url):
        descriptor, size = _open_regular(url, named or url)
        return io.BufferedReader(_FileStream(descriptor, named or url), buffer_size=_BUFFER), size
    bucket, key = _bucket_and_key(url)
    try:
        answer = _client().get_object(Bucket=bucket, Key=key)
    except Exception as error:
        if _code_of(error) in _MISSING:
            raise NothingThere(f"{url}: no such object; check bucket and prefix.") from error
        raise _refused(url, error) from error
    return io.BufferedReader(_BodyStream(answer["Body"], url), buffer_size=_BUFFER), int(answer["ContentLength"])


def read_bytes(url: str, *, most: int = SMALL_FILE_BYTES) -> bytes:
    """The whole content of a file of at most so many bytes. Errors as of `open_stream`; DataError when it is larger."""
    stream, size = open_sized(url)
    return _whole(stream, size, url, most)


def read_inside(folder: str, name: str, *, most: int = SMALL_FILE_BYTES) -> bytes:
    """`read_bytes` of a file of a data folder or prefix; DataError when name or link lead out of it."""
    stream, size = open_inside(folder, name)
    return _whole(stream, size, join(folder, name), most)


def sha256_of(url: str) -> str | None:
    """SHA-256 of the content, None where there is no such file. StorageError when it cannot be reached."""
    try:
        stream = open_stream(url)
    except DataError:
        return None
    with stream:
        return sha256_of_stream(stream)


def find_inside(folder: str, name: str) -> bytes | None:
    """`read_inside`; None where nothing stands there, which takes one request of an s3:// prefix."""
    if not is_remote(folder) and not exists(join(folder, name)):
        return None
    try:
        return read_inside(folder, name)
    except NothingThere:
        return None


def read_failure(place: object, error: OSError) -> UsageError:
    """What a failed local access means: DataError where the path is wrong, StorageError where the storage is."""
    reason = error.strerror or one_line(error)
    if error.errno in _OF_THE_PATH:
        kind = NothingThere if error.errno == errno.ENOENT else DataError
        return kind(f"{place}: cannot open ({reason}); check the path.")
    return StorageError(f"{place}: cannot be read ({reason}); check the disk and its rights, then start again.")


def upload(path: Path, url: str) -> None:
    """Copy a local file to an s3:// address. StorageError when it cannot be stored."""
    bucket, key = _bucket_and_key(url)
    try:
        _client(_UPLOAD_READ_S, _UPLOAD_TRIES).upload_file(str(path), bucket, key)
    except Exception as error:
        raise StorageError(
            f"{url}: cannot upload {path.name} ({one_line(error)}); check bucket, rights and endpoint."
        ) from error


def _resolved_inside(folder: str, name: str) -> str:
    url = join(folder, name)
    if not is_inside(name):
        raise DataError(f"{one_line(url)}: leads out of its data folder; need a plain file name, ingest again.")
    if is_remote(folder):
        return url
    target, home = Path(os.path.realpath(url)), Path(os.path.realpath(folder))
    if not target.is_relative_to(home):
        raise DataError(f"{url}: is a link to {target}, outside of its data folder; put the file itself there.")
    return str(target)


def _whole(stream: BinaryIO, size: int, url: str, most: int) -> bytes:
    with stream:
        if size <= most:
            content = stream.read(most + 1)
            if len(content) <= most:
                return content
            size = len(content)
    raise DataError(f"{one_line(url)}: {size:,} bytes or more, need at most {most:,}; it is not what it should be.")


def _open_regular(path: str, named: str) -> tuple[int, int]:
    """(descriptor, size). Opened without waiting, so that a FIFO nobody writes to cannot hold us."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
    except ValueError as error:
        raise DataError(f"{one_line(named)}: cannot open ({one_line(error)}); check the path.") from error
    except OSError as error:
        raise read_failure(named, error) from error
    about = os.fstat(descriptor)
    if stat.S_ISREG(about.st_mode):
        return descriptor, about.st_size
    os.close(descriptor)
    kind = _KINDS.get(stat.S_IFMT(about.st_mode), "something else")
    raise DataError(f"{named}: is {kind}, need a regular file; put the file itself there.")


class _FileStream(io.FileIO):
    """A local file whose reading breaks off with a StorageError."""

    def __init__(self, descriptor: int, named: str) -> None:
        super().__init__(descriptor, "rb")
        self._named = named

    def readinto(self, buffer: Any) -> int:
        try:
            return super().readinto(buffer)
        except OSError as error:
            raise read_failure(self._named, error) from error

    def read(self, size: int | None = -1) -> bytes:
        try:
            return super().read(-1 if size is None else size)
        except OSError as error:
            raise read_failure(self._named, error) from error

    def readall(self) -> bytes:
        try:
            return super().readall()
        except OSError as error:
            raise read_failure(self._named, error) from error


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
    response = cast(dict[str, Any], getattr(error, "response", None) or {})
    return str(response.get("Error", {}).get("Code", ""))


def _refused(url: str, error: Exception) -> UsageError:
    from botocore.exceptions import ParamValidationError

    if isinstance(error, ParamValidationError):
        return DataError(f"{one_line(url)}: no possible address ({one_line(error)}); need s3://bucket/prefix.")
    return StorageError(f"{url}: S3 does not answer ({one_line(error)}); check credentials, rights and endpoint.")
