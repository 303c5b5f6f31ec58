"""Shards as other software writes them, by webdataset's own writer: `from outside_files import write_outside`."""

from __future__ import annotations

import io
import json
import tarfile
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import webdataset
from PIL import Image

from vsetune.config.sources.index_recipe import IndexRecipe
from vsetune.data.making.index import index
from vsetune.data.progress import SilentProgress
from vsetune.data.stored.dataset import Dataset

Sample = dict[str, Any]
"""Member suffixes with their content; `__key__` is the key."""


@cache
def jpeg(number: int, *, side: int = 24, quality: int = 90, kind: str = "JPEG") -> bytes:
    """A picture of random colours that fade into each other, another one for each number."""
    colours = np.random.default_rng(number).integers(0, 256, (5, 5, 3), dtype=np.uint8)
    buffer = io.BytesIO()
    Image.fromarray(colours).resize((side + number % 3, side), Image.Resampling.BICUBIC).save(
        buffer, kind, quality=quality
    )
    return buffer.getvalue()


def sample(number: int, **changes: Any) -> Sample:
    """As img2dataset writes it. changes: members; None removes one."""
    members = {
        "__key__": f"{number:09d}", "jpg": jpeg(number), "txt": f"thing {number} left of {number % 5}",
        "json": json.dumps({"caption": f"thing {number}", "captions": [f"one {number}", "two"], "score": float("nan")}),
    }
    return {name: content for name, content in (members | changes).items() if content is not None}


def write_outside(path: Path, samples: Iterable[Mapping[str, Any]]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    with webdataset.TarWriter(str(path)) as writer:
        for each in samples:
            writer.write({name: each[name] for name in each})
    return path


def write_tar(path: Path, members: Iterable[tuple[str, bytes]], *, format: int = tarfile.PAX_FORMAT) -> Path:
    """Members in this order, with a time in fractions of a second, which PAX writes into a header of its own."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(path, "w", format=format) as tar:
        for name, content in members:
            header = tarfile.TarInfo(name)
            header.size, header.mtime = len(content), 1234.5 if format == tarfile.PAX_FORMAT else 1234
            tar.addfile(header, io.BytesIO(content))
    return path


def write_shards(folder: Path, *, shards: int = 3, each: int = 8, evaluation: int = 6) -> None:
    """Train shards `train-0.tar`, ..., and `val-0.tar`."""
    for number in range(shards):
        first = number * each
        write_outside(folder / f"train-{number}.tar", [sample(first + image) for image in range(each)])
    write_outside(folder / "val-0.tar", [sample(1000 + image) for image in range(evaluation)])


def recipe(folder: Path, **changes: Any) -> IndexRecipe:
    plain = {
        "name": "outside", "output": str(folder / "indexed"), "shards": str(folder / "train-{0..2}.tar"),
        "validation": str(folder / "val-0.tar"), "vocabulary_min_count": 1,
    }
    return IndexRecipe.model_validate(plain | changes)


def make_index(folder: Path, **changes: Any) -> Dataset:
    """The data set of `recipe`."""
    made = recipe(folder, **changes)
    index(made, progress=SilentProgress())
    return Dataset.open(made.output)
