"""Batches from shards of other software: those of an ingested data set of the same pictures, bit for bit."""

from __future__ import annotations

import io
import pickle
import tarfile
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
from equal_batches import assert_equal
from hypothesis import given, settings
from hypothesis import strategies as st
from mock_bucket import bucket
from outside_files import jpeg, make_index, sample, write_outside, write_shards, write_tar
from refusals import refused

from vsetune.config.sources.recipe import IngestRecipe
from vsetune.config.sources.trial_inputs import NetworkReads, PixelInput
from vsetune.data.batches.epoch_shards import epoch_parts, epoch_size, steps_per_epoch
from vsetune.data.batches.reader import evaluation_batches, training_batches
from vsetune.data.looking.verify import verify
from vsetune.data.making.ingest import ingest
from vsetune.data.progress import SilentProgress
from vsetune.data.stored.dataset import Dataset
from vsetune.data.stored.manifest import OutsideShard, ShardInfo, SplitInfo
from vsetune.data.stored.outside_shards import OutsideSample, outside_samples, texts_content, texts_in
from vsetune.data.stored.plain_files import Flaw, is_text
from vsetune.data.stored.shards import iter_captions
from vsetune.errors import DataError

__all__ = ["bucket"]

OPTIONS = {"batch_size": 4, "batch_unit": "pairs", "seed": 1, "epoch": 0, "shuffle_pairs": 6}
PIXELS = NetworkReads(pixels=PixelInput(size=8, crop_low=0.3, swaps_sides=True))


@pytest.fixture
def dataset(tmp_path) -> Dataset:
    """Whose shards stand in `tmp_path`, for a test to change."""
    write_shards(tmp_path)
    return make_index(tmp_path)


@pytest.fixture(scope="module")
def sound(tmp_path_factory) -> Dataset:
    """Only to be read."""
    folder = tmp_path_factory.mktemp("sound")
    write_shards(folder)
    return make_index(folder)


def ingested(folder: Path) -> Dataset:
    """The pictures of `write_shards`, made into shards of our own of the same sizes."""
    numbers = {"train": range(24), "validation": range(1000, 1006)}
    (folder / "pictures").mkdir()
    lines = ["image,caption"]
    for split, found in numbers.items():
        (folder / f"{split}.txt").write_text("".join(f"{number}.jpg\n" for number in found))
        for number in found:
            (folder / "pictures" / f"{number}.jpg").write_bytes(jpeg(number))
            lines.append(f"{number}.jpg,thing {number} left of {number % 5}")
    (folder / "captions.csv").write_text("\n".join(lines))
    recipe = IngestRecipe.model_validate({
        "name": "ingested", "output": str(folder / "ingested"), "vocabulary_min_count": 1,
        "source": {
            "layout": "caption_table", "captions": str(folder / "captions.csv"), "images": [str(folder / "pictures")],
            "lists": {split: str(folder / f"{split}.txt") for split in numbers},
        },
        "features": {"extractor": "pixels", "grid": 1, "width": 8}, "shard": {"max_images": 8},
    })
    ingest(recipe, progress=SilentProgress())
    return Dataset.open(recipe.output)


