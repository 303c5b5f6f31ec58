"""What an ingest says of a source that this user may not read, or whose names no file can have."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from refusals import refused

from vsetune.config.sources.recipe import CaptionTableSource, KarpathySource
from vsetune.data.making.readers import read_raw
from vsetune.errors import DataError

_READ = """
import json, os, sys
from pydantic import TypeAdapter
from vsetune.config.sources.recipe import AnySource
from vsetune.data.making.readers import read_raw
from vsetune.errors import UsageError
for source, folder in json.loads(sys.argv[1]):
    os.chmod(folder, 0)
    try:
        read_raw(TypeAdapter(AnySource).validate_python(source))
        print("read")
    except UsageError as error:
        print(error.problem.code, error)
    os.chmod(folder, 0o755)
"""
_NEEDS_RIGHTS = ["setpriv", "--bounding-set=-dac_override,-dac_read_search"]
"""In front of a command of root, which then reads only what its owner may."""


@pytest.fixture
def sources(tmp_path: Path, save_image: Callable[..., bytes]) -> dict[str, dict[str, object]]:
    """A small source of every layout, with its images in `images/deep`."""
    save_image(tmp_path / "images" / "deep" / "a.jpg")
    entry = {"split": "train", "filename": "a.jpg", "filepath": "deep", "sentences": [{"raw": "a dog"}]}
    (tmp_path / "dataset.json").write_text(json.dumps({"images": [entry]}))
    (tmp_path / "captions.csv").write_text("image,caption\na.jpg,a dog\n")
    (tmp_path / "train.txt").write_text("a.jpg\n")
    for folder in ("ready", "annotations/00"):
        (tmp_path / folder).mkdir(parents=True)
    np.save(tmp_path / "ready" / "train_ims.npy", np.ones((1, 4), dtype=np.float32))
    (tmp_path / "ready" / "train_caps.txt").write_text("a dog\n")
    (tmp_path / "annotations" / "00" / "a.eng").write_text("<IMAGE>a.jpg</IMAGE><DESCRIPTION>a dog</DESCRIPTION>")
    images = str(tmp_path / "images")
    return {
        "karpathy": {"captions": str(tmp_path / "dataset.json"), "images": images},
        "caption_table": {
            "captions": str(tmp_path / "captions.csv"), "images": [images],
            "lists": {"train": str(tmp_path / "train.txt")},
        },
        "feature_folder": {"folder": str(tmp_path / "ready")},
        "iapr": {"annotations": str(tmp_path / "annotations"), "images": images, "shares": {"validation": 0.5}},
    }


def test_a_folder_that_may_not_be_read_is_told_as_such(sources, tmp_path):
    """Not as one whose files are missing, nor as one of the home. In a process without the rights of root."""
    before = _NEEDS_RIGHTS if os.geteuid() == 0 else []
    if before and shutil.which(before[0]) is None:
        pytest.skip("root reads everything, and there is no setpriv")
    closed = [
        ({"layout": layout, **sources[layout]}, str(tmp_path / folder)) for layout, folder in (
            ("karpathy", "images"), ("karpathy", "images/deep"), ("caption_table", "images"),
            ("caption_table", "images/deep"), ("feature_folder", "ready"), ("iapr", "annotations/00"),
        )
    ]
    command = [*before, sys.executable, "-c", _READ, json.dumps(closed)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    said = subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout.splitlines()
    assert len(said) == len(closed)
    for line, (_, folder) in zip(said, closed, strict=True):
        assert line.startswith(f"VSE-D002 {folder}"), line


def test_a_file_name_that_no_file_can_have_is_told(tmp_path: Path) -> None:
    name = f"{'n' * 300}.jpg"
    (tmp_path / "dataset.json").write_text(
        json.dumps({"images": [{"split": "train", "filename": name, "sentences": [{"raw": "a dog"}]}]})
    )
    with refused("VSE-D001", by=DataError, reason="File name too long"):
        read_raw(KarpathySource(captions=str(tmp_path / "dataset.json"), images=str(tmp_path)))


def test_folders_of_images_behind_links_are_searched_once(tmp_path: Path, save_image: Callable[..., bytes]) -> None:
    """Collections are put together by links, and a link may lead back up."""
    save_image(tmp_path / "elsewhere" / "a.jpg")
    (tmp_path / "images").mkdir()
    (tmp_path / "images" / "2024").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "elsewhere" / "up").symlink_to(tmp_path / "images")
    (tmp_path / "captions.csv").write_text("image,caption\na.jpg,a dog\n")
    (tmp_path / "train.txt").write_text("a.jpg\n")
    raw = read_raw(CaptionTableSource(
        captions=str(tmp_path / "captions.csv"), images=[str(tmp_path / "images")],
        lists={"train": str(tmp_path / "train.txt")},
    ))
    source = raw.splits["train"].images[0].source
    assert source is not None
    assert source.place == str(tmp_path / "images" / "2024" / "a.jpg")
