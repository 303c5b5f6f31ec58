import json
import os
import re
import shutil
import signal
import tarfile
from collections.abc import Callable
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from refusals import refused

from vsetune.config.sources.recipe import IngestRecipe
from vsetune.data.looking.verify import verify
from vsetune.data.making.ingest import ingest
from vsetune.data.making.raw import RawDataset, RawImage, RawSplit
from vsetune.data.making.shard_making import named_splits
from vsetune.data.making.shard_writer import Sample, sample_bytes_bound, write_shard
from vsetune.data.stored.dataset import Dataset
from vsetune.data.stored.manifest import Manifest
from vsetune.data.stored.vocabulary import tokenise
from vsetune.errors import DataError, StorageError, StudyConflict

Make = Callable[..., IngestRecipe]
Run = Callable[[IngestRecipe], Manifest]
Contents = Callable[[Path], dict[str, bytes]]


class StoppedError(Exception):
    """Ends an ingest in the middle."""


class StopAfter:
    """Progress that ends the ingest once so many images are done."""

    def __init__(self, images: int) -> None:
        self._left = images

    def stage(self, name: str, total: int) -> None:
        pass

    def advance(self, count: int) -> None:
        self._left -= count
        if self._left <= 0:
            raise StoppedError


def records(folder: Path, split: str) -> list[dict[str, Any]]:
    found = []
    for path in sorted(folder.glob(f"{split}-*.tar")):
        with tarfile.open(path) as tar:
            for member in tar:
                file = tar.extractfile(member)
                if member.name.endswith(".json") and file is not None:
                    found.append(json.loads(file.read()))
    return found


def test_manifest_samples_and_vocabulary_describe_the_shards(scenes_made_once: Path) -> None:
    assert verify(str(scenes_made_once)) == []
    dataset = Dataset.open(str(scenes_made_once))
    train, features = dataset.split("train"), dataset.manifest.features
    assert (train.images, train.captions, train.captions_min, train.captions_max) == (20, 100, 5, 5)
    assert [shard.images for shard in train.shards] == [6, 6, 6, 2]
    assert [shard.first_caption for shard in train.shards] == [0, 30, 60, 90]
    assert (dataset.split("validation").images, dataset.split("test").images) == (8, 4)
    assert (features.regions, features.width, features.dtype) == (4, 16, "float16")
    found = records(scenes_made_once, "train")
    assert [record["index"] for record in found] == list(range(20))
    assert [record["first_caption"] for record in found] == list(range(0, 100, 5))
    assert all(record["tokens"] == [tokenise(caption) for caption in record["captions"]] for record in found)
    words = {word for record in found for words in record["tokens"] for word in words}
    assert set(dataset.vocabulary.words[5:]) == words, "from the train split alone"


def test_an_ingest_stopped_anywhere_resumes_to_the_same_bytes(
    scenes_recipe: Make, run: Run, contents: Contents, tmp_path: Path, scenes_made_once: Path
) -> None:
    recipe = scenes_recipe("stopped")
    for images in (1, 6, 7, 19, 21, 30):
        with pytest.raises(StoppedError):
            ingest(recipe, progress=StopAfter(images))
        assert not (tmp_path / "stopped" / "manifest.json").exists()
    run(recipe)
    assert contents(tmp_path / "stopped") == contents(scenes_made_once)
    assert not (tmp_path / "stopped" / ".ingest").exists()


def test_finished_shards_are_written_again_only_when_they_were_damaged(
    scenes_recipe: Make, run: Run, contents: Contents, tmp_path: Path, scenes_made_once: Path
) -> None:
    with pytest.raises(StoppedError):
        ingest(scenes_recipe("stopped"), progress=StopAfter(13))
    first, second = (tmp_path / "stopped" / f"train-00000{number}.tar" for number in (0, 1))
    before = second.stat().st_mtime_ns
    first.write_bytes(first.read_bytes()[:-1000])
    run(scenes_recipe("stopped"))
    assert contents(tmp_path / "stopped") == contents(scenes_made_once)
    assert second.stat().st_mtime_ns == before


class Killed(StopAfter):
    def advance(self, count: int) -> None:
        try:
            super().advance(count)
        except StoppedError:
            os.kill(os.getpid(), signal.SIGKILL)


