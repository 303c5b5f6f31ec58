from collections.abc import Callable
from pathlib import Path

import pytest
from refusals import refused
from rich.console import Console

from vsetune.config.sources.recipe import IngestRecipe, expand_path
from vsetune.config.spec.loading import load_spec, parse_spec
from vsetune.data.terminal_progress import terminal_progress
from vsetune.errors import ConfigError

STUDIES = Path(__file__).parents[3] / "studies" / "data"


@pytest.mark.parametrize("path", sorted(STUDIES.glob("*.yaml")), ids=lambda path: path.stem)
def test_the_recipes_we_ship_are_valid(path: Path) -> None:
    assert load_spec(path, IngestRecipe).name


def test_all_problems_of_a_recipe_are_told_at_once(tmp_path: Path) -> None:
    path = tmp_path / "recipe.yaml"
    path.write_text(
        "name: a b\noutput: x\nsource: {layout: scenes, train: -1}\nfeatures: {extractor: pixels, gird: 3}\n"
    )
    with pytest.raises(ConfigError) as raised:
        load_spec(path, IngestRecipe)
    assert len(raised.value.problems) == 3
    assert all(str(path) in problem and "\n" not in problem for problem in raised.value.problems)
    assert any("source.train: " in problem and "got -1" in problem for problem in raised.value.problems)


def test_an_unknown_layout_is_named_with_the_closest_one(tmp_path: Path) -> None:
    path = tmp_path / "recipe.yaml"
    path.write_text("name: a\noutput: x\nsource: {layout: scene}\nfeatures: {extractr: pixels}\n")
    with pytest.raises(ConfigError) as raised:
        load_spec(path, IngestRecipe)
    layout, extractor = raised.value.problems
    assert layout.startswith(f"{path}: source.layout: no layout is called scene; did you mean scenes? need one of")
    assert extractor == f"{path}: features.extractor: missing, need a value"


IAPR = {"layout": "iapr", "annotations": "a", "images": "i"}
READY = {"source": {"layout": "feature_folder", "folder": "f"}, "features": {"extractor": "precomputed"}}


@pytest.mark.parametrize(("changes", "code", "fields"), [
    ({"features": {"extractor": "precomputed"}}, "VSE-C088", {"layout": "scenes"}),
    ({"source": READY["source"]}, "VSE-C087", {"setting": "features.extractor pixels"}),
    (READY | {"store_images": True}, "VSE-C087", {"setting": "store_images true"}),
    ({"source": IAPR}, "VSE-C086", {}),
    ({"source": IAPR | {"shares": {"validation": 0.6, "test": 0.4}}}, "VSE-C085", {"validation": 0.6, "test": 0.4}),
    ({"output": "s3://bucket/x"}, "VSE-C089", {"output": "s3://bucket/x"}),
    ({"name": "a b"}, "VSE-C003", {"key": "name"}), ({"upload": "s3://bucket"}, "VSE-C003", {"key": "upload"}),
])
def test_a_recipe_that_contradicts_itself_is_refused(scenes_recipe, changes, code, fields) -> None:
    plain = scenes_recipe().model_dump(mode="json", exclude_unset=True)
    with refused(code, **fields):
        parse_spec(plain | changes, IngestRecipe, where="recipe.yaml")


def test_the_place_of_the_output_does_not_change_the_fingerprint(scenes_recipe: Callable[..., IngestRecipe]) -> None:
    fingerprint = scenes_recipe("one").content_fingerprint()
    assert fingerprint == scenes_recipe("two", upload="s3://bucket/x").content_fingerprint()
    assert fingerprint != scenes_recipe("one", vocabulary_min_count=9).content_fingerprint()


def test_variables_and_home_are_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VSETUNE_TEST_PLACE", "/somewhere")
    monkeypatch.setenv("HOME", "/home/me")
    assert expand_path("${VSETUNE_TEST_PLACE}/x-${VSETUNE_TEST_PLACE}", key="k") == "/somewhere/x-/somewhere"
    assert expand_path("~/x", key="k") == "/home/me/x"
    assert expand_path("plain $HOME", key="k") == "plain $HOME"


def test_the_terminal_shows_stage_and_count() -> None:
    console = Console(record=True, force_terminal=True, width=120)
    with console.capture() as capture, terminal_progress(console) as progress:
        progress.stage("scenes train", 20)
        progress.advance(20)
    assert "scenes train" in capture.get()
    assert "20/20" in capture.get()


def test_the_terminal_shows_the_name_of_a_stage_with_its_brackets() -> None:
    console = Console(record=True, force_terminal=True, width=120)
    with console.capture() as capture, terminal_progress(console) as progress:
        progress.stage("captions of [bold]mine[/]", 20)
    assert "captions of [bold]mine[/]" in capture.get()
