"""Local paths and `s3://bucket/key` addresses. No other scheme is opened: shards and configs come from other people, so
there is no `pipe:`."""

from __future__ import annotations

from pathlib import Path

from vsetune.config.spec.foreign_text import one_line
from vsetune.config.spec.secrets import shown_url
from vsetune.errors import DataError

_S3 = "s3://"


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


def bucket_and_key(url: str) -> tuple[str, str]:
    """Bucket and key of an `s3://` address. DataError when one is missing, or the address contains a password."""
    if shown_url(url) != url:
        raise DataError(
            f"{shown_url(url)}: keys do not belong in the address; need s3://bucket/prefix, and AWS_ACCESS_KEY_ID and "
            "AWS_SECRET_ACCESS_KEY or a profile."
        )
    bucket, _, key = url.removeprefix(_S3).partition("/")
    if not bucket or not key:
        raise DataError(f"{url}: need s3://bucket/prefix.")
    return bucket, key
