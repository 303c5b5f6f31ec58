import io
import json
import shutil
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from vsetune.config.sources.recipe import IngestRecipe
from vsetune.data.looking.show import contact_sheet
from vsetune.data.looking.verify import summary, verify
from vsetune.data.stored.manifest import Manifest
from vsetune.errors import DataError, StorageError
from vsetune.storage.hashes import sha256_hex

Make = Callable[..., IngestRecipe]
Run = Callable[[IngestRecipe], Manifest]


@pytest.fixture
def folder(scenes_made_once: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(scenes_made_once, tmp_path / "scenes"))


def change_shard(folder: Path, name: str, change: Callable[[str, bytes], bytes | None]) -> None:
    """Rewrite a shard member by member (None drops it) and put its new hash and size into the manifest."""
    buffer = io.BytesIO()
    with tarfile.open(folder / name) as old, tarfile.open(fileobj=buffer, mode="w", format=tarfile.USTAR_FORMAT) as new:
        for member in old:
            file = old.extractfile(member)
            assert file is not None
            content = change(member.name, file.read())
            if content is not None:
                member.size = len(content)
                new.addfile(member, io.BytesIO(content))
    (folder / name).write_bytes(buffer.getvalue())

    def renew(plain: Any) -> None:
        for split in plain["splits"].values():
            for shard in split["shards"]:
                if shard["file"] == name:
                    shard |= {"sha256": sha256_hex(buffer.getvalue()), "bytes": len(buffer.getvalue())}

    change_manifest(folder, renew)


def change_manifest(folder: Path, change: Callable[[Any], None]) -> None:
    plain = json.loads((folder / "manifest.json").read_text())
    change(plain)
    (folder / "manifest.json").write_text(json.dumps(plain))


def only_problem(folder: Path) -> str:
    problems = verify(str(folder))
    assert len(problems) == 1, problems
    assert "\n" not in problems[0]
    assert "vsetune data verify" not in problems[0], "the advice to do what is being done"
    return problems[0]


def test_a_whole_data_set_has_no_problems(folder: Path) -> None:
    assert verify(str(folder)) == []


def test_a_flipped_byte_is_found(folder: Path) -> None:
    shard = folder / "train-000001.tar"
    content = bytearray(shard.read_bytes())
    content[600] ^= 1
    shard.write_bytes(content)
    assert only_problem(folder) == (
        f"{shard}: damaged shard (its SHA-256 is not the one of the manifest; changed); copy it back or ingest the "
        "data set again."
    )


@pytest.mark.parametrize("left", [0, 300, 5000])
def test_a_shard_cut_short_is_found(folder: Path, left: int) -> None:
    shard = folder / "train-000001.tar"
    shard.write_bytes(shard.read_bytes()[:left])
    told = f"train-000001.tar: damaged shard ({left:,} bytes, the manifest says"
    assert any(told in text for text in verify(str(folder)))


def test_a_missing_shard_is_found(folder: Path) -> None:
    (folder / "validation-000000.tar").unlink()
    assert "validation-000000.tar: shard file missing; copy it back or ingest" in only_problem(folder)


def test_a_shard_nobody_listed_is_found(folder: Path) -> None:
    (folder / "extra-000000.tar").write_bytes(b"")
    assert only_problem(folder) == (
        f"{folder}/extra-000000.tar: not in the manifest; remove it, unless the manifest is what was changed."
    )


def test_a_changed_vocabulary_is_found(folder: Path) -> None:
    path = folder / "vocabulary.json"
    path.write_text(path.read_text() + " ")
    assert "vocabulary.json: its SHA-256 is not the one of the manifest" in only_problem(folder)


def test_counts_that_contradict_the_shards_are_found(folder: Path) -> None:
    change_manifest(folder, lambda plain: plain["splits"]["train"].update(images=21))
    assert only_problem(folder) == (
        f"{folder}: shards of split 'train' hold 20 images and 100 captions, the manifest says 21 and 100; ingest the "
        "data set again."
    )


def npy(array: np.ndarray) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, array)
    return buffer.getvalue()


