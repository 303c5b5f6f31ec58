"""Checks YAML as it stands on a page: whole study files, parts of one, parts of a recipe, single settings.

A block with the key `study` is a study file, one with `nightly` a nightly file. Any other is a part: of a study file
if all its keys are keys of one, of a recipe if they are keys of that; it is checked in place of these keys of
EXAMPLE_STUDY or EXAMPLE_RECIPE. For a loss or network of the reader, which a page calls my_loss or my_network, one of
ours stands in: what plugins may be is tested in `test_plugins.py`.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from vsetune.config.sources.index_recipe import IndexRecipe
from vsetune.config.sources.recipe import IngestRecipe
from vsetune.config.spec.loading import parse_spec, read_yaml
from vsetune.config.study.cells import resolve_cells
from vsetune.config.study.study_spec import StudySpec
from vsetune.errors import ConfigError
from vsetune.nightly.nightly_spec import NightlySpec

EXAMPLE_STUDY = {
    "study": "example", "data": {"path": "data/example"}, "networks": [{"name": "vsepp"}], "losses": [{"name": "lmh"}],
}
EXAMPLE_RECIPE = {
    "name": "example", "output": "data/example", "source": {"layout": "scenes"}, "features": {"extractor": "pixels"},
}
STANDS_IN = {"my_loss": "lsh", "my_network": "vse_infinity"}
_SETTING = re.compile(r"(?:[a-z_]+\.)*([a-z_]+): (.+)", re.DOTALL)
_ALTERNATIVE = re.compile(r"^# ([a-z_]+: .*)$", re.MULTILINE)


def trouble_of_block(text: str, folder: Path) -> str | None:
    """What is wrong with a block of YAML, read as a file would be; None where nothing is. folder: for that file.

    A comment that is a whole top-level setting, `# data: {...}`, is checked in the place of the one it would replace.
    """
    try:
        content = _read(text, folder)
        _check(content)
        for found in _ALTERNATIVE.finditer(text):
            _check(content | _read(found[1], folder))
    except ConfigError as error:
        return "; ".join(error.problems)
    return None


def _read(text: str, folder: Path) -> dict[str, Any]:
    file = folder / "written.yaml"
    file.write_text(text, encoding="utf-8")
    return read_yaml(file)


def _check(content: dict[str, Any]) -> None:
    """ConfigError with every problem."""
    if "nightly" in content:
        parse_spec(content, NightlySpec, where="nightly file")
    elif set(content) <= set(StudySpec.model_fields):
        whole = content if "study" in content else EXAMPLE_STUDY | content
        if whole.pop("plugins", None):
            for key in ("networks", "losses"):
                whole[key] = [each | {"name": STANDS_IN.get(each["name"], each["name"])} for each in whole[key]]
        resolve_cells(parse_spec(whole, StudySpec, where="study file"), where="study file")
    elif "shards" in content:
        parse_spec(content, IndexRecipe, where="index recipe")
    elif set(content) <= set(IngestRecipe.model_fields):
        parse_spec(EXAMPLE_RECIPE | content, IngestRecipe, where="recipe")
    else:
        raise ConfigError(f"{', '.join(content)}: keys of no study file and of no recipe; say how they are checked")
