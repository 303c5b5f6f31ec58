import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tarfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from vsetune.config.sources.recipe import IngestRecipe
from vsetune.data.looking.verify import verify
from vsetune.data.making.ingest import ingest
from vsetune.data.making.raw import RawDataset
from vsetune.data.making.shard_making import named_splits, open_source
from vsetune.data.making.shard_writer import Sample, sample_bytes_bound, write_shard
from vsetune.data.stored.dataset import Dataset
from vsetune.data.stored.manifest import Manifest
from vsetune.data.stored.vocabulary import Vocabulary, tokenise
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


def test_the_manifest_counts_what_the_shards_hold(scenes_recipe: Make, run: Run, tmp_path: Path) -> None:
    manifest = run(scenes_recipe())
    train = manifest.splits["train"]
    assert (train.images, train.captions, train.captions_min, train.captions_max) == (20, 100, 5, 5)
    assert [shard.images for shard in train.shards] == [6, 6, 6, 2]
    assert [shard.first_caption for shard in train.shards] == [0, 30, 60, 90]
    assert {name: split.images for name, split in manifest.splits.items()} == {"train": 20, "validation": 8, "test": 4}
    assert (manifest.features.regions, manifest.features.width, manifest.features.dtype) == (4, 16, "float16")
    assert verify(str(tmp_path / "scenes")) == []


def test_what_was_ingested_can_be_opened_by_the_reader(scenes_recipe: Make, run: Run, tmp_path: Path) -> None:
    run(scenes_recipe())
    dataset = Dataset.open(str(tmp_path / "scenes"))
    assert dataset.split("validation").images == 8


def test_samples_are_numbered_through_the_split(scenes_recipe: Make, run: Run, tmp_path: Path) -> None:
    run(scenes_recipe())
    found = records(tmp_path / "scenes", "train")
    assert [record["index"] for record in found] == list(range(20))
    assert [record["first_caption"] for record in found] == list(range(0, 100, 5))
    assert all(record["tokens"] == [tokenise(caption) for caption in record["captions"]] for record in found)


def test_the_vocabulary_comes_from_the_train_split_alone(scenes_recipe: Make, run: Run, tmp_path: Path) -> None:
    run(scenes_recipe())
    vocabulary = Vocabulary.from_json((tmp_path / "scenes" / "vocabulary.json").read_text())
    words = {word for record in records(tmp_path / "scenes", "train") for words in record["tokens"] for word in words}
    assert set(vocabulary.words[5:]) == words


def test_two_ingests_of_a_recipe_give_the_same_bytes(
    scenes_recipe: Make, run: Run, contents: Contents, tmp_path: Path
) -> None:
    run(scenes_recipe("one"))
    run(scenes_recipe("two"))
    assert contents(tmp_path / "one") == contents(tmp_path / "two")


@pytest.mark.parametrize("images", [1, 6, 7, 19, 21, 30])
def test_an_ingest_stopped_anywhere_resumes_to_the_same_bytes(
    scenes_recipe: Make, run: Run, contents: Contents, tmp_path: Path, images: int
) -> None:
    run(scenes_recipe("whole"))
    recipe = scenes_recipe("stopped")
    with pytest.raises(StoppedError):
        ingest(recipe, progress=StopAfter(images))
    assert not (tmp_path / "stopped" / "manifest.json").exists()
    run(recipe)
    assert contents(tmp_path / "stopped") == contents(tmp_path / "whole")
    assert not (tmp_path / "stopped" / ".ingest").exists()


def test_finished_shards_are_not_written_again(scenes_recipe: Make, run: Run, tmp_path: Path) -> None:
    with pytest.raises(StoppedError):
        ingest(scenes_recipe(), progress=StopAfter(13))
    first = tmp_path / "scenes" / "train-000000.tar"
    before = first.stat().st_mtime_ns
    run(scenes_recipe())
    assert first.stat().st_mtime_ns == before


def test_a_finished_shard_that_was_damaged_is_written_again(
    scenes_recipe: Make, run: Run, contents: Contents, tmp_path: Path
) -> None:
    run(scenes_recipe("whole"))
    with pytest.raises(StoppedError):
        ingest(scenes_recipe("stopped"), progress=StopAfter(13))
    first = tmp_path / "stopped" / "train-000000.tar"
    first.write_bytes(first.read_bytes()[:-1000])
    run(scenes_recipe("stopped"))
    assert contents(tmp_path / "stopped") == contents(tmp_path / "whole")


