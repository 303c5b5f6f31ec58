"""`vsetune data index`: manifest, counts and vocabulary of shards that other software wrote."""

from __future__ import annotations

import csv
import gzip
import io
import json
import os
import shutil
import tarfile
from pathlib import Path
from typing import Any

import pytest
from mock_bucket import bucket
from outside_files import jpeg, make_index, recipe, sample, write_outside, write_shards, write_tar
from refusals import problems_of, refused

from vsetune.config.sources.index_recipe import IndexRecipe
from vsetune.config.sources.trial_inputs import NetworkReads, PixelInput
from vsetune.data.batches.reader import training_batches
from vsetune.data.looking.verify import verify
from vsetune.data.making import index as index_module
from vsetune.data.making.index import index
from vsetune.data.making.shard_index import difference_hash, index_shard
from vsetune.data.progress import SilentProgress
from vsetune.data.stored.dataset import Dataset
from vsetune.data.stored.outside_shards import AGAIN, APART, DOTS, DOTS_ONE_SIDED, LINK
from vsetune.data.stored.photographs import rgb_image
from vsetune.data.stored.shards import iter_captions, split_records
from vsetune.errors import ConfigError, StudyConflict
from vsetune.home.hashes import sha256_of_file

__all__ = ["bucket"]

PIXELS = NetworkReads(pixels=PixelInput(size=8, crop_low=0.3, swaps_sides=True))
NUL = "caption has a NUL character (is it UTF-16?)"


