"""The tokeniser of a pre-trained text model of the `transformers` library, without the model's weights."""

from __future__ import annotations

import os
from typing import Any

from vsetune.config.sources.pretrained_models import (
    PretrainedModel,
    loading_failures,
    one_line,
    quiet_transformers,
    require_transformers,
)
from vsetune.errors import ConfigError


def load_config(found: PretrainedModel, *, key: str) -> Any:
    """Configuration of a model. key: setting that names the model; opens every message. ConfigError in one line."""
    require_transformers(key)
    from transformers import AutoConfig

    return _loaded(AutoConfig, found, key, "configuration")


def load_tokenizer(found: PretrainedModel, config: Any, *, key: str) -> Any:
    """Tokeniser of a text model with that configuration. ConfigError in one line if it cannot be read, or they do not
    fit together."""
    require_transformers(key)
    from transformers import AutoTokenizer

    tokenizer = _loaded(AutoTokenizer, found, key, "tokeniser")
    require_matching_words(tokenizer, config, where=found.place, key=key)
    return tokenizer


def _loaded(kind: Any, found: PretrainedModel, key: str, what: str) -> Any:
    """Load a part of a model. No code of the model repository is run."""
    try:
        with quiet_transformers(is_local=found.commit is None):
            return kind.from_pretrained(found.place, **loading_options(found))
    except loading_failures() as error:
        raise ConfigError(
            f"{key}: {found.place}: cannot load its {what} ({one_line(error)}); need a text model of `transformers` "
            "with its tokeniser"
        ) from error


def loading_options(found: PretrainedModel) -> dict[str, Any]:
    """Options for every `from_pretrained` call."""
    # Batches are small; threads of the tokeniser would only warn when a loader process is forked later.
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    return {"revision": found.commit, "trust_remote_code": False}


def require_matching_words(tokenizer: Any, config: Any, *, where: str, key: str) -> None:
    """ConfigError for a tokeniser that does not fit the model: if its files are missing, `transformers` makes up one
    that knows special tokens only."""
    if not len(tokenizer.all_special_ids) < len(tokenizer) <= config.vocab_size:
        raise ConfigError(
            f"{key}: {where}: its tokeniser knows {len(tokenizer)} tokens, special ones included, the model "
            f"{config.vocab_size}; save the tokeniser of the model beside it"
        )