_SLOW_INGEST = """
import sys, time
from vsetune.config.sources.recipe import IngestRecipe
from vsetune.data.making.ingest import ingest

class Slow:
    def stage(self, name, total): pass
    def advance(self, count): time.sleep(0.02)

ingest(IngestRecipe.model_validate_json(sys.argv[1]), progress=Slow())
"""


def test_an_ingest_killed_by_the_system_resumes_to_the_same_bytes(
    scenes_recipe: Make, run: Run, contents: Contents, tmp_path: Path
) -> None:
    run(scenes_recipe("whole"))
    recipe = scenes_recipe("killed")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    process = subprocess.Popen([sys.executable, "-c", _SLOW_INGEST, recipe.model_dump_json()], env=environment)
    journal = tmp_path / "killed" / ".ingest"
    deadline = time.monotonic() + 60
    while not (journal / "train-000001.json").exists() and time.monotonic() < deadline:
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL
    assert not (tmp_path / "killed" / "manifest.json").exists()
    run(recipe)
    assert contents(tmp_path / "killed") == contents(tmp_path / "whole")


def test_a_finished_ingest_is_found_finished(scenes_recipe: Make, run: Run, contents: Contents, tmp_path: Path) -> None:
    first = run(scenes_recipe())
    before = contents(tmp_path / "scenes")
    assert run(scenes_recipe()) == first
    assert contents(tmp_path / "scenes") == before


@pytest.mark.parametrize(
    ("file", "told"),
    [
        ("train-000001.tar", "shard file missing; copy it back or ingest the data set again."),
        ("vocabulary.json", "vocabulary file missing; copy it back or ingest the data set again."),
    ],
)
def test_a_finished_data_set_that_lost_a_file_is_not_called_complete(
    scenes_recipe: Make, run: Run, contents: Contents, tmp_path: Path, file: str, told: str
) -> None:
    """Whoever follows the advice to ingest it again was told that it is complete."""
    run(scenes_recipe())
    before = contents(tmp_path / "scenes")
    (tmp_path / "scenes" / file).unlink()
    with pytest.raises(DataError) as raised:
        run(scenes_recipe())
    place = tmp_path / "scenes"
    assert str(raised.value) == f"{place}/{file}: {told} What is complete is not made anew: delete {place} first."
    shutil.rmtree(place)
    run(scenes_recipe())
    assert contents(place) == before


def test_another_recipe_is_refused_a_finished_folder(scenes_recipe: Make, run: Run) -> None:
    run(scenes_recipe())
    with pytest.raises(StudyConflict, match=r"holds data set scenes of another recipe") as raised:
        run(scenes_recipe(vocabulary_min_count=2))
    assert "\n" not in str(raised.value)


def test_another_recipe_is_refused_an_unfinished_folder(scenes_recipe: Make, run: Run) -> None:
    with pytest.raises(StoppedError):
        ingest(scenes_recipe(), progress=StopAfter(7))
    with pytest.raises(StudyConflict, match=r"unfinished ingest of another recipe"):
        run(scenes_recipe(vocabulary_min_count=2))


def test_a_folder_with_other_files_is_refused(scenes_recipe: Make, run: Run, tmp_path: Path) -> None:
    (tmp_path / "scenes").mkdir()
    (tmp_path / "scenes" / "thesis.tex").write_text("mine")
    with pytest.raises(StudyConflict, match=r"not empty and not an ingest \(found thesis.tex\)"):
        run(scenes_recipe())


def test_two_ingests_at_once_into_a_folder_are_refused(scenes_recipe: Make, run: Run) -> None:
    class Nested(StopAfter):
        def advance(self, count: int) -> None:
            with pytest.raises(StorageError, match=r"another ingest is writing there"):
                run(scenes_recipe())
            raise StoppedError

    with pytest.raises(StoppedError):
        ingest(scenes_recipe(), progress=Nested(1))


def test_too_little_free_space_is_told_before_anything_is_written(
    scenes_recipe: Make, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = shutil.disk_usage(tmp_path)._replace(free=10_000)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage)
    with pytest.raises(StorageError, match=r"0 MiB free, the shards still to write need up to"):
        run(scenes_recipe())
    assert list((tmp_path / "scenes").glob("*.tar*")) == []


