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
from vsetune.storage import s3
from vsetune.storage.addresses import is_remote, join

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


def test_an_uploaded_data_set_is_the_local_one(bucket, scenes_recipe, tmp_path):
    recipe = scenes_recipe(upload=bucket)
    progress = Counting()
    ingest(recipe, progress=progress)
    assert progress.stages == {"scenes shards": 32, "scenes upload": 7}
    assert verify(bucket) == []
    assert summary(bucket) == summary(str(tmp_path / "scenes"))


def test_a_finished_upload_is_not_repeated(bucket, scenes_recipe, run):
    recipe = scenes_recipe(upload=f"{bucket}-once")
    run(recipe)
    head: Any = s3._client().head_object(Bucket="data", Key="sets/scenes-once/train-000000.tar")
    run(recipe)
    again: Any = s3._client().head_object(Bucket="data", Key="sets/scenes-once/train-000000.tar")
    assert head["LastModified"] == again["LastModified"]


def test_a_damaged_remote_shard_is_found(bucket, scenes_recipe, run, tmp_path):
    run(scenes_recipe(upload=f"{bucket}-damaged"))
    content = (tmp_path / "scenes" / "train-000000.tar").read_bytes()
    s3._client().put_object(Bucket="data", Key="sets/scenes-damaged/train-000000.tar", Body=content[:4000])
    shard = f"{bucket}-damaged/train-000000.tar"
    assert any(fits(each, "VSE-D026", shard=shard) for each in verify(f"{bucket}-damaged"))


def test_a_remote_stream_can_be_read_as_a_tar(bucket, scenes_recipe, run):
    run(scenes_recipe(upload=bucket))
    with storage.open_stream(f"{bucket}/train-000000.tar") as stream, tarfile.open(fileobj=stream, mode="r|") as tar:
        assert len(tar.getnames()) == 18


def test_a_missing_object_is_refused(bucket: str) -> None:
    assert not storage.exists(f"{bucket}/none.json")
    with refused("VSE-O029"):
        storage.read_bytes(f"{bucket}/none.json")


def test_an_upload_to_a_missing_bucket_is_refused(bucket: str, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"x")
    with refused("VSE-O027", url="s3://nowhere/file"):
        s3.upload(tmp_path / "file", "s3://nowhere/file")


@pytest.mark.parametrize("url", ["pipe:cat /etc/passwd", "http://host/file", "gs://bucket/file"])
def test_no_other_kind_of_address_is_opened(url: str) -> None:
    with refused("VSE-O001"):
        storage.open_stream(url)


@pytest.mark.parametrize("url", ["s3://", "s3://bucket", "s3:///key"])
def test_an_incomplete_address_is_refused(url: str) -> None:
    with refused("VSE-O002"):
        storage.read_bytes(url)


def test_local_paths_are_joined_opened_and_found(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"content")
    where = join(str(tmp_path), "a")
    assert storage.exists(where)
    assert not storage.exists(str(tmp_path))
    assert not is_remote(where)
    assert storage.read_bytes(where) == b"content"
    assert join("s3://b/p/", "a") == "s3://b/p/a"
