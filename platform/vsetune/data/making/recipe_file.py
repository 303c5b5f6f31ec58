"""Loads an ingest recipe: first the readers that it names, then the file itself."""

from __future__ import annotations

from pathlib import Path

from vsetune.config.sources.recipe import IngestRecipe
from vsetune.config.spec.file_kinds import require_kind
from vsetune.config.spec.loading import parse_spec, read_yaml
from vsetune.errors import ConfigError
from vsetune.plugins.plugin_loading import load_installed, load_plugins, require_different_names


def load_recipe(path: Path) -> IngestRecipe:
    """A recipe from its file, after loading the readers it names and those of installed packages.

    ConfigError lists every problem with its key; every line opens with the path.
    """
    content = read_yaml(path)
    require_kind(content, IngestRecipe, where=str(path))
    source = content.get("source")
    installed, broken = load_installed()
    problem = broken.get(str(source.get("layout"))) if isinstance(source, dict) else None
    if problem is not None:
        raise ConfigError(f"{path}: {problem}")
    references = content.get("plugins")
    if isinstance(references, list) and all(isinstance(each, str) for each in references):
        try:
            require_different_names([*installed, *load_plugins(references, base=path.absolute().parent)])
        except ConfigError as error:
            raise ConfigError([f"{path}: {line}" for line in error.problems]) from error
    return parse_spec(content, IngestRecipe, where=str(path))
