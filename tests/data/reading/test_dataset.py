from __future__ import annotations

import json
import os

import pytest
from refusals import fits, refused

from vsetune.data.batches.reader import evaluation_batches
from vsetune.data.looking.verify import verify
from vsetune.data.stored.dataset import Dataset


def change(data, edit) -> Dataset:
    """The data set with its manifest edited."""
    data.write()
    path = data.folder / "manifest.json"
    plain = json.loads(path.read_text())
    edit(plain)
    path.write_text(json.dumps(plain))
    return Dataset.open(str(data.folder))


def test_the_fingerprint_depends_on_the_content(tiny):
    data = tiny(3)
    first = data.write().fingerprint
    assert Dataset.open(str(data.folder)).fingerprint == first
    assert change(tiny(3), lambda plain: plain.update(name="other")).fingerprint != first


@pytest.mark.parametrize("use", [Dataset.open, verify])
def test_a_folder_without_a_data_set_is_refused(tmp_path, use):
    with refused("VSE-D012", folder=tmp_path / "nowhere"):
        use(str(tmp_path / "nowhere"))
    with refused("VSE-D013", folder=tmp_path):
        use(str(tmp_path))
    for content, message in (
        (b"not json", "VSE-D010"), (b"[]", "VSE-D015"), (b'{"format": "vsetune-data", "version": 99}', "VSE-D015"),
        (b'{"format": "vsetune-data", "version": 1}', "VSE-D014"),
    ):
        (tmp_path / "manifest.json").write_bytes(content)
        with refused(message):
            use(str(tmp_path))


def test_an_unknown_split_lists_those_there_are(tiny):
    dataset = tiny(3).write()
    for use in (dataset.split, lambda name: dataset.check_files(["train", name])):
        with refused("VSE-D021", split="dev", splits="train"):
            use("dev")


def test_an_empty_split_is_refused_when_it_is_used(tiny):
    dataset = tiny([]).write()
    with refused("VSE-D023", split="train"):
        dataset.split("train")


def test_a_shard_that_is_gone_or_cut_is_named(tiny):
    data = tiny(12)
    dataset, shard = data.write(), data.folder / "train-000001.tar"
    dataset.check_files(["train"])
    os.truncate(shard, 700)
    with refused("VSE-D026", shard=shard):
        dataset.check_files(["train"])
    shard.unlink()
    with refused("VSE-D025", kind="shard", file=shard):
        dataset.check_files(["train"])
    with refused("VSE-D025", kind="shard", file=shard):
        list(evaluation_batches(dataset, "train", batch_size=4))


def test_another_vocabulary_file_is_refused(tiny):
    data = tiny(3)
    data.write()
    (data.folder / "vocabulary.json").write_text('{"words": []}')
    with refused("VSE-D030", file=data.folder / "vocabulary.json"):
        Dataset.open(str(data.folder))


@pytest.mark.parametrize(("edit", "fields"), [
    (lambda split: split.update(images=11), {"found": "12 images and 24 captions", "need": "11 and 24"}),
    (lambda split: split["shards"][1].update(first_image=4), {"need": "image 5, caption 9"}),
])
def test_shards_that_do_not_add_up_to_the_split_or_follow_one_another_are_refused(tiny, edit, fields):
    dataset = change(tiny(12), lambda plain: edit(plain["splits"]["train"]))
    with refused("VSE-D024", **fields):
        dataset.split("train")
    assert any(fits(each, "VSE-D024", **fields) for each in verify(dataset.path))


@pytest.mark.parametrize(
    ("edit", "reason"),
    [
        (lambda plain: plain.update(colour="red"), "colour: "),
        (lambda plain: plain["splits"]["train"].update(images="sixty"), "splits.train.images: got 'sixty'"),
        (lambda plain: plain.pop("features"), "features: missing"),
        (lambda plain: plain["splits"]["train"]["shards"][0].update(file="../up.tar"), "splits.train.shards[0].file: "),
    ],
)
def test_a_manifest_edited_by_hand_is_refused_with_the_key(tiny, edit, reason):
    data = tiny(3)
    with refused("VSE-D014", where=data.folder / "manifest.json") as caught:
        change(data, edit)
    assert caught.value.problem.fields["reason"].startswith(reason)
