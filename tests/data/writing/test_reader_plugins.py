"""Readers of other people: a recipe names their layout and gets a data set, or one line."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from PIL import Image
from plugin_folders import write_files
from refusals import fits

from vsetune.config.plugins import forget_plugins
from vsetune.data.making.data_place import load_recipe
from vsetune.data.making.ingest import ingest
from vsetune.data.progress import SilentProgress
from vsetune.errors import ConfigError

SPEC = '''
from __future__ import annotations

from typing import Literal

from pydantic import Field

from vsetune.config.sources.recipe import SourceSpec
from vsetune.home.paths import PathText


class PairsSource(SourceSpec):
    """Pictures, each with a text file of the same name."""

    layout: Literal["pairs"] = "pairs"
    folder: PathText = Field(description="folder of name.png with name.txt")
    every: int = Field(2, ge=2, description="every so many images validate")
'''

READER = '''
from __future__ import annotations

from pathlib import Path

from vsetune.data.making.raw import FileImage, RawDataset, RawImage, RawSplit

from .spec import PairsSource


def read(source: PairsSource) -> RawDataset:
    files = sorted(Path(source.folder).glob("*.png"))
    texts = [tuple(file.with_suffix(".txt").read_text().splitlines()) for file in files]
    images = [RawImage(file.stem, text, FileImage(file)) for file, text in zip(files, texts, strict=True)]
    held = images[:: source.every]
    return RawDataset({"train": RawSplit([each for each in images if each not in held]), "val": RawSplit(held)})
'''


@pytest.fixture(autouse=True)
def _own_components_only() -> Iterator[None]:
    yield
    forget_plugins()


def write_recipe(folder: Path, *, reader: str = READER, spec: str = SPEC, **source: Any) -> Path:
    write_files(folder / "pairs", {"spec": spec, "reader": reader})
    pictures = folder / "pictures"
    pictures.mkdir(exist_ok=True)
    for number in range(6):
        colours = np.full((32, 32, 3), 40 * number, dtype=np.uint8)
        Image.fromarray(colours).save(pictures / f"{number}.png")
        (pictures / f"{number}.txt").write_text("a grey square\nnothing but grey\n")
    path = folder / "recipe.yaml"
    path.write_text(yaml.safe_dump({
        "name": "mine", "output": str(folder / "out"), "plugins": ["pairs/"], "vocabulary_min_count": 1,
        "source": {"layout": "pairs", "folder": str(pictures)} | source,
        "features": {"extractor": "pixels", "grid": 2, "width": 8},
    }))
    return path


def problems(path: Path) -> list[str]:
    with pytest.raises(ConfigError) as refused:
        ingest(load_recipe(path), progress=SilentProgress())
    return refused.value.problems


def test_a_reader_of_ones_own_makes_a_data_set(tmp_path: Path) -> None:
    recipe = load_recipe(write_recipe(tmp_path, every=3))
    manifest = ingest(recipe, progress=SilentProgress())
    assert {name: (each.images, each.captions) for name, each in manifest.splits.items()} == {
        "train": (4, 8), "validation": (2, 4),
    }
    assert recipe.to_plain()["source"]["every"] == 3
    assert ingest(recipe, progress=SilentProgress()) == manifest


def test_changed_code_of_a_reader_is_another_recipe(tmp_path: Path) -> None:
    before = load_recipe(write_recipe(tmp_path)).content_fingerprint()
    assert load_recipe(write_recipe(tmp_path)).content_fingerprint() == before
    changed = READER.replace("sorted(", "list(")
    assert load_recipe(write_recipe(tmp_path, reader=changed)).content_fingerprint() != before


def test_mistakes_with_a_reader_are_told_in_one_line(tmp_path: Path) -> None:
    path = write_recipe(tmp_path, everyy=3)
    assert problems(path) == [f"{path}: source.everyy: unknown key; did you mean every?"]
    path = write_recipe(tmp_path, every=1)
    assert problems(path) == [f"{path}: source.every: got 1, need a number >= 2"]
    path = write_recipe(tmp_path, layout="pars")
    assert "source.layout: no layout is called pars; did you mean pairs?" in problems(path)[0]
    path = write_recipe(tmp_path, reader=READER.replace("def read(", "def reads("))
    assert fits(problems(path)[0], "VSE-D047", found="no function `read`")
    path = write_recipe(tmp_path, reader=READER.replace("return RawDataset(", "return dict("))
    assert fits(problems(path)[0], "VSE-D047", found="read returned a dict")
    path = write_recipe(tmp_path, reader=READER.replace(".glob(", ".globb("))
    assert "pairs/reader.py:11: AttributeError: " in problems(path)[0]
