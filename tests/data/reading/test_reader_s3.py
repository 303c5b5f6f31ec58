from __future__ import annotations

import multiprocessing
import threading
from pathlib import Path

import pytest
from equal_batches import assert_equal
from mock_bucket import bucket
from refusals import refused

from vsetune.data.batches.reader import evaluation_batches, training_batches
from vsetune.data.captions.parses import read_parses
from vsetune.data.stored.dataset import Dataset
from vsetune.data.stored.shards import iter_captions
from vsetune.home import s3

__all__ = ["bucket"]

OPTIONS = {"batch_size": 4, "batch_unit": "pairs", "seed": 1, "epoch": 0, "shuffle_pairs": 8}


@pytest.fixture
def local(tiny, bucket) -> Dataset:
    """A data set in a folder, which stands at `s3://data/tiny` too."""
    dataset = tiny().write()
    for path in tiny().folder.iterdir():
        bucket.upload_file(str(path), "data", f"tiny/{path.name}")
    return dataset


@pytest.mark.parametrize(("gigabytes", "workers"), [("1", 0), ("1", 2), ("0", 2)], ids=str)
def test_shards_on_s3_give_the_same_batches_as_the_folder(local, workers, gigabytes, monkeypatch):
    monkeypatch.setenv("VSETUNE_NODE_CACHE_GB", gigabytes)
    remote = Dataset.open("s3://data/tiny")
    assert remote.fingerprint == local.fingerprint
    for epoch in range(2):
        options = OPTIONS | {"epoch": epoch}
        assert_equal(
            training_batches(local, "train", **options), training_batches(remote, "train", **options, workers=workers)
        )
    assert_equal(evaluation_batches(local, "train", batch_size=3), evaluation_batches(remote, "train", batch_size=3))
    assert list(iter_captions(local, "train")) == list(iter_captions(remote, "train"))


def test_what_is_missing_or_half_written_on_s3_is_named(local, bucket):
    with refused("VSE-D013", folder="s3://data/nothing"):
        Dataset.open("s3://data/nothing")
    with refused("VSE-O028", url="s3://date/tiny/manifest.json", bucket="date"):
        Dataset.open("s3://date/tiny")
    dataset, shard = Dataset.open("s3://data/tiny"), "s3://data/tiny/train-000001.tar"
    content = (Path(local.path) / "train-000001.tar").read_bytes()
    for spoilt in (content[:-1024], content[:-1] + b"x"):
        bucket.put_object(Bucket="data", Key="tiny/train-000001.tar", Body=spoilt)
        with refused("VSE-D026", shard=shard):
            list(training_batches(dataset, "train", **OPTIONS))
    bucket.delete_object(Bucket="data", Key="tiny/train-000001.tar")
    with refused("VSE-D025", file=shard, kind="shard"):
        list(training_batches(dataset, "train", **OPTIONS))


def test_a_file_on_s3_is_asked_for_once(local):
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
    asked.clear()
    list(training_batches(dataset, "train", **OPTIONS | {"epoch": 1}))
    list(evaluation_batches(dataset, "train", batch_size=3))
    Dataset.open("s3://data/tiny")
    assert asked == [("GetObject", "/tiny/manifest.json")]


def test_the_next_shard_is_fetched_while_one_is_read_and_no_further(local):
    dataset = Dataset.open("s3://data/tiny")
    shards = dataset.split("train").shards
    asked, two = [], threading.Event()

    def note(params, **_):
        asked.append(params["url_path"])
        if len(asked) == 2:
            two.set()

    s3._client().meta.events.register("before-call.s3", note)
    with dataset.fetched_ahead(shards) as coming:
        assert next(iter(coming)) == shards[0]
        assert two.wait(timeout=30)
    assert asked == [f"/tiny/{shard.file}" for shard in shards[:2]]


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
