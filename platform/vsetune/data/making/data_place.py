"""The recipe file of a data set, its place, and whether the data set is already there."""

from __future__ import annotations

import logging
import shutil
from pathlib import Path

from vsetune.config.plugins import load_installed, load_plugins, require_different_names
from vsetune.config.sources.recipe import IngestRecipe, expand_path
from vsetune.config.spec.loading import parse_spec, read_yaml
from vsetune.config.spec.yaml_files import require_kind
from vsetune.data.stored import storage
from vsetune.data.stored.dataset import Dataset, check_first, load_manifest
from vsetune.data.stored.manifest import MANIFEST_FILE, Manifest
from vsetune.errors import ConfigError, DataError, StorageError, StudyConflict
from vsetune.storage.addresses import is_remote, join
from vsetune.storage.paths import under_home

log = logging.getLogger(__name__)


def output_place(recipe: IngestRecipe) -> str:
    """The `output` of a recipe: a folder, or a prefix if vsetune's home is in a bucket.

    ConfigError for a variable that is not set.
    """
    return under_home(expand_path(recipe.output, key="output"))


def data_place(recipe: IngestRecipe, *, in_parallel: bool) -> str:
    """The place from which the data set can be read afterwards. in_parallel: its shards are made on a cluster. Errors
    as in `output_place`.

    A data set made here stays here, and is copied to `upload`. A cluster, and a home in a bucket, need a place that
    every node reaches: `upload` if it is given, `output` otherwise.
    """
    output = output_place(recipe)
    return (recipe.upload or output) if in_parallel or is_remote(output) else output


def finished(recipe: IngestRecipe, place: str) -> Manifest | None:
    """The manifest in this folder or prefix, if it is finished. StudyConflict when it is of another recipe."""
    if not storage.exists(join(place, MANIFEST_FILE)):
        return None
    manifest = load_manifest(place)
    wanted = recipe.content_fingerprint()
    if manifest.recipe_fingerprint != wanted:
        raise StudyConflict(
            f"output: {place}: holds data set {manifest.name} of another recipe "
            f"({manifest.recipe_fingerprint}, now {wanted}); choose another output, or delete that folder."
        )
    log.info("data set %s in %s is already complete", manifest.name, place)
    return manifest


def require_whole(place: str) -> None:
    """DataError when a finished data set has lost files: a finished data set is not made again, so they would stay
    lost.

    Checks the sizes of shards and the vocabulary; hashes are checked by `vsetune data verify`. For an s3:// prefix it
    checks only the vocabulary.
    """
    try:
        dataset = Dataset.open(place)
        dataset.check_files(dataset.manifest.splits)
    except DataError as error:
        told = str(error).replace(check_first(place), "")
        raise DataError(f"{told} What is complete is not made anew: delete {place} first.") from error


def check_space(output: Path, needed: int) -> None:
    """StorageError when the disk of a folder has fewer bytes left than are needed."""
    free = shutil.disk_usage(output).free
    if free < needed:
        raise StorageError(
            f"output: {output}: {free / 2**20:,.0f} MiB free, the shards still to write need up to "
            f"{needed / 2**20:,.0f} MiB; free space, choose another output, or set store_images: false."
        )


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
