"""What the reader says about shards that are not what the manifest describes."""

from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np
import pytest
from refusals import refused

from vsetune.config.sources.trial_inputs import SemanticSpec
from vsetune.data.batches.reader import evaluation_batches, training_batches
from vsetune.data.captions.semantic_sources import semantic_vectors
from vsetune.data.stored.dataset import Dataset, wrong_hash
from vsetune.data.stored.shards import iter_captions, iter_words
from vsetune.errors import DataError

OPTIONS = {"batch_size": 4, "batch_unit": "pairs", "seed": 1, "epoch": 0, "shuffle_pairs": 8}


def refuses(dataset, message, *, workers=0, **fields):
    with refused(message, by=DataError, **fields) as caught:
        list(training_batches(dataset, "train", **OPTIONS, workers=workers))
    return caught.value.problem


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("kept", [100, 3000, 4096, 9000, 12000])
def test_a_truncated_shard_is_named_with_the_command_that_checks_it(tiny, kept, workers):
    dataset = tiny().write()
    shard = f"{dataset.path}/train-000002.tar"
    os.truncate(shard, kept)
    problem = refuses(dataset, "VSE-D026", workers=workers, shard=shard)
    assert "BufferedReader" not in problem


def test_a_flipped_header_is_damage_not_the_end_of_the_shard(tiny):
    dataset = tiny().write()
    shard = f"{dataset.path}/train-000001.tar"
    with open(shard, "r+b") as stream:
        stream.seek(1024)
        stream.write(b"\xff" * 200)
    refuses(dataset, "VSE-D026", shard=shard)


@pytest.mark.parametrize("workers", [0, 1])
def test_a_shard_with_more_images_than_listed_is_refused(tiny, workers):
    data = tiny(33, images_per_shard=17)
    data.write()
    plain = json.loads((data.folder / "manifest.json").read_text())
    split = plain["splits"]["train"]
    split["shards"][1].update(images=15, captions=30)
    split.update(images=32, captions=63)
    (data.folder / "manifest.json").write_text(json.dumps(plain))
    reason = "holds more images than the 15 of the manifest"
    refuses(Dataset.open(str(data.folder)), "VSE-D026", workers=workers, reason=reason)


def test_a_pickled_array_is_refused(tiny, npy):
    bomb = npy(np.array([{"any": "object"}], object), dtype="object", allow_pickle=True)
    dataset = tiny(edit=lambda index, members: members.update({"features.npy": bomb})).write()
    assert "pickles are refused" in refuses(dataset, "VSE-D011")


@pytest.mark.parametrize(
    ("shape", "dtype", "regions", "need"),
    [
        ((2, 9), "float16", (2,), "(2, 3) float16"), ((3, 3), "float16", (1, 2), "(1 to 2, 3) float16"),
        ((2, 3), "float64", (2,), "(2, 3) float16"),
    ],
)
def test_features_of_another_shape_or_type_are_refused(tiny, npy, shape, dtype, regions, need):
    def change(index, members):
        if index == 7:
            members["features.npy"] = npy(np.zeros(shape), dtype=dtype)

    dataset = tiny(regions=regions, edit=change).write()
    where = f"{dataset.path}/train-000001.tar: sample 00000007"
    refuses(dataset, "VSE-D024", where=where, found=f"features {shape} {dtype}", need=need)


@pytest.mark.parametrize("suffix", ["json", "features.npy"])
def test_a_missing_member_is_named(tiny, suffix):
    dataset = tiny(edit=lambda index, members: members.pop(suffix)).write()
    assert f"has no .{suffix} member" in refuses(dataset, "VSE-D026")


@pytest.mark.parametrize(
    "content", [b"[]", b'{"captions": ["a"], "tokens": []}', b'{"captions": [1], "tokens": [["a"]]}',
                b'{"captions": ["a"], "tokens": ["a"], "index": 0, "first_caption": 0}'],
)
def test_a_json_member_of_another_shape_is_refused(tiny, content):
    dataset = tiny(edit=lambda index, members: members.update(json=content)).write()
    refuses(dataset, "VSE-D024", found="another record")


def test_images_in_another_order_than_listed_are_refused(tiny):
    def swap(index, members):
        plain = json.loads(members["json"])
        plain["index"] = 1 - index if index < 2 else index
        members["json"] = json.dumps(plain).encode()

    dataset = tiny(edit=swap).write()
    with refused("VSE-D026", reason="sample 00000000 is (image, caption) (1, 0), need (0, 0)"):
        list(evaluation_batches(dataset, "train", batch_size=2))


def test_captions_are_read_without_looking_at_features(tiny):
    data = tiny(edit=lambda index, members: members.update({"features.npy": b"junk"}))
    dataset = data.write()
    assert list(iter_captions(dataset, "train")) == [text for texts in data.captions for text in texts]


def test_a_changed_caption_is_damage_and_nothing_made_of_it_is_kept(tiny):
    """Semantic vectors and parses are kept by the hashes of the manifest: made of changed captions they would stay,
    also when the shard is mended."""
    dataset = tiny(captions=[["a dog runs", "two cats sleep"]] * 12).write()
    shard = Path(dataset.path) / "train-000001.tar"
    whole = shard.read_bytes()
    shard.write_bytes(whole.replace(b"dog", b"hog"))
    with refused("VSE-D026", shard=shard, reason=wrong_hash()):
        semantic_vectors(dataset, SemanticSpec(), split="train")
    with refused("VSE-D026", shard=shard, reason=wrong_hash()):
        list(iter_words(dataset, "train"))
    assert not list(Path(dataset.path).glob("semantics-*"))
    shard.write_bytes(whole)
    assert len(semantic_vectors(dataset, SemanticSpec(), split="train")) == 24
