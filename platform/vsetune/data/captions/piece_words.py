"""The word of its caption to which each word piece belongs: joins phrases, which count words, to a text model's pieces.

Every word is split into pieces separately; the pieces of all words in sequence are those of the text, except for
captions where our words and the tokeniser's differ ("don't"). The pieces of such captions have no words and count
individually.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from vsetune.config.sources.text_model import TextModel
from vsetune.data.captions.svd_semantics import captions_fingerprint
from vsetune.data.captions.word_pieces import WordPieces, word_pieces, word_pieces_name
from vsetune.data.stored.array_cache import cached_array
from vsetune.data.stored.dataset import Dataset
from vsetune.data.stored.shards import iter_words
from vsetune.data.stored.tokens import mirrored_text

NO_WORD, WITHOUT_WORDS = -1, -2
_METHOD = "piece-words-1"
"""Part of the file name: raise the number when the words of equal pieces change."""
_DTYPE = "int16"


def piece_words(dataset: Dataset, split: str, model: TextModel, *, mirrored: bool = False) -> np.ndarray:
    """(captions, T) int16 beside `word_pieces`: position of each piece's word among those of its caption, from 0.

    -1 for [CLS], [SEP] and padding; -2 for all pieces of a caption that are not those of its words. Read-only, mapped
    if it can be stored. mirrored: of the captions of mirrored images. ConfigError as for `WordPieces`.
    """
    captions = dataset.split(split).captions
    side = "mirrored-" if mirrored else ""
    name = f"{_METHOD}-{split}-{side}{word_pieces_name(model)}-{captions_fingerprint(dataset, split)}.npy"

    def made() -> np.ndarray:
        words = iter_words(dataset, split)
        turned = ([mirrored_text(word) for word in caption] for caption in words) if mirrored else words
        return _array(WordPieces(model), word_pieces(dataset, split, model, mirrored=mirrored), turned)

    return cached_array(dataset.path, name, rows=captions, make=made, dtype=_DTYPE)


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
    places = np.arange(lengths.max(), dtype=_DTYPE) - np.int16(1)
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


def _array(pieces: WordPieces, ids: np.ndarray, captions: Iterable[list[str]]) -> np.ndarray:
    array = np.full(ids.shape, NO_WORD, _DTYPE)
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