def test_an_ingest_killed_by_the_system_resumes_to_the_same_bytes(
    scenes_recipe: Make, run: Run, contents: Contents, tmp_path: Path, scenes_made_once: Path
) -> None:
    recipe = scenes_recipe("killed")
    process = get_context("fork").Process(target=ingest, args=(recipe,), kwargs={"progress": Killed(13)})
    process.start()
    process.join()
    assert process.exitcode == -signal.SIGKILL
    assert (tmp_path / "killed" / ".ingest" / "train-000001.json").exists()
    assert not (tmp_path / "killed" / "manifest.json").exists()
    run(recipe)
    assert contents(tmp_path / "killed") == contents(scenes_made_once)


def test_a_finished_ingest_is_found_finished(scenes_recipe: Make, run: Run, contents: Contents, tmp_path: Path) -> None:
    first = run(scenes_recipe())
    before = contents(tmp_path / "scenes")
    assert run(scenes_recipe()) == first
    assert contents(tmp_path / "scenes") == before


@pytest.mark.parametrize("file", ["train-000001.tar", "vocabulary.json"])
def test_a_finished_data_set_that_lost_a_file_is_not_taken_for_complete(
    scenes_recipe: Make, run: Run, scenes_made_once: Path, tmp_path: Path, file: str
) -> None:
    place = Path(shutil.copytree(scenes_made_once, tmp_path / "scenes"))
    (place / file).unlink()
    with refused("VSE-D025", file=place / file) as caught:
        run(scenes_recipe())
    assert str(caught.value).endswith(f" A complete data set is not made anew: delete {place} first.")


def test_another_recipe_is_refused_a_finished_or_unfinished_folder(scenes_recipe: Make, run: Run) -> None:
    with pytest.raises(StoppedError):
        ingest(scenes_recipe(), progress=StopAfter(7))
    with refused("VSE-D038", by=StudyConflict, other="another recipe"):
        run(scenes_recipe(vocabulary_min_count=2))
    run(scenes_recipe())
    with refused("VSE-D034", by=StudyConflict, data_set="scenes"):
        run(scenes_recipe(vocabulary_min_count=2))


def test_a_folder_with_other_files_is_refused(scenes_recipe: Make, run: Run, tmp_path: Path) -> None:
    (tmp_path / "scenes").mkdir()
    (tmp_path / "scenes" / "thesis.tex").write_text("mine")
    with refused("VSE-D035", by=StudyConflict, file="thesis.tex"):
        run(scenes_recipe())


def test_two_ingests_at_once_into_a_folder_are_refused(scenes_recipe: Make, run: Run) -> None:
    class Nested(StopAfter):
        def advance(self, count: int) -> None:
            with refused("VSE-D037", by=StorageError):
                run(scenes_recipe())
            raise StoppedError

    with pytest.raises(StoppedError):
        ingest(scenes_recipe(), progress=Nested(1))


def test_too_little_free_space_is_noticed_before_anything_is_written(scenes_recipe, run, tmp_path, monkeypatch):
    usage = shutil.disk_usage(tmp_path)._replace(free=10_000)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage)
    with refused("VSE-D039", by=StorageError):
        run(scenes_recipe())
    assert list((tmp_path / "scenes").glob("*.tar*")) == []


def sample(index: int, *, image: bytes | None = None) -> Sample:
    features = np.full((2, 3), index, dtype=np.float16)
    return Sample(index, index, f"image {index}", ["A red dog ."], features, None, (image, "jpg") if image else None)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs the device /dev/full")
def test_a_full_disk_leaves_no_partial_shard(tmp_path: Path) -> None:
    path = tmp_path / "train-000000.tar"
    partial = tmp_path / "train-000000.tar.partial"
    partial.symlink_to("/dev/full")
    with refused("VSE-D006", by=StorageError, file=path):
        write_shard(path, [sample(0)], first_image=0, first_caption=0)
    assert not partial.is_symlink()
    assert not path.exists()


