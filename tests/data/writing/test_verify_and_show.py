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
from refusals import fits, refused

from vsetune.config.sources.recipe import IngestRecipe
from vsetune.data.looking.show import contact_sheet
from vsetune.data.looking.verify import summary, verify
from vsetune.data.stored.dataset import wrong_hash
from vsetune.data.stored.manifest import Manifest
from vsetune.errors import Problem
from vsetune.home.hashes import sha256_hex

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


def only_problem(folder: Path) -> Problem:
    problems = verify(str(folder))
    assert len(problems) == 1, problems
    assert "vsetune data verify" not in problems[0], "the advice to do it"
    return problems[0]


def test_a_whole_data_set_has_no_problems(folder: Path) -> None:
    assert verify(str(folder)) == []


def test_a_flipped_byte_and_a_shard_cut_short_are_found(folder: Path) -> None:
    shard = folder / "train-000001.tar"
    whole = shard.read_bytes()
    shard.write_bytes(whole[:600] + bytes([whole[600] ^ 1]) + whole[601:])
    assert fits(only_problem(folder), "VSE-D026", shard=shard, reason=wrong_hash())
    for left in (0, 300, 5000):
        shard.write_bytes(whole[:left])
        assert any(fits(each, "VSE-D026", shard=shard) for each in verify(str(folder)))


def test_missing_added_and_changed_files_are_found(folder: Path) -> None:
    shard = folder / "validation-000000.tar"
    shard.rename(folder / "extra-000000.tar")
    missing, added = verify(str(folder))
    assert fits(missing, "VSE-D025", file=shard, kind="shard")
    assert fits(added, "VSE-D027", file=folder / "extra-000000.tar")
    (folder / "extra-000000.tar").rename(shard)
    path = folder / "vocabulary.json"
    path.write_text(path.read_text() + " ")
    assert fits(only_problem(folder), "VSE-D030", file=path)


def npy(array: np.ndarray) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, array)
    return buffer.getvalue()


@pytest.mark.parametrize(
    ("suffix", "replacement", "message"),
    [
        ("json", b"{", "VSE-D010"),
        ("features.npy", None, "VSE-D026"),
        ("features.npy", npy(np.zeros((3, 16), np.float16)), "VSE-D024"),
        ("features.npy", npy(np.full((4, 16), np.nan, np.float16)), "VSE-D024"),
        ("features.npy", npy(np.zeros((4, 16), np.float32)), "VSE-D024"),
        ("jpg", b"no image", "VSE-D029"),
        ("jpg", None, "VSE-D026"),
    ],
)
def test_a_damaged_member_is_named_even_when_the_hash_fits(folder, suffix, replacement, message):
    name = f"000000002.{suffix}"
    change_shard(folder, "train-000000.tar", lambda member, content: replacement if member == name else content)
    found = only_problem(folder)
    assert "train-000000.tar: " in found
    assert "sample 000000002" in found
    assert fits(found, message)


def test_a_dropped_sample_is_found_even_when_the_hash_fits(folder: Path) -> None:
    change_shard(
        folder, "train-000000.tar", lambda member, content: None if member.startswith("000000002") else content
    )
    assert "sample 000000003 is (image, caption) (3, 15), need (2, 10)" in only_problem(folder)


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
    assert contact_sheet(str(folder), "test", output, count=50) == 4


def test_a_contact_sheet_without_stored_images_a_known_split_or_a_format_is_refused(
    scenes_recipe: Make, run: Run, folder: Path, tmp_path: Path
) -> None:
    run(scenes_recipe("bare", store_images=False))
    for place, split, file, message, fields in (
        ("bare", "train", "sheet.png", "VSE-D028", {}),
        ("scenes", "dev", "sheet.png", "VSE-D021", {"split": "dev", "splits": "test, train, validation"}),
        ("scenes", "train", "sheet.gif", "VSE-D090", {"suffix": ".gif"}),
    ):
        with refused(message, **fields):
            contact_sheet(str(tmp_path / place), split, tmp_path / file, count=1)
