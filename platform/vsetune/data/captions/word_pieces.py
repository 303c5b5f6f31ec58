"""Captions as the word pieces of a pre-trained text model, in one array per split.

Made once and stored like semantic vectors. Rows are looked up by caption id, so the processes that read shards need no
tokeniser, and the batches are the same for any number of them.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path

import numpy as np

from vsetune.config.sources.pretrained_models import PretrainedModel, find_model
from vsetune.config.sources.text_model import KEY, TextModel, require_word_pieces
from vsetune.data.captions.pretrained_tokens import load_config, load_tokenizer
from vsetune.data.captions.svd_semantics import captions_fingerprint
from vsetune.data.stored.array_cache import cached_array
from vsetune.data.stored.dataset import Dataset
from vsetune.data.stored.shards import iter_captions
from vsetune.data.stored.tokens import mirrored_text
from vsetune.errors import ConfigError

_log = logging.getLogger(__name__)

_METHOD = "word-pieces-1"
"""Part of the file name: raise the number when the pieces of an equal model change."""
_DTYPE = "int32"
_PADDING = 0
_USUAL_LIMIT = 512
_TEXTS_AT_ONCE = 2048


class WordPieces:
    """The tokeniser of a text model. limit: most ids of a caption.

    ConfigError in one line when there is no such model, for a model of another kind, or when its ids are not `[CLS]
    pieces [SEP]` padded by 0.
    """

    def __init__(self, model: TextModel) -> None:
        found = _found(model)
        self.identity = found.identity
        self._config = load_config(found, key=KEY)
        require_word_pieces(self._config.model_type, model.name)
        self._tokenizer = load_tokenizer(found, self._config, key=KEY)
        room = getattr(self._config, "max_position_embeddings", None) or _USUAL_LIMIT
        self.limit = int(min(self._tokenizer.model_max_length, room))
        self._require_usual_ids(found.place)

    def encode(self, texts: list[str]) -> list[list[int]]:
        """`[CLS] pieces [SEP]` of each text; pieces beyond the limit are cut off, [SEP] stays.

        A text that literally contains the padding token gets the unknown piece there, never the padding id.
        """
        rows = self._tokenizer(
            texts, truncation=True, max_length=self.limit, return_attention_mask=False, return_token_type_ids=False
        )["input_ids"]
        unknown = self._tokenizer.unk_token_id
        return [[unknown if piece == _PADDING else piece for piece in row] if _PADDING in row else row for row in rows]

    def save(self, folder: Path) -> None:
        """Write a folder that, named as a text model, gives the same pieces; it lacks the weights of the model."""
        self._tokenizer.save_pretrained(folder)
        self._config.save_pretrained(folder)

    def pieces(self, ids: list[int]) -> list[str]:
        """The pieces as the tokeniser writes them: `##` before a piece that continues a word."""
        return [str(piece) for piece in self._tokenizer.convert_ids_to_tokens(ids)]

    def _require_usual_ids(self, where: str) -> None:
        tokenizer = self._tokenizer
        if tokenizer.pad_token_id != _PADDING:
            raise ConfigError(
                f"{KEY}: {where}: its padding has the id {tokenizer.pad_token_id}, need 0; use a model like BERT"
            )
        start, end = tokenizer.cls_token_id, tokenizer.sep_token_id
        if None in (start, end) or tokenizer("")["input_ids"] != [start, end]:
            raise ConfigError(
                f"{KEY}: {where}: its tokeniser puts no [CLS] before and [SEP] behind a text; use a model like BERT"
            )


def word_pieces(dataset: Dataset, split: str, model: TextModel, *, mirrored: bool = False) -> np.ndarray:
    """(captions, T) int32, row = caption id: `[CLS] pieces [SEP]`, then 0. Read-only, mapped if it can be stored.

    mirrored: of the captions of mirrored images, see `vsetune.data.stored.tokens`. ConfigError as for `WordPieces`.
    """
    captions = dataset.split(split).captions
    identity = _found(model).identity
    side = "mirrored-" if mirrored else ""
    name = f"{_METHOD}-{split}-{side}{identity}-{captions_fingerprint(dataset, split)}.npy"

    def made() -> np.ndarray:
        texts = iter_captions(dataset, split)
        return _array(WordPieces(model), map(mirrored_text, texts) if mirrored else texts, captions)

    return cached_array(dataset.path, name, rows=captions, make=made, dtype=_DTYPE)


def word_pieces_name(model: TextModel) -> str:
    """Identity of the tokeniser, for records; it is not loaded."""
    return _found(model).identity


def _found(model: TextModel) -> PretrainedModel:
    return find_model(model.name, model.revision, key=KEY)


def _array(pieces: WordPieces, texts: Iterable[str], captions: int) -> np.ndarray:
    rows: list[list[int]] = []
    for some in _in_groups(texts, _TEXTS_AT_ONCE):
        rows += pieces.encode(some)
    width = max(map(len, rows))
    array = np.full((captions, width), _PADDING, _DTYPE)
    for place, row in zip(array, rows, strict=True):
        place[: len(row)] = row
    full = sum(len(row) == pieces.limit for row in rows)
    if full:
        _log.info("%d of %d captions fill the length limit of %s; what is beyond is cut off",
                  full, captions, pieces.identity)
    return array


def _in_groups(texts: Iterable[str], size: int) -> Iterator[list[str]]:
    waiting = iter(texts)
    while some := list(islice(waiting, size)):
        yield some
