"""Captions as the word pieces of a pre-trained text model, and the word to which each piece belongs."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable, Iterator, Sequence
from copy import deepcopy
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from vsetune.config.sources.pretrained_models import (
    PretrainedModel,
    find_model,
    loading_failures,
    one_line,
    quiet_transformers,
    require_transformers,
)
from vsetune.config.sources.trial_inputs import KEY, TextModel, require_word_pieces
from vsetune.data.stored.array_cache import cached_array
from vsetune.data.stored.dataset import Dataset
from vsetune.data.stored.shards import iter_captions, iter_words
from vsetune.data.stored.vocabulary import mirrored_text
from vsetune.errors import ConfigError

_log = logging.getLogger(__name__)

_METHODS = {"word_pieces": "word-pieces-1", "raised": "raised-ids-2"}
"""Parts of the file name: raise a number when the ids of an equal model change."""
_WITHOUT_MASK = ("siglip", "siglip2")
"""Models of text and image whose captions are padded to the limit, and read with their padding. All were trained on
lower case, and the tokeniser of SigLIP 2 of one image size leaves that to the caller."""
_DTYPE = "int32"
_PADDING = 0
_USUAL_LIMIT = 512
_TEXTS_AT_ONCE = 2048


class WordPieces:
    """The tokeniser of a text model. limit: most ids of a caption.

    ConfigError in one line when there is no such model; for `ids: word_pieces` also for a model of another kind, or
    when its ids are not `[CLS] pieces [SEP]` padded by 0.
    """

    def __init__(self, model: TextModel) -> None:
        found = _found(model)
        self.identity = found.identity
        self._is_raised = model.ids == "raised"
        self._config = load_config(found, key=model.key)
        of_text = getattr(self._config, "text_config", self._config)
        if not self._is_raised:
            require_word_pieces(self._config.model_type, model.name)
        self._tokenizer = load_tokenizer(found, of_text, key=model.key)
        room = getattr(of_text, "max_position_embeddings", None) or _USUAL_LIMIT
        self.limit = int(min(self._tokenizer.model_max_length, room))
        if not self._is_raised:
            self._require_usual_ids(found.place)

    def encode(self, texts: list[str]) -> list[list[int]]:
        """`[CLS] pieces [SEP]` of each text; pieces beyond the limit are cut off, [SEP] stays. Or all ids that its
        tokeniser gives, raised by one.

        A text that literally contains the padding token gets the unknown piece there, never the padding id.
        """
        if self._is_raised:
            padding: str | bool = False
            if self._config.model_type in _WITHOUT_MASK:
                padding, texts = "max_length", [text.lower() for text in texts]
            found = self._tokenizer(texts, truncation=True, max_length=self.limit, padding=padding)["input_ids"]
            return [[number + 1 for number in row] for row in found]
        rows = self._tokenizer(
            texts, truncation=True, max_length=self.limit, return_attention_mask=False, return_token_type_ids=False
        )["input_ids"]
        unknown = self._tokenizer.unk_token_id
        return [[unknown if piece == _PADDING else piece for piece in row] if _PADDING in row else row for row in rows]

    def save(self, folder: Path) -> None:
        """Write a folder that, named as a text model, gives the same pieces; it lacks the weights of the model.

        What the library's own calls need to give ids as `encode` does is stored in it: the limit, which inputs the
        model reads and, of a model without mask, padding to the limit, which `AutoProcessor` then does by itself.
        """
        tokenizer = deepcopy(self._tokenizer)
        stored: dict[str, Any] = {"model_max_length": self.limit}
        if self._config.model_type in _WITHOUT_MASK:
            stored |= {"model_input_names": ["input_ids"], "padding": "max_length", "truncation": True,
                       "max_length": self.limit}
            _have_lower_case_read(tokenizer)
        elif self._is_raised:
            stored |= {"model_input_names": ["input_ids", "attention_mask"], "padding_side": "right"}
        tokenizer.init_kwargs |= stored
        for name in ("model_max_length", "model_input_names", "padding_side"):
            if name in stored:
                setattr(tokenizer, name, stored[name])
        tokenizer.save_pretrained(folder)
        self._config.save_pretrained(folder)

    def pieces(self, ids: list[int]) -> list[str]:
        """The pieces as the tokeniser writes them: `##` before a piece that continues a word."""
        own = [number - 1 for number in ids] if self._is_raised else ids
        return [str(piece) for piece in self._tokenizer.convert_ids_to_tokens(own)]

    def _require_usual_ids(self, where: str) -> None:
        tokenizer = self._tokenizer
        if tokenizer.pad_token_id != _PADDING:
            raise ConfigError(
                "VSE-D068", "{key}: {model}: got {found}, need [CLS] pieces [SEP], padded by 0; use a model like BERT",
                key=KEY, model=where, found=f"its padding has the id {tokenizer.pad_token_id}",
            )
        start, end = tokenizer.cls_token_id, tokenizer.sep_token_id
        if None in (start, end) or tokenizer("")["input_ids"] != [start, end]:
            raise ConfigError(
                "VSE-D068", "{key}: {model}: got {found}, need [CLS] pieces [SEP], padded by 0; use a model like BERT",
                key=KEY, model=where, found="no [CLS] and [SEP]",
            )


def _have_lower_case_read(tokenizer: Any) -> None:
    """Change a tokeniser so that it reads every text in lower case."""
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is None:  # SentencePiece, whose class has a switch
        tokenizer.do_lower_case = tokenizer.init_kwargs["do_lower_case"] = True
        return
    from tokenizers import normalizers

    own = [] if backend.normalizer is None else [backend.normalizer]
    backend.normalizer = normalizers.Sequence([normalizers.Lowercase(), *own])


def word_pieces(dataset: Dataset, split: str, model: TextModel, *, mirrored: bool = False) -> np.ndarray:
    """(captions, T) int32, row = caption id: `[CLS] pieces [SEP]`, then 0. Read-only, mapped if it can be stored.

    mirrored: of the captions of mirrored images, see `vsetune.data.stored.vocabulary`. ConfigError as for `WordPieces`.
    """
    captions = dataset.split(split).captions
    identity = _found(model).identity
    side = "mirrored-" if mirrored else ""
    name = f"{_METHODS[model.ids]}-{split}-{side}{identity}-{dataset.split(split).captions_fingerprint}.npy"

    def made() -> np.ndarray:
        texts = iter_captions(dataset, split)
        return _array(WordPieces(model), map(mirrored_text, texts) if mirrored else texts, captions)

    return cached_array(dataset.path, name, rows=captions, make=made, dtype=_DTYPE)


def word_pieces_name(model: TextModel) -> str:
    """Identity of the tokeniser, for records; it is not loaded."""
    return _found(model).identity


def _found(model: TextModel) -> PretrainedModel:
    return find_model(model.name, model.revision, key=model.key)


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


NO_WORD, WITHOUT_WORDS = -1, -2
_WORD_METHOD = "piece-words-1"
"""Part of the file name: raise the number when the words of equal pieces change."""
_WORD_DTYPE = "int16"


def piece_words(dataset: Dataset, split: str, model: TextModel, *, mirrored: bool = False) -> np.ndarray:
    """(captions, T) int16 beside `word_pieces`: position of each piece's word among those of its caption, from 0.

    -1 for [CLS], [SEP] and padding; -2 for all pieces of a caption that are not those of its words. Read-only, mapped
    if it can be stored. mirrored: of the captions of mirrored images. ConfigError as for `WordPieces`.
    """
    captions = dataset.split(split).captions
    side = "mirrored-" if mirrored else ""
    name = f"{_WORD_METHOD}-{split}-{side}{word_pieces_name(model)}-{dataset.split(split).captions_fingerprint}.npy"

    def made() -> np.ndarray:
        words = iter_words(dataset, split)
        turned = ([mirrored_text(word) for word in caption] for caption in words) if mirrored else words
        return _word_array(WordPieces(model), word_pieces(dataset, split, model, mirrored=mirrored), turned)

    return cached_array(dataset.path, name, rows=captions, make=made, dtype=_WORD_DTYPE)


def ids_of_phrases(phrases: Sequence[Sequence[Sequence[int]]], words: np.ndarray) -> np.ndarray:
    """(captions, Q, L) bool: the ids of each phrase. Q is the largest number of phrases of a caption, at least 1; rows
    after the last phrase of a caption are empty.

    phrases: for each caption, for each phrase the positions of its words. words: (captions, L), position of the word of
    each id, as in `piece_words`. A phrase that was cut off with the end of its caption is left out; if none is left,
    every word is a phrase of its own, and so is every id of a caption whose ids have no words.
    """
    rows = [_rows(of_caption, row) for of_caption, row in zip(phrases, words, strict=True)]
    found = np.zeros((len(rows), max([1, *map(len, rows)]), words.shape[1]), np.bool_)
    for place, row in zip(found, rows, strict=True):
        place[: len(row)] = row
    return found


def words_of_ids(lengths: np.ndarray) -> np.ndarray:
    """(captions, L) like `piece_words` for captions as ids of the vocabulary: word w is at position w + 1.

    lengths: (captions,) ids, start and end included; L is the longest.
    """
    places = np.arange(lengths.max(), dtype=_WORD_DTYPE) - np.int16(1)
    return np.where(places[None] < lengths[:, None] - 2, places[None], np.int16(NO_WORD))


def _rows(phrases: Sequence[Sequence[int]], words: np.ndarray) -> np.ndarray:
    """(Q, L) bool."""
    known = int(words.max()) + 1  # number of words; 0 in a caption whose ids have none
    is_in = np.zeros((len(phrases), known + 1), np.bool_)
    for row, phrase in zip(is_in, phrases, strict=True):
        row[[word for word in phrase if word < known]] = True
    found: np.ndarray = is_in[:, np.where(words >= 0, words, known)]
    kept = found[found.any(axis=1)]
    if len(kept):
        return kept
    if known:
        return _rows([(word,) for word in range(known)], words)
    alone: np.ndarray = np.eye(len(words), dtype=np.bool_)[words != NO_WORD]
    return alone


def _word_array(pieces: WordPieces, ids: np.ndarray, captions: Iterable[list[str]]) -> np.ndarray:
    array = np.full(ids.shape, NO_WORD, _WORD_DTYPE)
    cut: dict[str, list[int]] = {}
    for row, found, words in zip(array, ids, captions, strict=True):
        for word in words:
            if word not in cut:
                cut[word] = pieces.encode([word])[0][1:-1]
        together = [(position, piece) for position, word in enumerate(words) for piece in cut[word]]
        length = int((found != 0).sum())
        body = found[1 : length - 1].tolist()
        is_cut = length == pieces.limit
        if [piece for _, piece in together][: len(body) if is_cut else None] == body:
            row[1 : length - 1] = [position for position, _ in together[: len(body)]]
        else:
            row[1 : length - 1] = WITHOUT_WORDS
    return array


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
            "VSE-D062", "{key}: {model}: cannot load ({reason}); need {need} of `transformers` and safetensors weights",
            key=key, model=f"{found.place}: {what}", reason=one_line(error), need="a text model with its tokeniser",
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
            "VSE-D067", "{key}: {model}: its tokeniser knows {tokens} tokens, special ones included, the model {need}; "
            "save the tokeniser of the model beside it", key=key, model=where, tokens=len(tokenizer),
            need=config.vocab_size,
        )
