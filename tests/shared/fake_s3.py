"""An S3 client in memory that can be away, or lose the answer to a write."""

from __future__ import annotations

import hashlib
import io
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

from botocore.exceptions import ClientError, EndpointConnectionError

DATE = "Sat, 28 Nov 2026 18:00:00 GMT"


class FakeS3:
    """What `boto3.client("s3")` is to vsetune. is_away: it refuses everything. lost_answers: so many of the next writes
    are stored, and their answers lost."""

    def __init__(self) -> None:
        self.objects: dict[str, tuple[bytes, dict[str, str]]] = {}
        self.is_away = False
        self.lost_answers = 0

    def put_object(
        self, *, Bucket: str, Key: str, Body: bytes, Metadata: dict[str, str],  # noqa: N803  boto3's own names
        IfNoneMatch: str | None = None, IfMatch: str | None = None, **_: Any,  # noqa: N803
    ) -> dict[str, str]:
        self._answer()
        there = self._etag(Key)
        if (IfNoneMatch is not None and there is not None) or (IfMatch is not None and IfMatch != there):
            raise _refused("PreconditionFailed")
        self.objects[Key] = Body, Metadata
        if self.lost_answers:
            self.lost_answers -= 1
            raise EndpointConnectionError(endpoint_url="http://memory")
        return {"ETag": str(self._etag(Key))}

    def get_object(self, *, Bucket: str, Key: str, **_: Any) -> dict[str, Any]:  # noqa: N803
        return self.head_object(Bucket=Bucket, Key=Key) | {"Body": io.BytesIO(self.objects[Key][0])}

    def head_object(self, *, Bucket: str, Key: str) -> dict[str, Any]:  # noqa: N803
        self._answer()
        if Key not in self.objects:
            raise _refused("NoSuchKey")
        content, metadata = self.objects[Key]
        return {"ETag": self._etag(Key), "ContentLength": len(content), "Metadata": metadata,
                "LastModified": datetime(2026, 11, 28, tzinfo=UTC), "ResponseMetadata": {"HTTPHeaders": {"date": DATE}}}

    def delete_object(self, *, Bucket: str, Key: str) -> None:  # noqa: N803
        self._answer()
        self.objects.pop(Key, None)

    def get_paginator(self, name: str) -> FakeS3:
        assert name == "list_objects_v2"
        return self

    def paginate(self, *, Bucket: str, Prefix: str) -> Iterator[dict[str, Any]]:  # noqa: N803
        self._answer()
        yield {"Contents": [{"Key": key, "ETag": self._etag(key)} for key in sorted(self.objects)
                            if key.startswith(Prefix)]}

    def _answer(self) -> None:
        if self.is_away:
            raise EndpointConnectionError(endpoint_url="http://memory")

    def _etag(self, key: str) -> str | None:
        return f'"{hashlib.md5(self.objects[key][0]).hexdigest()}"' if key in self.objects else None


def _refused(code: str) -> ClientError:
    return ClientError({"Error": {"Code": code}}, "any")
