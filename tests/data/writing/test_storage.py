import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from mock_bucket import aws_account
from refusals import fits, refused
from s3_server import endpoint

from vsetune.data.looking.verify import summary, verify
from vsetune.data.making.ingest import ingest
from vsetune.data.stored import storage
from vsetune.home import s3
from vsetune.home.addresses import is_remote, join

__all__ = ["endpoint"]


@pytest.fixture
def bucket(endpoint: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    with aws_account(monkeypatch, endpoint=endpoint):
        s3._client().create_bucket(Bucket="data")
        yield "s3://data/sets/scenes"


class Counting:
    def __init__(self) -> None:
        self.stages: dict[str, int] = {}
        self._name = ""

    def stage(self, name: str, total: int) -> None:
        self._name = name
        self.stages[name] = 0

    def advance(self, count: int) -> None:
        self.stages[self._name] += count


def test_an_uploaded_data_set_is_the_local_one_and_is_uploaded_once(bucket, scenes_recipe, run, tmp_path):
    recipe, progress = scenes_recipe(upload=bucket), Counting()
    ingest(recipe, progress=progress)
    assert progress.stages == {"scenes shards": 32, "scenes upload": 7}
    assert verify(bucket) == []
    assert summary(bucket) == summary(str(tmp_path / "scenes"))
    head: Any = s3._client().head_object(Bucket="data", Key="sets/scenes/train-000000.tar")
    run(recipe)
    again: Any = s3._client().head_object(Bucket="data", Key="sets/scenes/train-000000.tar")
    assert head["LastModified"] == again["LastModified"]
    shard = f"{bucket}/train-000000.tar"
    with storage.open_stream(shard) as stream, tarfile.open(fileobj=stream, mode="r|") as tar:
        assert len(tar.getnames()) == 18
    content = (tmp_path / "scenes" / "train-000000.tar").read_bytes()
    s3._client().put_object(Bucket="data", Key="sets/scenes/train-000000.tar", Body=content[:4000])
    assert any(fits(each, "VSE-D026", shard=shard) for each in verify(bucket))


def test_an_upload_to_a_missing_bucket_is_refused(bucket: str, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"x")
    with refused("VSE-O027", url="s3://nowhere/file"):
        s3.upload(tmp_path / "file", "s3://nowhere/file")


@pytest.mark.parametrize(("url", "message"), [
    ("pipe:cat /etc/passwd", "VSE-O001"), ("http://host/file", "VSE-O001"), ("gs://bucket/file", "VSE-O001"),
    ("s3://", "VSE-O002"), ("s3://bucket", "VSE-O002"), ("s3:///key", "VSE-O002"),
])
def test_other_kinds_of_addresses_and_incomplete_ones_are_refused(url: str, message: str) -> None:
    for use in (storage.open_stream, storage.read_bytes):
        with refused(message):
            use(url)


def test_local_paths_are_joined_opened_and_found(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"content")
    where = join(str(tmp_path), "a")
    assert storage.exists(where)
    assert not storage.exists(str(tmp_path))
    assert not is_remote(where)
    assert storage.read_bytes(where) == b"content"
    assert join("s3://b/p/", "a") == "s3://b/p/a"
