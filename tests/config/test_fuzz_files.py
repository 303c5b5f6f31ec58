"""Whatever stands in a study file or a recipe: a spec that can be written out again, or problems in one line each."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from spoiled_files import assert_told_in_lines, seeded, spoiled

from vsetune.config.sources.recipe import IngestRecipe
from vsetune.config.spec.loading import dump_yaml, load_spec
from vsetune.config.study.cells import build_trial, resolve_cells
from vsetune.config.study.study_spec import StudySpec
from vsetune.errors import ConfigError

FOLDER = Path(__file__).parents[2] / "studies"
STUDIES = sorted(FOLDER.glob("[!n]*.yaml"), key=lambda path: path.stat().st_size)
"""Without `nightly*.yaml`, which are no studies; the smallest first."""
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
    return [*sorted((FOLDER / "data").glob("*.yaml")), *sorted(folder.iterdir())]


@pytest.fixture(scope="session")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("spoiled") / "file.yaml"


def check_study(content: bytes, path: Path) -> None:
    path.write_bytes(content)
    try:
        study = load_spec(path, StudySpec)
        cells = resolve_cells(study, where="study.yaml")
    except ConfigError as error:
        assert_told_in_lines(error.problems)
        return
    plain = study.to_plain()
    assert json.loads(json.dumps(plain, allow_nan=False)) == plain
    path.write_text(dump_yaml(plain), encoding="utf-8")
    assert load_spec(path, StudySpec) == study
    for cell in cells:
        build_trial(study, cell, cell.defaults(), trial="t", seed=study.seeds[0])


def check_recipe(content: bytes, path: Path) -> None:
    path.write_bytes(content)
    try:
        recipe = load_spec(path, IngestRecipe)
    except ConfigError as error:
        assert_told_in_lines(error.problems)
        return
    path.write_text(dump_yaml(recipe.to_plain()), encoding="utf-8")
    assert load_spec(path, IngestRecipe) == recipe
    assert recipe.content_fingerprint()


@settings(seeded, max_examples=100)
@given(data=st.data())
def test_spoiled_study_files_are_valid_or_refused_in_lines(data: st.DataObject, path: Path) -> None:
    check_study(data.draw(spoiled(STUDIES[:4])), path)


@settings(seeded, max_examples=100)
@given(data=st.data())
def test_spoiled_recipes_are_valid_or_refused_in_lines(data: st.DataObject, recipes: list[Path], path: Path) -> None:
    check_recipe(data.draw(spoiled(recipes)), path)


@pytest.mark.slow
@pytest.mark.timeout(1800)
@settings(seeded, max_examples=2000)
@given(data=st.data())
def test_two_thousand_spoiled_study_files_and_recipes(data: st.DataObject, recipes: list[Path], path: Path) -> None:
    check_study(data.draw(spoiled(STUDIES)), path)
    check_recipe(data.draw(spoiled(recipes)), path)
