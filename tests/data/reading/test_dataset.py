from __future__ import annotations

import json
import os

import pytest

from vsetune.data.batches.reader import evaluation_batches
from vsetune.data.stored.dataset import Dataset
from vsetune.errors import DataError


def change(data, edit) -> Dataset:
    """The data set with its manifest edited."""
    data.write()
    path = data.folder / "manifest.json"
    plain = json.loads(path.read_text())
    edit(plain)
    path.write_text(json.dumps(plain))
    return Dataset.open(str(data.folder))


def test_an_opened_data_set_tells_its_shape_and_splits(tiny):
    dataset = tiny(23, regions=(1, 4)).write()
    assert (dataset.regions, dataset.width) == (4, 3)
    assert dataset.split("train").images == 23
    assert len(dataset.vocabulary) == dataset.manifest.vocabulary.words


def test_the_fingerprint_depends_on_the_content(tiny):
    data = tiny(3)
    first = data.write().fingerprint
    assert Dataset.open(str(data.folder)).fingerprint == first
    assert change(tiny(3), lambda plain: plain.update(name="other")).fingerprint != first


def test_a_missing_folder_is_named_with_the_commands_that_make_one(tmp_path):
    with pytest.raises(DataError) as caught:
        Dataset.open(str(tmp_path / "nowhere"))
    assert str(caught.value) == (
        f"{tmp_path}/nowhere: no such data folder; make one with `vsetune data ingest`, or a small one with "
        "`vsetune data make-scenes`."
    )


def test_a_folder_without_manifest_is_no_data_set(tmp_path):
    with pytest.raises(DataError, match=r"no manifest.json in it.*`vsetune data ingest`.*make-scenes"):
        Dataset.open(str(tmp_path))


def test_an_unknown_split_lists_those_there_are(tiny):
    with pytest.raises(DataError, match="no split 'dev', it has: train; name one of them"):
        tiny(3).write().split("dev")


def test_an_empty_split_is_refused_when_it_is_used(tiny):
    dataset = tiny([]).write()
    with pytest.raises(DataError, match="split 'train' is empty"):
        dataset.split("train")


def test_a_shard_that_is_gone_is_named(tiny):
    data = tiny(12)
    dataset = data.write()
    (data.folder / "train-000001.tar").unlink()
    with pytest.raises(DataError, match=r"train-000001.tar: shard file missing; check with `vsetune data verify "):
        dataset.check_files(["train"])
    with pytest.raises(DataError, match=r"train-000001.tar: shard file missing; check with `vsetune data verify "):
        list(evaluation_batches(dataset, "train", batch_size=4))


def test_a_shard_that_was_cut_is_named_before_it_is_read(tiny):
    data = tiny(12)
    dataset = data.write()
    dataset.check_files(["train"])
    os.truncate(data.folder / "train-000001.tar", 700)
    with pytest.raises(DataError, match=r"train-000001.tar: damaged shard \(700 bytes, the manifest says .*verify "):
        dataset.check_files(["train"])


def test_checking_the_files_of_an_unknown_split_lists_those_there_are(tiny):
    with pytest.raises(DataError, match="no split 'dev', it has: train; name one of them"):
        tiny(3).write().check_files(["train", "dev"])


def test_another_vocabulary_file_is_refused(tiny):
    data = tiny(3)
    data.write()
    (data.folder / "vocabulary.json").write_text('{"words": []}')
    with pytest.raises(DataError, match=r"vocabulary\.json: .* not the file that was ingested"):
        Dataset.open(str(data.folder))


def test_shards_that_do_not_add_up_to_the_split_are_refused(tiny):
    dataset = change(tiny(12), lambda plain: plain["splits"]["train"].update(images=11))
    with pytest.raises(DataError, match="hold 12 images and 24 captions, the manifest says 11 and 24"):
        dataset.split("train")


def test_shards_that_do_not_follow_one_another_are_refused(tiny):
    dataset = change(tiny(12), lambda plain: plain["splits"]["train"]["shards"][1].update(first_image=4))
    with pytest.raises(DataError, match=r"train-000001\.tar starts at image 4, caption 9; need image 5, caption 9"):
        dataset.split("train")


@pytest.mark.parametrize(
    ("edit", "told"),
    [
        (lambda plain: plain.update(colour="red"), "colour: unknown key; remove it"),
        (
            lambda plain: plain["splits"]["train"].update(images="sixty"),
            "splits.train.images: got 'sixty', need a valid integer, unable to parse string as an integer",
        ),
        (lambda plain: plain.pop("features"), "features: missing, need a value"),
        (
            lambda plain: plain["splits"]["train"]["shards"][0].update(file="../up.tar"),
            "splits.train.shards[0].file: '../up.tar' leads out of the data folder, need the name of a file in it",
        ),
    ],
)
def test_a_manifest_edited_by_hand_is_told_in_the_words_of_other_files(tiny, edit, told):
    data = tiny(3)
    with pytest.raises(DataError) as caught:
        change(data, edit)
    assert str(caught.value) == (
        f"{data.folder}/manifest.json: {told}; restore the file, or ingest the data set again."
    )