@pytest.mark.parametrize(
    ("suffix", "replacement", "message"),
    [
        ("json", b"{", "json: not JSON"),
        ("features.npy", None, "has no .features.npy member"),
        ("features.npy", npy(np.zeros((3, 16), np.float16)), r"are \(3, 16\) float16, the manifest says \(4, 16\)"),
        ("features.npy", npy(np.full((4, 16), np.nan, np.float16)), "not all finite, need finite float16"),
        ("features.npy", npy(np.zeros((4, 16), np.float32)), r"features are \(4, 16\) float32"),
        ("jpg", b"no image", "its photograph cannot be decoded"),
        ("jpg", None, "has no .jpg or .png member"),
    ],
)
def test_a_damaged_member_is_named_even_when_the_hash_fits(
    folder: Path, suffix: str, replacement: bytes | None, message: str
) -> None:
    name = f"000000002.{suffix}"
    change_shard(folder, "train-000000.tar", lambda member, content: replacement if member == name else content)
    found = only_problem(folder)
    assert "train-000000.tar: " in found
    assert "sample 000000002" in found
    with pytest.raises(DataError, match=message):
        raise DataError(found)


def test_a_dropped_sample_is_found_even_when_the_hash_fits(folder: Path) -> None:
    change_shard(
        folder, "train-000000.tar", lambda member, content: None if member.startswith("000000002") else content
    )
    assert "sample 000000003 is (image, caption) (3, 15), need (2, 10)" in only_problem(folder)


def test_a_folder_without_manifest_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"no manifest.json in it, so no finished data set"):
        verify(str(tmp_path))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"not json", "not JSON"),
        (b"[]", "format is 'list', need 'vsetune-data'"),
        (b'{"format": "vsetune-data", "version": 99}', "format version 99, this vsetune reads 1"),
        (b'{"format": "vsetune-data", "version": 1}', "name: missing, need a value"),
    ],
)
def test_a_manifest_of_another_kind_is_one_line(folder: Path, content: bytes, message: str) -> None:
    (folder / "manifest.json").write_bytes(content)
    with pytest.raises(DataError, match=message) as raised:
        verify(str(folder))
    assert "\n" not in str(raised.value)


def test_the_summary_adds_up_the_shards(folder: Path) -> None:
    train = next(line for line in summary(str(folder)) if line.split == "train")
    assert (train.images, train.captions, train.captions_mean, train.shards) == (20, 100, 5.0, 4)
    assert train.bytes == sum(path.stat().st_size for path in folder.glob("train-*.tar"))


@pytest.mark.parametrize("suffix", [".png", ".jpg"])
def test_a_contact_sheet_shows_images_from_the_whole_split(folder: Path, tmp_path: Path, suffix: str) -> None:
    output = tmp_path / f"sheet{suffix}"
    assert contact_sheet(str(folder), "train", output, count=7) == 7
    with Image.open(output) as sheet:
        assert sheet.width > 1000
        assert sheet.height > 4 * 220


def test_a_contact_sheet_of_a_small_split_shows_all_of_it(folder: Path, tmp_path: Path) -> None:
    assert contact_sheet(str(folder), "test", tmp_path / "sheet.png", count=50) == 4


def test_a_contact_sheet_without_stored_images_is_refused(scenes_recipe: Make, run: Run, tmp_path: Path) -> None:
    run(scenes_recipe("bare", store_images=False))
    with pytest.raises(DataError, match=r"no images in its shards; ingest with store_images: true"):
        contact_sheet(str(tmp_path / "bare"), "train", tmp_path / "sheet.png", count=1)


def test_a_contact_sheet_of_an_unknown_split_names_the_known_ones(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"no split dev, it has test, train, validation; name one of them"):
        contact_sheet(str(folder), "dev", tmp_path / "sheet.png", count=1)


def test_a_contact_sheet_of_another_format_is_refused(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(StorageError, match=r"ends in .gif, need .png or .jpg"):
        contact_sheet(str(folder), "train", tmp_path / "sheet.gif", count=1)
