"""Models of `transformers` inside a network: found in one place, built with their weights or with shapes alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, cast

import torch
from safetensors import SafetensorError
from torch import nn

from vsetune.config.pretrained import PretrainedModel, find_model, one_line, quiet_transformers, require_transformers
from vsetune.errors import ConfigError

_WEIGHTS_FOLLOW: ContextVar[bool] = ContextVar("weights_follow", default=False)
_FAILURES = (OSError, ValueError, ImportError, RuntimeError, KeyError, SafetensorError)


@contextmanager
def weights_follow() -> Iterator[None]:
    """Networks built inside do not read pre-trained weights: a state dict with all of them is loaded next."""
    token = _WEIGHTS_FOLLOW.set(True)
    try:
        yield
    finally:
        _WEIGHTS_FOLLOW.reset(token)


def weights_are_wanted() -> bool:
    """False on the meta device, where only shapes are wanted, and inside `weights_follow`."""
    return not _WEIGHTS_FOLLOW.get() and torch.get_default_device().type != "meta"


def weights_are_needed_later() -> bool:
    """On the meta device, outside `weights_follow`: a network is checked that will be trained, its files are needed."""
    return not _WEIGHTS_FOLLOW.get() and not weights_are_wanted()


def build_pretrained(
    model: str, revision: str | None, *, key: str, known: Callable[[str], Any], need: str, instead: str,
) -> nn.Module:
    """A model of `transformers` without its pooler, in evaluation mode and float32.

    known: configuration of a well-known id, or None; those need no hub where only shapes are wanted. need: what kind
    of model; instead: one that needs no hub; for messages. key: where the model is named, opens them. ConfigError in
    one line when it cannot be had.
    """
    require_transformers(key)
    config = None if weights_are_wanted() else known(model)
    found = None if config is not None else find_model(model, revision, key=key, instead=instead)
    try:
        with quiet_transformers(is_local=found is None or found.commit is None), torch.random.fork_rng(devices=[]):
            built, missing = _from_files(found) if found is not None else (_from_config(config), [])
    except _FAILURES as error:
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


def _from_files(found: PretrainedModel) -> tuple[Any, list[str]]:
    """The model, and the weights its files lack. None of its own code is run, and pickled weights are refused."""
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
