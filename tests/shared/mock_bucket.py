"""AWS settings for tests, and a bucket inside this process: `from mock_bucket import bucket`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import boto3
import pytest
from moto import mock_aws

from vsetune.home import s3


@contextmanager
def aws_account(monkeypatch: pytest.MonkeyPatch, *, endpoint: str | None = None) -> Iterator[None]:
    """Credentials that mean nothing, for the S3 server at `endpoint` (None: whatever moto stands for)."""
    names = {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test", "AWS_DEFAULT_REGION": "us-east-1"}
    for name, value in (names | ({} if endpoint is None else {"AWS_ENDPOINT_URL": endpoint})).items():
        monkeypatch.setenv(name, value)
    s3._client.cache_clear()
    yield
    s3._client.cache_clear()


@pytest.fixture
def bucket(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A boto3 client of a server that has one empty bucket, `data`."""
    with mock_aws(), aws_account(monkeypatch):
        client = boto3.client("s3")
        client.create_bucket(Bucket="data")
        yield client