def test_a_shard_does_not_depend_on_user_time_or_folder(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    one = write_shard(tmp_path / "one.tar", [sample(0), sample(1)], first_image=0, first_caption=0)
    two = write_shard(tmp_path / "a" / "two.tar", [sample(0), sample(1)], first_image=0, first_caption=0)
    assert one is not None
    assert two is not None
    assert one.sha256 == two.sha256
    with tarfile.open(tmp_path / "one.tar") as tar:
        for member in tar:
            assert (member.mtime, member.uid, member.gid, member.uname, member.gname) == (0, 0, 0, "", "")
            assert member.name.split(".")[0] in {"000000000", "000000001"}


def test_no_samples_give_no_shard(tmp_path: Path) -> None:
    assert write_shard(tmp_path / "one.tar", [], first_image=0, first_caption=0) is None
    assert list(tmp_path.iterdir()) == []


def test_the_bound_of_a_sample_holds(tmp_path: Path) -> None:
    features, tar = np.zeros((2, 3), dtype=np.float16), tmp_path / "one.tar"
    for caption in ("a", "\" ' \\ `` ! ? . , ; : ( )", "é" * 50, "a.b." * 40, "x " * 300):
        written = Sample(10**8, 10**8, "n" * 60, [caption] * 5, features, None, (b"x" * 700, "jpg"))
        write_shard(tar, [written], first_image=0, first_caption=0)
        with tarfile.open(tar) as opened:
            used = sum(512 + -(-member.size // 512) * 512 for member in opened)
        assert used <= sample_bytes_bound([caption] * 5, feature_bytes=12, box_bytes=0, image_bytes=700), caption


def test_shards_stay_below_the_bytes_asked_for(scenes_recipe: Make, run: Run) -> None:
    manifest = run(scenes_recipe(shard={"max_bytes": 2**16}))
    shards = [shard for split in manifest.splits.values() for shard in split.shards]
    assert len(shards) > 4
    assert all(shard.bytes <= 2**16 for shard in shards)


def test_images_are_left_out_on_request(scenes_recipe: Make, run: Run, tmp_path: Path) -> None:
    assert not run(scenes_recipe(store_images=False)).images_stored
    with tarfile.open(tmp_path / "scenes" / "test-000000.tar") as tar:
        assert {name.partition(".")[2] for name in tar.getnames()} == {"json", "features.npy"}


@pytest.fixture
def folder_recipe(tmp_path: Path, save_image: Callable[..., bytes]) -> Make:
    """Five train images, one validation image; `on_unreadable` and others by keyword."""
    names = [f"{number}.jpg" for number in range(6)]
    for number, name in enumerate(names):
        save_image(tmp_path / "raw" / name, 40 * number)
    rows = "".join(f"{name},a dog .\n{name},two dogs .\n" for name in names)
    (tmp_path / "captions.csv").write_text("image,caption\n" + rows)
    (tmp_path / "train.txt").write_text("\n".join(names[:5]))
    (tmp_path / "dev.txt").write_text(names[5])

    def make(**changes: Any) -> IngestRecipe:
        source = {
            "layout": "caption_table", "captions": str(tmp_path / "captions.csv"), "images": [str(tmp_path / "raw")],
            "lists": {"train": str(tmp_path / "train.txt"), "dev": str(tmp_path / "dev.txt")},
        }
        plain: dict[str, Any] = {
            "name": "table", "output": str(tmp_path / "out"), "source": source, "vocabulary_min_count": 1,
            "features": {"extractor": "pixels", "grid": 1, "width": 8}, "shard": {"max_images": 2},
        }
        return IngestRecipe.model_validate({**plain, **changes})

    return make


def test_a_vocabulary_that_lacks_most_words_of_the_captions_is_noted(folder_recipe, run, tmp_path):
    """Five images that train, each with `a dog .` and `two dogs .`: only the full stop occurs six times."""
    assert run(folder_recipe(vocabulary_min_count=5, output=str(tmp_path / "five"))).notes == []
    (note,) = run(folder_recipe(vocabulary_min_count=6)).notes
    assert note.startswith("20 of 30 words of the train captions ")


def test_a_caption_as_long_as_a_document_is_noted(folder_recipe: Make, run: Run, tmp_path: Path) -> None:
    with (tmp_path / "captions.csv").open("a") as table:
        table.write(f"1.jpg,{'dog ' * 200}\n")
    assert run(folder_recipe(output=str(tmp_path / "short"))).notes == []
    with (tmp_path / "captions.csv").open("a") as table:
        table.write(f"2.jpg,{'dog ' * 201}\n3.jpg,{'dog ' * 5000}\n")
    (note,) = run(folder_recipe()).notes
    assert note.startswith("split train: 2 captions have more than 200 words, the longest, of 3.jpg, has 5,000")


def test_the_stored_image_is_the_original_file(folder_recipe: Make, run: Run, tmp_path: Path) -> None:
    assert set(run(folder_recipe(splits={"dev": "held"})).splits) == {"train", "held"}
    with tarfile.open(tmp_path / "out" / "train-000000.tar") as tar:
        file = tar.extractfile("000000000.jpg")
        assert file is not None
        assert file.read() == (tmp_path / "raw" / "0.jpg").read_bytes()


def test_an_unreadable_image_is_refused_and_the_ingest_continues_once_it_is_repaired(folder_recipe, run, tmp_path):
    broken = tmp_path / "raw" / "2.jpg"
    good = broken.read_bytes()
    broken.write_bytes(good[:200])
    with refused("VSE-D055", where=broken):
        run(folder_recipe())
    assert list((tmp_path / "out").glob("*.partial")) == []
    broken.write_bytes(good)
    manifest = run(folder_recipe())
    assert manifest.splits["train"].images == 5
    assert set(manifest.splits) == {"train", "validation"}, "dev becomes validation"


def test_skipped_images_are_counted_named_and_leave_no_gap(folder_recipe, run, tmp_path, caplog) -> None:
    for number in (1, 2, 3):
        (tmp_path / "raw" / f"{number}.jpg").write_bytes(b"no image")
    manifest = run(folder_recipe(on_unreadable="skip"))
    assert manifest.splits["train"].images == 2
    assert [record["image"] for record in records(tmp_path / "out", "train")] == ["0.jpg", "4.jpg"]
    assert [record["index"] for record in records(tmp_path / "out", "train")] == [0, 1]
    assert manifest.notes == ["split train: skipped 3 unreadable images: 1.jpg, 2.jpg, 3.jpg"]
    told = [message for message in caplog.messages if message.startswith("skipped")]
    assert len(told) >= 3
    assert not any("on_unreadable" in message for message in told), "what is set already is no advice"
    assert verify(str(tmp_path / "out")) == []


def test_a_split_whose_images_are_all_skipped_is_refused(folder_recipe: Make, run: Run, tmp_path: Path) -> None:
    (tmp_path / "raw" / "5.jpg").write_bytes(b"no image")
    with refused("VSE-D041", split="validation"):
        run(folder_recipe(on_unreadable="skip"))


def test_changed_captions_are_refused_an_unfinished_folder(folder_recipe: Make, run: Run, tmp_path: Path) -> None:
    with pytest.raises(StoppedError):
        ingest(folder_recipe(), progress=StopAfter(3))
    table = tmp_path / "captions.csv"
    table.write_text(table.read_text().replace("two dogs", "two cats"))
    with refused("VSE-D038", by=StudyConflict, other="other captions or split lists"):
        run(folder_recipe())


def splits_of(*names: str) -> RawDataset:
    return RawDataset({name: RawSplit([RawImage(f"{name}.jpg", ("a dog .",))]) for name in names})


@pytest.mark.parametrize(
    ("names", "given", "message", "fields"),
    [
        *((("train", name), {}, "VSE-D042", {}) for name in (
            "../../outside", "a/b", "", "..", "two\nlines", "k" * 61,
        )),
        # part of the images would silently be used nowhere
        *((("train", "dev", slip), {"dev": "validation"}, "VSE-D043", {"split": slip, "images": 1, "meant": meant})
          for slip, meant in (
              ("trian", "train"), ("Train", "train"), ("tran", "train"), ("trrain", "train"), ("tset", "test"),
              ("vaildation", "validation"), ("validatio", "validation"), ("Val", "val"), ("vlaid", "valid"),
          )),
        (("train", "dev"), {"dev": "train"}, "VSE-D044", {"split": "train"}),
        (("train", "dev"), {"train": "training", "dev": "validation"}, "VSE-D046", {"splits": "training, validation"}),
    ],
)
def test_names_of_splits_that_cannot_be_meant_are_refused(names, given, message, fields) -> None:
    with refused(message, **fields):
        named_splits(splits_of(*names), given)
    own = {"train": "train", names[-1]: "validation"}
    assert named_splits(splits_of("train", names[-1]), own).splits.keys() == {"train", "validation"}


@pytest.mark.parametrize("name", ["testA", "test2", "test_1k", "trainval", "restval", "rest", "minival", "evaluation"])
def test_a_split_of_a_name_of_its_own_is_one(name: str) -> None:
    assert name in named_splits(splits_of("train", name), {}).splits


@pytest.mark.parametrize(
    "names",
    [
        ("Train", "Val", "Test"), ("TRAIN", "DEV"), ("train", "Val", "dev"), ("train", "trian", "val"),
        ("Train", "tset"), ("train", "val", "dev"), ("train", "validation", "valid", "Test"), ("training", "val"),
        ("all", "Dev", "Restval"),
    ],
    ids=str,
)
def test_every_advice_on_the_names_of_splits_is_accepted(names: tuple[str, ...], folder_recipe: Make) -> None:
    raw = splits_of(*names)
    with pytest.raises(DataError) as refusal:
        named_splits(raw, folder_recipe().splits)
    advice = re.findall(r"`splits: (\{.+?\})`", str(refusal.value))
    assert advice
    for mapping in map(yaml.safe_load, advice):
        assert "train" in named_splits(raw, mapping).splits
