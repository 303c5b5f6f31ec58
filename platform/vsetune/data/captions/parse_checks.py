"""Checks of the parses and phrases stored beside a data set."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from vsetune.config.spec.foreign_text import one_line
from vsetune.data.captions.parse_files import PARSES_FILE, again, fetched_array
from vsetune.data.captions.parse_lists import SplitParses
from vsetune.data.captions.parses import read_parses
from vsetune.data.captions.phrase_codes import decoded
from vsetune.data.captions.svd_semantics import fingerprint_of_shards
from vsetune.data.stored.dataset import Dataset
from vsetune.errors import DataError
from vsetune.object_storage.addresses import join

_ROWS_AT_ONCE = 4096


def parses_problems(dataset: Dataset, words: Mapping[str, Sequence[int]]) -> Iterator[str]:
    """Problems of a data set's parses, one sentence each; none if it has no parses.

    words: number of words of each caption, by split; for a damaged split only of the captions that could be read.
    """
    path, known = dataset.path, dataset.manifest.splits
    where = join(path, PARSES_FILE)
    try:
        parses = read_parses(path)
    except DataError as error:
        yield str(error)
        return
    if parses is None:
        return
    for split in known.keys() - parses.splits.keys():
        yield f"{where}: has no parses of split {split}; {again(path)}"
    for split, info in parses.splits.items():
        if split not in known or info.captions != known[split].captions:
            yield f"{where}: its split {one_line(split)} is not in the manifest; {again(path)}"
            continue
        if info.captions_fingerprint != fingerprint_of_shards(known[split]):
            yield f"{where}: its split {split} is of other captions; {again(path)}"
        yield from _array_problems(info, np.asarray(words[split]), path)


def _array_problems(info: SplitParses, words: np.ndarray, path: str) -> Iterator[str]:
    """Problems of the arrays of a split. words: of each caption; fewer if some could not be read."""
    try:
        heads = fetched_array(info, info.captions, path)
        if len(words) == len(heads) and not _are_of(heads, words):
            yield f"{join(path, info.file)}: a head stands beyond the words of its caption; {again(path)}"
    except DataError as error:
        yield str(error)
    if info.phrases is None:
        return
    try:
        codes = fetched_array(info.phrases, info.captions, path)
        for row, count in zip(codes, words.tolist() if len(words) == len(codes) else [], strict=False):
            decoded(row, words=count)
    except DataError as error:
        told = str(error)
        yield told if told.startswith(path) else f"{join(path, info.phrases.file)}: {told}; {again(path, phrases=True)}"


def _are_of(heads: np.ndarray, words: np.ndarray) -> bool:
    """Whether every head, and every word that has one, is a word of its caption. words: (captions,) word counts."""
    return all(
        (np.maximum(word, heads[caption, word]) < words[caption]).all()
        for start in range(0, len(heads), _ROWS_AT_ONCE)
        for caption, word in [_with_heads(heads, start)]
    )


def _with_heads(heads: np.ndarray, start: int) -> tuple[np.ndarray, np.ndarray]:
    caption, word = np.nonzero(heads[start : start + _ROWS_AT_ONCE] >= 0)
    return caption + start, word