@pytest.mark.parametrize("workers", [0, 2])
def test_batches_equal_those_of_an_ingested_data_set(sound, tmp_path, workers):
    ours = ingested(tmp_path)
    assert ours.vocabulary == sound.vocabulary
    for unit in ("pairs", "images"):
        options = {**OPTIONS, "batch_unit": unit, "reads": PIXELS}
        assert_equal(
            training_batches(ours, "train", **options), training_batches(sound, "train", **options, workers=workers)
        )
    assert_equal(
        evaluation_batches(ours, "validation", batch_size=4, reads=PIXELS),
        evaluation_batches(sound, "validation", batch_size=4, reads=PIXELS),
    )


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("captions", ["txt", "json.captions"])
@pytest.mark.parametrize("unit", ["pairs", "images"])
def test_a_resumed_epoch_reads_only_shards_that_it_needs(tmp_path, unit, captions, workers):
    write_shards(tmp_path, shards=8, each=4)
    dataset = make_index(tmp_path, shards=str(tmp_path / "train-{0..7}.tar"), captions=captions)
    options = {**OPTIONS, "batch_unit": unit, "reads": PIXELS, "shuffle_pairs": 6}
    whole = list(training_batches(dataset, "train", **options))
    skip = len(whole) * 3 // 4
    needed = {number // 4 for batch in whole[skip:] for number in batch.image_ids.tolist()}
    assert len(needed) < 8
    for number in set(range(8)) - needed:
        (tmp_path / f"train-{number}.tar").unlink()
    assert_equal(whole[skip:], training_batches(dataset, "train", **options, skip_batches=skip, workers=workers))


def test_a_resumed_epoch_reads_all_where_numbers_of_captions_differ(tmp_path):
    write_shards(tmp_path)
    write_outside(tmp_path / "train-0.tar", [sample(0), sample(1, json='{"captions": ["a", "b", "c"]}')])
    dataset = make_index(tmp_path, captions="json.captions")
    whole = list(training_batches(dataset, "train", **OPTIONS, reads=PIXELS))
    for skip in range(len(whole)):
        assert_equal(whole[skip:], training_batches(dataset, "train", **OPTIONS, reads=PIXELS, skip_batches=skip))


def test_several_captions_of_an_image_are_rows_of_their_own(tmp_path):
    write_shards(tmp_path)
    dataset = make_index(tmp_path, captions="json.captions")
    batches = list(training_batches(dataset, "train", **OPTIONS, reads=PIXELS))
    assert Counter(number for batch in batches for number in batch.image_ids.tolist()) == dict.fromkeys(range(24), 2)
    assert sorted(number for batch in batches for number in batch.caption_ids.tolist()) == list(range(48))


@pytest.mark.parametrize("damage", ["missing", "cut", "other"])
@pytest.mark.parametrize("workers", [0, 2])
def test_a_shard_that_changed_after_the_index_is_named(dataset, tmp_path, damage, workers):
    shard = tmp_path / "train-1.tar"
    content, whole = shard.read_bytes(), list(training_batches(dataset, "train", **OPTIONS, reads=PIXELS))
    if damage == "missing":
        shard.unlink()
        message = "VSE-D092"
    else:
        members = [(f"{number}.{suffix}", b"x") for number in range(8) for suffix in ("txt", "jp2")]
        write_tar(shard, members)
        changed = shard.read_bytes()[: len(content)]
        shard.write_bytes(content[:-2000] if damage == "cut" else changed + bytes(len(content) - len(changed)))
        message = "VSE-D093"
    with refused(message, shard=str(shard), folder=dataset.path):
        list(training_batches(dataset, "train", **OPTIONS, reads=PIXELS, workers=workers))
    shard.write_bytes(content)
    assert_equal(whole, training_batches(dataset, "train", **OPTIONS, reads=PIXELS))


def test_a_shard_of_another_size_is_named_before_a_study(dataset, tmp_path):
    dataset.require_unchanged(["train"])
    with open(tmp_path / "train-2.tar", "ab") as shard:
        shard.write(b"\0")
    with refused("VSE-D093", shard=str(tmp_path / "train-2.tar")):
        dataset.require_unchanged(["train"])


def test_shards_may_be_links(tmp_path):
    write_shards(tmp_path / "real")
    for path in (tmp_path / "real").glob("*.tar"):
        (tmp_path / path.name).symlink_to(path)
    dataset = make_index(tmp_path)
    dataset.check_files(["train"])
    assert len(list(training_batches(dataset, "train", **OPTIONS, reads=PIXELS))) == 6


@pytest.mark.parametrize("gigabytes", ["1", "0"], ids=["kept", "streamed"])
def test_shards_of_a_bucket_are_read_as_they_are(dataset, tmp_path, bucket, gigabytes, monkeypatch):
    monkeypatch.setenv("VSETUNE_NODE_CACHE_GB", gigabytes)
    for path in tmp_path.glob("*.tar"):
        bucket.upload_file(str(path), "data", f"web/{path.name}")
    places = {"shards": "s3://data/web/train-{0..2}.tar", "validation": "s3://data/web/val-0.tar"}
    remote = make_index(tmp_path, **places, output=str(tmp_path / "remote"))
    for epoch in range(2):
        options = {**OPTIONS, "epoch": epoch, "reads": PIXELS}
        assert_equal(training_batches(dataset, "train", **options), training_batches(remote, "train", **options))
    bucket.delete_object(Bucket="data", Key="web/train-1.tar")
    if gigabytes == "0":
        with refused("VSE-D092", shard="s3://data/web/train-1.tar"):
            list(training_batches(remote, "train", **OPTIONS, reads=PIXELS))
    else:
        assert len(list(training_batches(remote, "train", **OPTIONS, reads=PIXELS))) == 6


def test_features_are_refused_by_name(sound):
    with refused("VSE-D094", folder=sound.path):
        list(training_batches(sound, "train", **OPTIONS))


def test_captions_are_read_without_the_shards(dataset, tmp_path):
    for path in tmp_path.glob("*.tar"):
        path.unlink()
    assert list(iter_captions(dataset, "train")) == [f"thing {number} left of {number % 5}" for number in range(24)]


def test_a_file_of_captions_that_is_gone_or_was_changed_is_named(dataset):
    outside = dataset.split("train").shards[1].outside
    file = Path(dataset.path) / outside.texts
    content = file.read_bytes()
    file.write_bytes(content.replace(b"thing 9", b"thing 8"))
    with refused("VSE-D030", file=str(file)):
        list(iter_captions(dataset, "train"))
    assert [problem.code for problem in verify(dataset.path)] == ["VSE-D030"]
    file.unlink()
    with refused("VSE-D102", file=str(file)):
        list(iter_captions(dataset, "train"))
    file.write_bytes(content)
    assert verify(dataset.path) == []


@pytest.mark.parametrize("line", ["{", "[1, []]", '["a", []]', '["a", ["b", 3]]', '["a", "b"]', "null"])
def test_other_files_of_captions_are_refused(line):
    with pytest.raises(DataError):
        list(texts_in(f'["k", ["a caption"]]\n{line}\n'.encode(), where="captions"))


@settings(deadline=None)
@given(st.lists(st.tuples(st.text(), st.lists(st.text(), min_size=1))))
def test_captions_come_back_from_their_file(texts):
    texts = [(key, captions) for key, captions in texts if all(is_text(each) for each in (key, *captions))]
    assert list(texts_in(texts_content(texts), where="captions")) == texts


class Loud:
    def __reduce__(self):
        return (print, ("unpickled",))


def test_nothing_is_unpickled(tmp_path, capsys):
    write_shards(tmp_path)
    secret = pickle.dumps(Loud())
    write_outside(tmp_path / "train-0.tar", [sample(0) | {"pyd": secret, "pickle": secret, "npy": b"x"}])
    dataset = make_index(tmp_path)
    assert sum(batch.pairs for batch in training_batches(dataset, "train", **OPTIONS, reads=PIXELS)) == 17
    assert "unpickled" not in capsys.readouterr().out


def before_the_flaw(content: bytes) -> list[OutsideSample]:
    found = []
    try:
        for each in outside_samples(io.BytesIO(content), "txt"):
            found.append(each)
    except Flaw:
        return found
    raise AssertionError("no flaw was found")


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_a_shard_that_is_cut_anywhere_gives_the_samples_before_the_cut(data):
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for number in range(4):
            for suffix, content in (("jpg", bytes(700)), ("txt", b"text")):
                header = tarfile.TarInfo(f"{number}.{suffix}")
                header.size, header.mtime = len(content), 1.5
                tar.addfile(header, io.BytesIO(content))
    content = buffer.getvalue()
    whole = list(outside_samples(io.BytesIO(content), "txt"))
    assert [each.key for each in whole] == ["0", "1", "2", "3"]
    end = data.draw(st.integers(0, len(content.rstrip(b"\0")) - 1))
    found = before_the_flaw(content[:end])
    sound = [each for each in found if not each.flaw]
    assert sound == whole[: len(sound)]
    assert len(found) - len(sound) <= 1


def split_of(*shards: tuple[int, float], captions: int = 1) -> SplitInfo:
    """Shards of (images, weight)."""
    infos, first = [], 0
    for number, (images, weight) in enumerate(shards):
        infos.append(ShardInfo(
            file=f"{number}.tar", sha256="0", bytes=1 << 20, images=images, captions=images * captions,
            first_image=first, first_caption=first * captions,
            outside=OutsideShard(address=f"/{number}", texts="a", texts_sha256="0", weight=weight),
        ))
        first += images
    return SplitInfo(
        images=first, captions=first * captions, captions_min=captions, captions_max=captions, captions_mean=captions,
        shards=infos,
    )


@given(st.lists(st.tuples(st.integers(1, 30), st.sampled_from([0.1, 0.5, 1.0, 1.7, 3.0])), min_size=1, max_size=8),
       st.integers(1, 3), st.integers(0, 5))
def test_every_epoch_has_the_announced_size(shards, captions, epoch):
    info = split_of(*shards, captions=captions)
    parts = epoch_parts(info, seed=1, epoch=epoch)
    assert parts == epoch_parts(info, seed=1, epoch=epoch)
    size = epoch_size(info)
    assert sum(part.images for part in parts) == size.images
    assert size.captions == captions * size.images
    for weight in {weight for _, weight in shards}:
        images = [(part.shard, image) for part in parts if part.shard.outside.weight == weight
                  for image in range(part.shard.images) if part.has(part.shard.first_image + image)]
        assert len(images) == int(weight) * sum(n for n, w in shards if w == weight) + round(
            (weight - int(weight)) * sum(n for n, w in shards if w == weight)
        )
        assert max(Counter((shard.file, image) for shard, image in images).values(), default=0) <= int(weight) + 1


def test_a_part_of_the_images_is_another_one_in_every_epoch(tmp_path):
    write_shards(tmp_path)
    sources = [
        {"shards": str(tmp_path / "train-{0..1}.tar"), "weight": 0.7},
        {"shards": str(tmp_path / "train-2.tar"), "weight": 2},
    ]
    dataset = make_index(tmp_path, shards=sources)
    seen = []
    for epoch in range(12):
        options = {**OPTIONS, "epoch": epoch, "reads": PIXELS}
        batches = list(training_batches(dataset, "train", **options))
        assert len(batches) == steps_per_epoch(dataset, "train", batch_size=4, batch_unit="pairs") == 7
        counts = Counter(number for batch in batches for number in batch.image_ids.tolist())
        assert {number: count for number, count in counts.items() if number >= 16} == dict.fromkeys(range(16, 24), 2)
        seen.append(frozenset(number for number in counts if number < 16))
        assert len(seen[-1]) == 11
    assert len(set(seen)) > 8
    share = Counter(number for each in seen for number in each)
    assert set(share) == set(range(16))
    whole = list(training_batches(dataset, "train", **OPTIONS, reads=PIXELS))
    assert_equal(whole, training_batches(dataset, "train", **OPTIONS, reads=PIXELS, workers=2))
    for skip in range(len(whole)):
        assert_equal(whole[skip:], training_batches(dataset, "train", **OPTIONS, reads=PIXELS, skip_batches=skip))


def test_boxes_are_not_looked_for(sound):
    batches = list(training_batches(sound, "train", **OPTIONS, reads=replace(PIXELS, boxes=True)))
    assert all(batch.images.boxes is None for batch in batches)