def sample(index: int, *, image: bytes | None = None) -> Sample:
    features = np.full((2, 3), index, dtype=np.float16)
    return Sample(index, index, f"image {index}", ["A red dog ."], features, None, (image, "jpg") if image else None)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs the device /dev/full")
def test_a_full_disk_is_one_line_and_leaves_no_partial_shard(tmp_path: Path) -> None:
    path = tmp_path / "train-000000.tar"
    partial = tmp_path / "train-000000.tar.partial"
    partial.symlink_to("/dev/full")
    with pytest.raises(StorageError, match=r"train-000000.tar: no space left on the disk"):
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


@pytest.mark.parametrize("caption", ["a", "\" ' \\ `` ! ? . , ; : ( )", "é" * 50, "a.b." * 40, "x " * 300])
def test_the_bound_of_a_sample_holds(tmp_path: Path, caption: str) -> None:
    features = np.zeros((2, 3), dtype=np.float16)
    written = Sample(10**8, 10**8, "n" * 60, [caption] * 5, features, None, (b"x" * 700, "jpg"))
    tar = tmp_path / "one.tar"
    write_shard(tar, [written], first_image=0, first_caption=0)
    with tarfile.open(tar) as opened:
        used = sum(512 + -(-member.size // 512) * 512 for member in opened)
    assert used <= sample_bytes_bound([caption] * 5, feature_bytes=12, box_bytes=0, image_bytes=700)


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


def test_dev_becomes_validation(folder_recipe: Make, run: Run) -> None:
    assert set(run(folder_recipe()).splits) == {"train", "validation"}


def test_a_vocabulary_that_lacks_most_words_of_the_captions_is_told(
    folder_recipe: Make, run: Run, tmp_path: Path
) -> None:
    """Five images that train, each with `a dog .` and `two dogs .`: only the full stop stands there six times."""
    assert run(folder_recipe(vocabulary_min_count=5, output=str(tmp_path / "five"))).notes == []
    assert run(folder_recipe(vocabulary_min_count=6)).notes == [
        "20 of 30 words of the train captions stand there fewer than 6 times, so that networks that learn words take "
        "them for one; lower vocabulary_min_count, and where a language has no spaces put some between its words"
    ]


def test_a_caption_as_long_as_a_document_is_told(folder_recipe: Make, run: Run, tmp_path: Path) -> None:
    with (tmp_path / "captions.csv").open("a") as table:
        table.write(f"1.jpg,{'dog ' * 200}\n")
    assert run(folder_recipe(output=str(tmp_path / "short"))).notes == []
    with (tmp_path / "captions.csv").open("a") as table:
        table.write(f"2.jpg,{'dog ' * 201}\n3.jpg,{'dog ' * 5000}\n")
    assert run(folder_recipe()).notes == [
        "split train: 2 captions have more than 200 words, the longest, of 3.jpg, has 5,000: every batch with one is "
        "padded to it, which costs time and memory; shorten what is no caption"
    ]


def test_the_stored_image_is_the_original_file(folder_recipe: Make, run: Run, tmp_path: Path) -> None:
    run(folder_recipe())
    with tarfile.open(tmp_path / "out" / "train-000000.tar") as tar:
        file = tar.extractfile("000000000.jpg")
        assert file is not None
        assert file.read() == (tmp_path / "raw" / "0.jpg").read_bytes()


def test_an_unreadable_image_is_refused_by_name(folder_recipe: Make, run: Run, tmp_path: Path) -> None:
    broken = tmp_path / "raw" / "2.jpg"
    broken.write_bytes(broken.read_bytes()[:200])
    with pytest.raises(DataError, match=r"raw/2.jpg: not a readable image .* on_unreadable: skip") as raised:
        run(folder_recipe())
    assert "\n" not in str(raised.value)
    assert list((tmp_path / "out").glob("*.partial")) == []


def test_a_refused_image_can_be_mended_and_the_ingest_goes_on(
    folder_recipe: Make, run: Run, tmp_path: Path, save_image: Callable[..., bytes]
) -> None:
    good = (tmp_path / "raw" / "2.jpg").read_bytes()
    (tmp_path / "raw" / "2.jpg").write_bytes(b"")
    with pytest.raises(DataError):
        run(folder_recipe())
    (tmp_path / "raw" / "2.jpg").write_bytes(good)
    assert run(folder_recipe()).splits["train"].images == 5


def test_skipped_images_are_counted_named_and_leave_no_gap(folder_recipe: Make, run: Run, tmp_path: Path) -> None:
    for number in (1, 2, 3):
        (tmp_path / "raw" / f"{number}.jpg").write_bytes(b"no image")
    manifest = run(folder_recipe(on_unreadable="skip"))
    assert manifest.splits["train"].images == 2
    assert [record["image"] for record in records(tmp_path / "out", "train")] == ["0.jpg", "4.jpg"]
    assert [record["index"] for record in records(tmp_path / "out", "train")] == [0, 1]
    assert manifest.notes == ["split train: skipped 3 unreadable images: 1.jpg, 2.jpg, 3.jpg"]
    assert verify(str(tmp_path / "out")) == []


def test_a_split_whose_images_are_all_skipped_is_refused(folder_recipe: Make, run: Run, tmp_path: Path) -> None:
    (tmp_path / "raw" / "5.jpg").write_bytes(b"no image")
    with pytest.raises(DataError, match=r"split validation: every image was skipped"):
        run(folder_recipe(on_unreadable="skip"))


def test_changed_captions_are_refused_an_unfinished_folder(folder_recipe: Make, run: Run, tmp_path: Path) -> None:
    with pytest.raises(StoppedError):
        ingest(folder_recipe(), progress=StopAfter(3))
    table = tmp_path / "captions.csv"
    table.write_text(table.read_text().replace("two dogs", "two cats"))
    with pytest.raises(StudyConflict, match=r"other captions or split lists"):
        run(folder_recipe())


def test_a_recipe_without_a_train_split_is_refused(folder_recipe: Make, run: Run) -> None:
    with pytest.raises(DataError, match=r"found training, validation, need one called train"):
        run(folder_recipe(splits={"train": "training", "dev": "validation"}))


@pytest.mark.parametrize("name", ["../../outside", "a/b", "", "..", "two\nlines", "k" * 61])
def test_a_split_whose_name_can_be_no_part_of_a_file_name_is_refused(
    name: str, folder_recipe: Make, tmp_path: Path
) -> None:
    raw = open_source(folder_recipe())
    odd = RawDataset({"train": raw.splits["train"], name: raw.splits["dev" if "dev" in raw.splits else "validation"]})
    with pytest.raises(DataError, match=r"splits: got the split .*, need a name of at most 60 letters.*rename it"):
        named_splits(odd, {})
    assert named_splits(odd, {name: "validation"}).splits.keys() == {"train", "validation"}


@pytest.mark.parametrize(
    ("slip", "meant"),
    [
        ("trian", "train"), ("Train", "train"), ("tran", "train"), ("trrain", "train"), ("tset", "test"),
        ("vaildation", "validation"), ("validatio", "validation"), ("Val", "val"), ("vlaid", "valid"),
    ],
)
def test_a_split_whose_name_is_nearly_one_of_ours_is_told(
    slip: str, meant: str, folder_recipe: Make, tmp_path: Path
) -> None:
    """A part of the images would train or be measured nowhere, and nothing would say so."""
    raw = open_source(folder_recipe()).splits
    mistyped = RawDataset({"train": raw["train"], "dev": raw["validation"], slip: raw["validation"]})
    line = (
        f"splits: got the split '{slip}' (1 images), did you mean {meant}? Mend it where it stands, or keep it with "
        f"`splits: {{dev: validation, {slip}: {slip}}}` in the recipe."
    )
    with pytest.raises(DataError, match=rf"^{re.escape(line)}$"):
        named_splits(mistyped, {"dev": "validation"})
    assert list(named_splits(mistyped, {slip: slip}).splits) == ["train", "dev", slip]


@pytest.mark.parametrize("name", ["testA", "test2", "test_1k", "trainval", "restval", "rest", "minival", "evaluation"])
def test_a_split_of_a_name_of_its_own_is_one(name: str, folder_recipe: Make) -> None:
    raw = open_source(folder_recipe()).splits
    assert name in named_splits(RawDataset({"train": raw["train"], name: raw["validation"]}), {}).splits


def test_two_splits_of_one_name_are_refused(folder_recipe: Make, run: Run) -> None:
    with pytest.raises(DataError, match=r"two splits would be called train"):
        run(folder_recipe(splits={"dev": "train"}))
