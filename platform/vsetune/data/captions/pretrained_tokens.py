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


def load_tokenizer(found: PretrainedModel, *, key: str) -> tuple[Any, Any]:
    """Tokeniser and configuration of a model. key: where the model is named, opens every message.

    Nothing of the model's own code is run. ConfigError in one line where they cannot be read, or do not fit together.
    """
    require_transformers(key)
    from transformers import AutoConfig, AutoTokenizer

    options = loading_options(found)
    try:
        with quiet_transformers(is_local=found.commit is None):
            tokenizer: Any = AutoTokenizer.from_pretrained(found.place, **options)
            config: Any = AutoConfig.from_pretrained(found.place, **options)
    except loading_failures() as error:
        raise ConfigError(
            f"{key}: {found.place}: cannot load its tokeniser ({one_line(error)}); need a text model of `transformers` "
            "with its tokeniser"
        ) from error
    require_matching_words(tokenizer, config, where=found.place, key=key)
    return tokenizer, config


def loading_options(found: PretrainedModel) -> dict[str, Any]:
    """For every `from_pretrained` of ours."""
    # Batches are small; threads of the tokeniser would only complain when a loader process is forked later.
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    return {"revision": found.commit, "trust_remote_code": False}


def require_matching_words(tokenizer: Any, config: Any, *, where: str, key: str) -> None:
    """Where its files are missing, `transformers` makes up a tokeniser that knows special tokens only."""
    if not len(tokenizer.all_special_ids) < len(tokenizer) <= config.vocab_size:
        raise ConfigError(
            f"{key}: {where}: its tokeniser knows {len(tokenizer)} tokens, special ones included, the model "
            f"{config.vocab_size}; save the tokeniser of the model beside it"
        )
