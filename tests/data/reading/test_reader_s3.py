from __future__ import annotations

import multiprocessing

import boto3
import pytest
import torch
from moto import mock_aws

from vsetune.data.batches.reader import training_batches
from vsetune.data.captions.parses import read_parses
from vsetune.data.stored.dataset import Dataset
from vsetune.errors import DataError
from vsetune.object_storage import s3

OPTIONS = {"batch_size": 4, "batch_unit": "pairs", "seed": 1, "epoch": 0, "shuffle_pairs": 8}


@pytest.fixture
def bucket(monkeypatch):
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "test")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    with mock_aws():
        s3._client.cache_clear()
        client = boto3.client("s3")
        client.create_bucket(Bucket="data")
        yield client
    s3._client.cache_clear()


@pytest.mark.parametrize("workers", [0, 2])
def test_shards_on_s3_give_the_same_batches_as_the_folder(tiny, bucket, workers):
    local = tiny().write()
    for path in tiny().folder.iterdir():
        bucket.upload_file(str(path), "data", f"sets/tiny/{path.name}")
    remote = Dataset.open("s3://data/sets/tiny")
    assert remote.fingerprint == local.fingerprint
    here = list(training_batches(local, "train", **OPTIONS))
    there = list(training_batches(remote, "train", **OPTIONS, workers=workers))
    assert len(here) == len(there)
    for one, other in zip(here, there, strict=True):
        assert torch.equal(one.captions, other.captions)
        assert torch.equal(one.image_features, other.image_features)


def test_a_prefix_without_manifest_is_no_data_set(bucket):
    with pytest.raises(DataError, match=r"^s3://data/nothing: no manifest\.json in it"):
        Dataset.open("s3://data/nothing")


def test_a_shard_missing_on_s3_is_named_when_it_is_read(tiny, bucket):
    tiny().write()
    for path in tiny().folder.iterdir():
        if path.name != "train-000001.tar":
            bucket.upload_file(str(path), "data", f"tiny/{path.name}")
    with pytest.raises(DataError, match=r"^s3://data/tiny/train-000001\.tar: shard file missing; check with `vsetune "):
        list(training_batches(Dataset.open("s3://data/tiny"), "train", **OPTIONS))


def test_a_file_on_s3_is_asked_for_once(tiny, bucket):
    tiny().write()
    for path in tiny().folder.iterdir():
        bucket.upload_file(str(path), "data", f"tiny/{path.name}")
    asked = []
    events = s3._client().meta.events
    events.register("before-call.s3", lambda model, params, **_: asked.append((model.name, params["url_path"])))
    dataset = Dataset.open("s3://data/tiny")
    dataset.check_files(["train"])
    assert read_parses(dataset.path) is None
    names = ("manifest.json", "vocabulary.json", "parses.json")
    assert asked == [("GetObject", f"/tiny/{name}") for name in names]
    asked.clear()
    list(training_batches(dataset, "train", **OPTIONS))
    assert sorted(asked) == [("GetObject", f"/tiny/{shard.file}") for shard in dataset.split("train").shards]


def _connections(answer):
    answer.put(s3._client.cache_info().currsize)


def test_a_forked_reader_does_not_share_the_connections_of_its_parent(bucket):
    s3._client()
    context = multiprocessing.get_context("fork")
    answer = context.Queue()
    process = context.Process(target=_connections, args=(answer,))
    process.start()
    assert answer.get(timeout=30) == 0
    process.join(timeout=30)
    assert s3._client.cache_info().currsize == 1
