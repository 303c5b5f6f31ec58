"""Whatever stands in an ingest recipe: a spec that can be written out again, or problems in one line each."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from spoiled_files import assert_told_in_lines, seeded, spoiled

from vsetune.config.sources.recipe import IngestRecipe
from vsetune.config.spec.loading import dump_yaml, load_spec
from vsetune.errors import ConfigError

SHIPPED = sorted((Path(__file__).parents[2] / "studies" / "data").glob("*.yaml"))
OTHERS = {  # layouts that no shipped recipe reads
    "karpathy": {"layout": "karpathy", "captions": "dataset_coco.json", "images": "coco", "restval": "leave_out"},
    "feature_folder": {"layout": "feature_folder", "folder": "f30k_precomp", "captions_per_image": 5},
    "iapr": {"layout": "iapr", "annotations": "eng", "images": "iapr", "shares": {"validation": 0.1, "test": 0.1}},
}

@pytest.fixture(scope="session")
def recipes(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    folder = tmp_path_factory.mktemp("recipes")
    for layout, source in OTHERS.items():
        extractor = "precomputed" if layout == "feature_folder" else "transformers"
        features = {"extractor": extractor} | ({"model": "microsoft/resnet-18"} if extractor == "transformers" else {})
        plain = {"name": layout, "output": f"data/{layout}", "source": source, "features": features}
        (folder / f"{layout}.yaml").write_text(yaml.safe_dump(plain))
    return [*SHIPPED, *sorted(folder.iterdir())]


def is_valid_or_told(content: bytes, folder: Path) -> None:
    path = folder / "recipe.yaml"
    path.write_bytes(content)
    try:
        recipe = load_spec(path, IngestRecipe)
    except ConfigError as error:
        assert_told_in_lines(error.problems)
        return
    path.write_text(dump_yaml(recipe.to_plain()), encoding="utf-8")
    assert load_spec(path, IngestRecipe) == recipe
    assert recipe.content_fingerprint()


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("spoiled")


@settings(seeded, max_examples=100)
@given(data=st.data())
def test_spoiled_recipes_are_valid_or_told_in_lines(
    data: st.DataObject, recipes: list[Path], folder: Path
) -> None:
    is_valid_or_told(data.draw(spoiled(recipes)), folder)


@pytest.mark.slow
@pytest.mark.timeout(1800)
@settings(seeded, max_examples=2000)
@given(data=st.data())
def test_two_thousand_spoiled_recipes(
    data: st.DataObject, recipes: list[Path], folder: Path
) -> None:
    is_valid_or_told(data.draw(spoiled(recipes)), folder)
