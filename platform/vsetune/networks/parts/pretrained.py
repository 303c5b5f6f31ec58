"""Models of `transformers` inside a network: found in one place, built with their weights or with shapes alone."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, cast

import torch
from torch import nn

from vsetune.config.sources.pretrained_models import (
    PretrainedModel,
    find_model,
    loading_failures,
    one_line,
    quiet_transformers,
    require_transformers,
)
from vsetune.errors import ConfigError

Architecture = Mapping[str, Mapping[str, Any]]
"""Configurations of the pre-trained models inside a network, plain, by the key where its spec names them."""

_WEIGHTS_FOLLOW: ContextVar[Architecture | None] = ContextVar("weights_follow", default=None)
_UNUSED = ("id2label", "label2id")
"""Keys of a configuration that name the classes of a classification layer, which no network of ours has."""


@contextmanager
def weights_follow(architecture: Architecture | None = None) -> Iterator[None]:
    """Networks built inside do not read pre-trained weights: a state dict with all of them is loaded next.

    architecture: of the network whose state that is (`architecture_of`); with it no file, hub or package of a
    `transformers` model is accessed. A model that it lacks still reads its configuration.
    """
    token = _WEIGHTS_FOLLOW.set(architecture or {})
    try:
        yield
    finally:
        _WEIGHTS_FOLLOW.reset(token)


def weights_are_wanted() -> bool:
    """False on the meta device, where only shapes are needed, and inside `weights_follow`."""
    return _WEIGHTS_FOLLOW.get() is None and torch.get_default_device().type != "meta"


def weights_are_needed_later() -> bool:
    """True on the meta device, outside `weights_follow`: the network is checked before training, which will need its
    files."""
    return _WEIGHTS_FOLLOW.get() is None and not weights_are_wanted()


def architecture_of(network: nn.Module) -> Architecture:
    """The data from which `weights_follow` rebuilds the network; empty where it contains no model of `transformers`."""
    found: dict[str, Mapping[str, Any]] = {}
    for module in network.modules():
        found |= getattr(module, "architecture", {})
    return found


def plain_config(model: nn.Module) -> dict[str, Any]:
    """The configuration of a model of `transformers` as plain data, defaults written out."""
    plain: dict[str, Any] = json.loads(cast(Any, model).config.to_json_string(use_diff=False))
    return {key: value for key, value in plain.items() if key not in _UNUSED}


def build_pretrained(
    model: str, revision: str | None, *, key: str, known: Callable[[str], Any], need: str, instead: str,
) -> nn.Module:
    """A model of `transformers` without its pooler, in evaluation mode and float32.

    known: configuration of a well-known id, or None; such a model needs no hub where only shapes are needed. need:
    which kind of model; instead: one that needs no hub; for messages. key: where the model is named, starts the
    messages. ConfigError in one line when it is not available.
    """
    require_transformers(key)
    config = None if weights_are_wanted() else _kept_config(model, key) or known(model)
    found = None if config is not None else find_model(model, revision, key=key, instead=instead)
    try:
        with quiet_transformers(is_local=found is None or found.commit is None), torch.random.fork_rng(devices=[]):
            built, missing = _from_files(found) if found is not None else (_from_config(config), [])
    except loading_failures() as error:
        raise ConfigError(f"{key}: {model}: cannot load ({one_line(error)}); need {need}") from error
    if missing:
        raise ConfigError(
            f"{key}: {model}: {len(missing)} weights are not in the file, the first is {missing[0]}; save the whole "
            "model, or name another"
        )
    pooler = getattr(built, "pooler", None)
    if pooler is not None and any(True for _ in pooler.parameters()):
        built.pooler = None  # stands behind the last layer and is not used
    return cast(nn.Module, built.float().eval())


def _kept_config(model: str, key: str) -> Any | None:
    """The configuration in the architecture that `weights_follow` was given, if it has one."""
    from transformers import AutoConfig

    kept = (_WEIGHTS_FOLLOW.get() or {}).get(key)
    if kept is None:
        return None
    try:
        return AutoConfig.for_model(**kept)
    except loading_failures() as error:
        raise ConfigError(
            f"{key}: {model}: the configuration kept with its weights cannot be read ({one_line(error)}); the file is "
            "damaged or of another version of transformers, train again"
        ) from error


def _from_files(found: PretrainedModel) -> tuple[Any, list[str]]:
    """The model, and the names of weights that its files lack. Its own code is not run, and pickled weights are
    refused."""
    from transformers import AutoConfig, AutoModel

    options: dict[str, Any] = {"revision": found.commit, "trust_remote_code": False}
    if not weights_are_wanted():
        return _from_config(AutoConfig.from_pretrained(found.place, **options)), []
    built, report = AutoModel.from_pretrained(
        found.place, use_safetensors=True, output_loading_info=True, **options,
    )
    return built, sorted(name for name in report["missing_keys"] if not name.startswith("pooler."))


def _from_config(config: Any) -> Any:
    from transformers import AutoModel

    return cast(Any, AutoModel).from_config(config)