def left_out(dataset) -> list[dict[str, str]]:
    with open(Path(dataset.path) / "left_out.csv", encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def files_of(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}


@pytest.fixture
def reads(monkeypatch) -> list[str]:
    """Names of the shards that are read."""
    names: list[str] = []

    def noted(task):
        names.append(Path(task.address).name)
        return index_shard(task)

    monkeypatch.setattr(index_module, "index_shard", noted)
    return names


def test_the_manifest_points_at_the_shards_as_they_are(tmp_path):
    write_shards(tmp_path)
    before = {path.name: sha256_of_file(path) for path in tmp_path.glob("*.tar")}
    dataset = make_index(tmp_path)
    split = dataset.split("train")
    assert (split.images, split.captions, len(split.shards)) == (24, 24, 3)
    assert [shard.sha256 for shard in split.shards] == [before[f"train-{number}.tar"] for number in range(3)]
    assert [shard.first_image for shard in split.shards] == [0, 8, 16]
    assert list(iter_captions(dataset, "train")) == [f"thing {number} left of {number % 5}" for number in range(24)]
    assert [record.name for _, record in split_records(dataset, "validation")][:2] == [
        "val-0/000001000", "val-0/000001001"
    ]
    assert {"thing", "left", "of", "23"} <= set(dataset.vocabulary.words)
    assert "1000" not in dataset.vocabulary.words  # of the validation split
    assert verify(dataset.path) == []
    assert {path.name: sha256_of_file(path) for path in tmp_path.glob("*.tar")} == before


@pytest.mark.parametrize(("captions", "expected"), [
    ("txt", [["thing 0 left of 0"], ["thing 1 left of 1"]]),
    ("json.caption", [["thing 0"], ["thing 1"]]),
    ("json.captions", [["one 0", "two"], ["one 1", "two"]]),
])
def test_captions_come_from_text_or_from_a_field(tmp_path, captions, expected):
    write_shards(tmp_path)
    records = [record for _, record in split_records(make_index(tmp_path, captions=captions), "train")]
    assert [record.captions for record in records[:2]] == expected
    assert [record.first_caption for record in records[:2]] == [0, len(expected[0])]


def test_pictures_of_every_suffix_are_found_whatever_they_are(tmp_path):
    members = [
        (f"{kind}/{suffix}.{end}", content)
        for kind in ("JPEG", "PNG", "WEBP") for suffix in ("jpg", "jpeg", "png", "webp", "JPG")
        for end, content in ((suffix, jpeg(1, kind=kind)), ("txt", b"a caption"))
    ]
    assert indexed_members(tmp_path, members).split("train").images == 15


def test_broken_samples_are_left_out_counted_and_listed(tmp_path):
    write_shards(tmp_path)
    cut = jpeg(3)[:300]
    write_outside(tmp_path / "train-1.tar", [
        sample(0), sample(1, jpg=b"no picture"), sample(2, txt="  "), sample(3, jpg=cut), sample(4, txt=None),
        sample(5, jpg=None), sample(6, txt=b"\xff\xfe"), sample(7),
    ])
    dataset = make_index(tmp_path)
    assert dataset.split("train").images == 16 + 2
    assert {row["image"]: row["reason"].partition(":")[0] for row in left_out(dataset)} == {
        "train-1/000000001": "picture cannot be decoded", "train-1/000000002": "caption is empty",
        "train-1/000000003": "picture cannot be decoded", "train-1/000000004": "no .txt",
        "train-1/000000005": "no picture", "train-1/000000006": ".txt is UTF-16, need UTF-8",
    }
    assert "train: 6 of 24 samples are left out (2 picture cannot be decoded" in dataset.manifest.notes[0]
    kept = [record.name for _, record in split_records(dataset, "train") if record.name.startswith("train-1/")]
    assert kept == ["train-1/000000000", "train-1/000000007"]
    assert verify(dataset.path) == []


def indexed_members(folder: Path, members: list[tuple[str, bytes | str]], **changes: Any) -> Dataset:
    """Of one train shard with these members."""
    write_shards(folder, shards=0, evaluation=1)
    pictures = [(name, content.encode() if isinstance(content, str) else content) for name, content in members]
    write_tar(folder / "train-0.tar", pictures)
    return make_index(folder, shards=str(folder / "train-0.tar"), **changes)


def names_and_captions(dataset: Dataset) -> dict[str, list[str]]:
    return {record.name: record.captions for _, record in split_records(dataset, "train")}


def pairs(*keys: str, suffixes: tuple[str, str] = ("jpg", "txt")) -> list[tuple[str, bytes | str]]:
    """Members of a picture and a caption for each key; the caption is the key."""
    return [member for number, key in enumerate(keys) for member in (
        (f"{key}.{suffixes[0]}", jpeg(number)), (f"{key}.{suffixes[1]}", f"a {key}")
    )]


def test_every_member_is_used_or_left_out_with_its_reason(tmp_path):
    dataset = indexed_members(tmp_path, [
        *pairs("a", "a", "v1.0/b", "7.5", "7.6", "c.small"), ("d.input.jpg", b"x"), ("d.output.txt", b"x"),
        ("notes", b"x"), ("v1.0/.DS_Store", b"x"), ("._a.jpg", b"x"), ("e.npy", b"x"), ("__shard__/about.txt", b"{}"),
        ("f.jpg", jpeg(1)), *pairs("g"), ("f.txt", b"late"), ("g.jpg", jpeg(2)), ("g.txt", b"again"), *pairs("h"),
        ("h.npy", b"x"), ("a.json", b"{}"),
    ])
    assert names_and_captions(dataset) == {"train-0/v1.0/b": ["a v1.0/b"], "train-0/g": ["a g"], "train-0/h": ["a h"]}
    assert sorted((row["image"].removeprefix("train-0/"), row["reason"]) for row in left_out(dataset)) == [
        ("._a.jpg", "hidden file"), ("7.5", DOTS), ("7.6", DOTS), ("a", "two members .txt"), ("c.small", DOTS),
        ("d", f"{DOTS_ONE_SIDED}: it has .input.jpg, .output.txt"), ("e", "no .txt: it has .npy"), ("f", APART),
        ("g", AGAIN), ("notes", "file without a suffix"), ("v1.0/.DS_Store", "hidden file"),
    ]
    assert f"train: 11 of 14 samples are left out (3 {DOTS}, 2 hidden file, " in dataset.manifest.notes[0]
    assert verify(dataset.path) == []


def test_keys_end_at_the_last_dot_on_request(tmp_path):
    dataset = indexed_members(
        tmp_path, pairs("22.05", "v1.0/22.06", "plain", suffixes=("PNG", "txt")), key_ends_at="last_dot"
    )
    assert [*names_and_captions(dataset)] == ["train-0/22.05", "train-0/v1.0/22.06", "train-0/plain"]
    assert [row["image"] for row in left_out(dataset)] == []
    samples = [each for batch in training_batches(
        dataset, "train", batch_size=2, batch_unit="pairs", seed=1, epoch=0, shuffle_pairs=6, reads=PIXELS
    ) for each in batch.image_ids.tolist()]
    assert sorted(samples) == [0, 1, 2]


def apart(*order: str) -> list[tuple[str, bytes]]:
    content = {"jpg": jpeg(1), "txt": b"a thing", "cls": b"3"}
    return [(f"{key}.{suffix}", content[suffix]) for suffix in order for key in ("a", "b")]


@pytest.mark.parametrize(("members", "changes", "reasons"), [
    *((apart(*order), {}, f"2 {APART}") for order in (
        ("jpg", "txt"), ("txt", "jpg"), ("cls", "jpg", "txt"), ("txt", "cls", "jpg"),
    )),
    ([("a.jpg", jpeg(1)), ("a.caption", b"x")], {}, "1 no .txt; for example no .txt: it has .jpg, .caption"),
    ([("a.jpg", jpeg(1)), ("a.json", b"{}")], {"captions": "json.alt"},
     "1 no caption; for example no caption: its .json has no alt"),
    ([], {}, "no samples"),
])
def test_a_split_without_samples_says_what_there_is_and_the_way_to_mend_it(tmp_path, members, changes, reasons):
    with refused("VSE-D100", split="train", reasons=reasons):
        indexed_members(tmp_path, members, **changes)
    assert "tar --sort=name" in APART


def test_a_compressed_shard_is_told_with_the_way_to_mend_it(tmp_path):
    write_shards(tmp_path, shards=1, each=1, evaluation=1)
    (tmp_path / "train-0.tar").write_bytes(gzip.compress((tmp_path / "train-0.tar").read_bytes()))
    reasons = "1 compressed by gzip, need a plain tar; unpack it with `gzip -dc`"
    with refused("VSE-D100", reasons=reasons):
        make_index(tmp_path, shards=str(tmp_path / "train-0.tar"), on_damaged="skip")


LINES = "\ufeffa dog\u2028 on a hill \r\n\n  \nA cat\x85sleeps\ra bird\n\n"


def test_texts_of_several_lines_are_one_caption_or_one_of_each_line_and_the_index_says_which(tmp_path):
    members = [("a.jpg", jpeg(1)), ("a.txt", LINES), ("b.jpg", jpeg(2)), ("b.txt", "one\n")]
    one = indexed_members(tmp_path, members)
    assert names_and_captions(one)["train-0/a"] == [LINES.strip("\ufeff\n")]
    assert any("train: 1 of 2 texts have several lines" in note and "txt_lines" in note for note in one.manifest.notes)
    lines = indexed_members(tmp_path, members, captions="txt_lines", output=str(tmp_path / "lines"))
    assert names_and_captions(lines) == {
        "train-0/a": ["a dog\u2028 on a hill", "A cat\x85sleeps", "a bird"], "train-0/b": ["one"]
    }
    assert [*iter_captions(lines, "train")] == ["a dog\u2028 on a hill", "A cat\x85sleeps", "a bird", "one"]
    assert left_out(lines) == [
        {"split": "train", "image": "train-0/a", "reason": f"caption is empty: number {n}"} for n in (2, 3)
    ]
    assert lines.manifest.notes[0] == (
        "train: 2 captions of the other samples are left out (2 caption is empty); left_out.csv lists them"
    )
    assert sum("each line of a .txt is a caption" in note for note in lines.manifest.notes) == 1


@pytest.mark.parametrize(("text", "expected"), [
    (b"\xef\xbb\xbfa zebra", "a zebra"), (b"a horse\r\n", "a horse"), ("\ufeff\ufeff a\ufeff b", "a b"),
    ("\u3000 a\tb\xa0", "a\tb"), ("", "caption is empty"), ("\ufeff \u3000\n", "caption is empty"),
    ("a lion".encode("utf-16"), ".txt is UTF-16, need UTF-8"), ("a lion".encode("utf-16-be"), NUL), (b"a\0b", NUL),
    ("caf\xe9".encode("latin-1"), ".txt is not UTF-8 (latin-1?): byte 0xe9 at 3"),
    ("x" * 20_001, "caption is longer than 20,000 characters"),
])
def test_a_text_is_read_without_marks_and_blanks_or_told(tmp_path, text, expected):
    dataset = indexed_members(tmp_path, [*pairs("z"), ("a.jpg", jpeg(1)), ("a.txt", text)])
    told = {row["image"]: row["reason"] for row in left_out(dataset)}
    assert names_and_captions(dataset).get("train-0/a", [told.get("train-0/a")]) == [expected]


def test_captions_of_a_list_that_cannot_be_used_are_counted_and_the_others_kept(tmp_path):
    found = ["\ufeffa cat ", "", "  ", None, "a\0b", "x" * 20_001, "a dog", "\udc00"]
    dataset = indexed_members(
        tmp_path, [("a.jpg", jpeg(1)), ("a.json", json.dumps({"captions": found}))], captions="json.captions"
    )
    assert names_and_captions(dataset) == {"train-0/a": ["a cat", "a dog"]}
    assert [row["reason"].partition(":")[0] for row in left_out(dataset)] == [
        "caption is empty", "caption is empty", "caption is no text", NUL, "caption is longer than 20,000 characters",
        "caption has half of a surrogate pair",
    ]


@pytest.mark.parametrize("key", [
    "15\u202fUhr", "\u56fe\u3000\u4e09", "a\xa0b", "\u200fx", "f\xad/\U0001f469\u200d\U0001f680", "back\\slash",
])
def test_names_with_the_blanks_of_any_script_are_read(tmp_path, key):
    dataset = indexed_members(tmp_path, pairs("a", key, "c"))
    assert [*names_and_captions(dataset)] == ["train-0/a", f"train-0/{key}", "train-0/c"]


def test_links_are_left_out_by_name_and_folders_passed_over(tmp_path):
    write_shards(tmp_path)
    with tarfile.open(tmp_path / "train-0.tar", "a") as tar:
        folder = tarfile.TarInfo("folder")
        folder.type = tarfile.DIRTYPE
        tar.addfile(folder)
        for type_ in (tarfile.SYMTYPE, tarfile.LNKTYPE):
            link = tarfile.TarInfo(f"x{type_.decode()}.jpg")
            link.type, link.linkname = type_, "000000000.jpg"
            tar.addfile(link)
            text = tarfile.TarInfo(f"x{type_.decode()}.txt")
            text.size = 1
            tar.addfile(text, io.BytesIO(b"x"))
    dataset = make_index(tmp_path)
    assert dataset.split("train").images == 24
    assert [row["reason"] for row in left_out(dataset)] == [f".jpg {LINK}: to 000000000.jpg"] * 2


@pytest.mark.parametrize("pattern", ["*.tar", "t*-{0..2}.tar", "train-[0-2].tar", "train-?.tar"])
def test_wildcards_name_the_shards_that_are_there_in_order(tmp_path, pattern):
    write_shards(tmp_path)
    (tmp_path / "folder.tar").mkdir()
    dataset = make_index(tmp_path, shards=str(tmp_path / pattern))
    assert [Path(shard.outside.address).name for shard in dataset.split("train").shards] == [
        f"train-{number}.tar" for number in range(3)
    ]
    told = [note for note in dataset.manifest.notes if "matches 1 of validation, not used for train" in note]
    assert len(told) == (pattern[0] == "*")


def test_wildcards_of_a_bucket_match_no_slash(tmp_path, bucket):
    write_shards(tmp_path)
    for path in tmp_path.glob("*.tar"):
        bucket.upload_file(str(path), "data", f"web/{path.name}")
        bucket.upload_file(str(path), "data", f"web/deeper/{path.name}")
    dataset = make_index(tmp_path, shards="s3://data/w*/tr*.tar", validation="s3://data/web/val-0.tar")
    assert [shard.outside.address for shard in dataset.split("train").shards] == [
        f"s3://data/web/train-{number}.tar" for number in range(3)
    ]


@pytest.mark.parametrize(("changes", "message", "told"), [
    ({"shards": "none*.tar"}, "VSE-D098", "nothing there matches"),
    ({"shards": "val*.tar"}, "VSE-D098", "all that match are named under validation"),
    ({"shards": "."}, "VSE-D098", "it is a folder; name the shards in it, such as "),
    ({"shards": "{0..2"}, "VSE-D098", ""), ({"shards": "{0..9999}.tar"}, "VSE-D098", "more than 1,000 shards"),
    ({"validation": "train-1.tar"}, "VSE-D099", "train-1.tar"),
])
def test_impossible_lists_of_shards_are_refused(tmp_path, monkeypatch, changes, message, told):
    write_shards(tmp_path, each=1, evaluation=1)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(index_module, "_MOST_SHARDS", 1000)
    with refused(message) as caught:
        make_index(tmp_path, **{"shards": "train-{0..2}.tar", **changes})
    assert told in str(caught.value)


def test_missing_and_cut_shards_are_named_and_nothing_else_is_lost(tmp_path, reads):
    write_shards(tmp_path)
    whole = (tmp_path / "train-1.tar").read_bytes()
    (tmp_path / "train-1.tar").write_bytes(whole[: len(whole) * 2 // 3])
    (tmp_path / "train-2.tar").rename(tmp_path / "away.tar")
    with pytest.raises(ConfigError) as caught:
        make_index(tmp_path)
    codes = {(problem.code, Path(problem.fields["shard"]).name) for problem in problems_of(caught.value)}
    assert codes == {
        ("VSE-D097", "train-1.tar"), ("VSE-D096", "train-2.tar")
    }
    assert not (tmp_path / "indexed" / "manifest.json").exists()
    reads.clear()
    (tmp_path / "train-1.tar").write_bytes(whole)
    (tmp_path / "away.tar").rename(tmp_path / "train-2.tar")
    assert make_index(tmp_path).split("train").images == 24
    assert reads == ["train-1.tar", "train-2.tar"]


def test_the_part_before_the_damage_is_used_on_request(tmp_path):
    write_shards(tmp_path)
    whole = (tmp_path / "train-1.tar").read_bytes()
    (tmp_path / "train-1.tar").write_bytes(whole[: len(whole) * 2 // 3])
    (tmp_path / "train-2.tar").unlink()
    dataset = make_index(tmp_path, on_damaged="skip")
    split = dataset.split("train")
    assert len(split.shards) == 2
    assert 1 <= split.shards[1].images < 8
    captions = list(iter_captions(dataset, "train"))
    assert captions == [f"thing {number} left of {number % 5}" for number in range(split.images)]
    assert sum("images of it are used" in note for note in dataset.manifest.notes) == 2
    assert verify(dataset.path) == []


def test_a_killed_index_goes_on_and_ends_in_the_same_bytes(tmp_path, reads, monkeypatch):
    write_shards(tmp_path)
    undisturbed = files_of(Path(make_index(tmp_path).path))
    shutil.rmtree(tmp_path / "indexed")
    reads.clear()
    counted = index_module.index_shard

    def killed(task):
        if len(reads) == 3:
            raise KeyboardInterrupt
        return counted(task)

    with monkeypatch.context() as patched:
        patched.setattr(index_module, "index_shard", killed)
        with pytest.raises(KeyboardInterrupt):
            make_index(tmp_path)
    assert reads == ["val-0.tar", "train-0.tar", "train-1.tar"]
    reads.clear()
    assert files_of(Path(make_index(tmp_path).path)) == undisturbed
    assert reads == ["train-2.tar"]


def test_a_damaged_record_is_made_again(tmp_path, reads):
    write_shards(tmp_path)
    undisturbed = files_of(Path(make_index(tmp_path).path))
    for path in (tmp_path / "indexed" / ".index").glob("*.json"):
        path.write_bytes(path.read_bytes()[:50])
    (tmp_path / "indexed" / "manifest.json").unlink()
    assert files_of(Path(make_index(tmp_path).path)) == undisturbed


def test_more_shards_and_changed_ones_are_the_only_ones_read(tmp_path, reads):
    write_shards(tmp_path)
    make_index(tmp_path)
    write_outside(tmp_path / "train-3.tar", [sample(50)])
    changed = write_outside(tmp_path / "train-1.tar", [sample(60)])
    os.utime(changed, ns=(1, 1))
    reads.clear()
    more = {"shards": str(tmp_path / "train-{0..3}.tar")}
    with refused("VSE-D095", by=StudyConflict, data_set="outside"):
        make_index(tmp_path, **more)
    (tmp_path / "indexed" / "manifest.json").unlink()
    assert make_index(tmp_path, **more).split("train").images == 8 + 1 + 8 + 1
    assert reads == ["train-1.tar", "train-3.tar"]


def test_a_finished_index_reads_nothing(tmp_path, reads):
    write_shards(tmp_path)
    first = make_index(tmp_path)
    reads.clear()
    assert make_index(tmp_path).manifest == first.manifest
    assert reads == []


def test_duplicates_of_the_evaluation_splits_are_reported_and_left_out_on_request(tmp_path, reads):
    write_shards(tmp_path)
    write_outside(tmp_path / "train-1.tar", [sample(0), sample(1, jpg=jpeg(1003), txt="rare word"), sample(2)])
    reported = make_index(tmp_path)
    assert reported.split("train").images == 19
    assert "rare" in reported.vocabulary.words
    row = {"split": "train", "image": "train-1/000000001", "reason": "same bytes as validation val-0/000001003"}
    assert left_out(reported) == [row]
    reads.clear()
    (tmp_path / "indexed" / "manifest.json").unlink()
    without = make_index(tmp_path, duplicates="leave_out")
    assert reads == []
    assert without.split("train").images == 18
    assert "rare" not in without.vocabulary.words
    assert "rare word" not in list(iter_captions(without, "train"))
    assert verify(without.path) == []


def test_images_that_look_the_same_are_duplicates_on_request(tmp_path):
    write_shards(tmp_path)
    again = jpeg(1003, side=60, quality=50)
    write_outside(tmp_path / "train-1.tar", [sample(0), sample(1, jpg=again)])
    assert left_out(make_index(tmp_path, output=str(tmp_path / "bytes"))) == []
    found = left_out(make_index(tmp_path, perceptual=True))
    assert [(row["image"], row["reason"]) for row in found] == [
        ("train-1/000000001", "looks the same as validation val-0/000001003")
    ]


def test_a_difference_hash_compares_neighbouring_cells():
    rows = [[cell * 20 for cell in range(9)]] * 4 + [[cell * 20 for cell in reversed(range(9))]] * 4
    from PIL import Image

    image = Image.new("L", (9, 8))
    image.putdata([value for row in rows for value in row])
    assert difference_hash(image.convert("RGB")) == "ff" * 4 + "00" * 4
    assert difference_hash(rgb_image(jpeg(5))) != difference_hash(rgb_image(jpeg(6)))


def test_a_folder_with_other_files_is_not_written_to(tmp_path):
    write_shards(tmp_path)
    (tmp_path / "indexed").mkdir()
    (tmp_path / "indexed" / "notes.txt").write_text("mine")
    with refused("VSE-D035", by=StudyConflict, file="notes.txt"):
        make_index(tmp_path)


def test_parts_of_epochs_need_equal_numbers_of_captions(tmp_path):
    write_shards(tmp_path)
    two = json.dumps({"captions": ["one", "two", "three"]})
    write_outside(tmp_path / "train-1.tar", [sample(0), sample(1, json=two)])
    sources = [{"shards": str(tmp_path / "train-{0..2}.tar"), "weight": 0.5}]
    with refused("VSE-D101", weight=0.5):
        make_index(tmp_path, shards=sources, captions="json.captions")
    sources[0]["weight"] = 2
    assert make_index(tmp_path, shards=sources, captions="json.captions").split("train").images == 18


def test_weights_are_for_training_alone(tmp_path):
    from pydantic import ValidationError

    with pytest.raises(ValidationError, match="weight 2 in validation"):
        recipe(tmp_path, validation=[{"shards": "val-0.tar", "weight": 2}])


def test_only_the_output_may_differ_between_equal_indexes(tmp_path):
    one = recipe(tmp_path)
    assert one.content_fingerprint() == recipe(tmp_path, output="elsewhere").content_fingerprint()
    assert one.content_fingerprint() != recipe(tmp_path, captions="json.caption").content_fingerprint()
    assert IndexRecipe.model_validate(one.to_plain()) == one


def test_any_process_may_read_the_shards(tmp_path):
    write_shards(tmp_path)
    write_outside(tmp_path / "train-1.tar", [sample(1, jpg=jpeg(1003))])
    here = files_of(Path(make_index(tmp_path, duplicates="leave_out").path))

    def backwards(function, tasks):
        for task in reversed(tasks):
            yield task, function(task)

    made = recipe(tmp_path, output=str(tmp_path / "spread"), duplicates="leave_out")
    index(made, progress=SilentProgress(), run_tasks=backwards)
    assert files_of(Path(made.output)) == here
