"""Phrases of captions as one array: index lists in sequence, each opened by the kind of its phrase."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from vsetune.data.captions.phrase_rules import PHRASE_KINDS, Phrase
from vsetune.errors import DataError

PHRASE_DTYPE = "int16"
_OPENS = {kind: -1 - number for number, kind in enumerate(PHRASE_KINDS)}
_KINDS = {opens: kind for kind, opens in _OPENS.items()}
_END = -1 - len(PHRASE_KINDS)


def encoded(captions: Sequence[Sequence[Phrase]]) -> np.ndarray:
    """(captions, longest) int16: -1 opens an object, -2 an attribute, -3 a relation, then the positions of its words,
    from 0; -4 after the end of the last phrase."""
    rows = [[each for phrase in phrases for each in (_OPENS[phrase.kind], *phrase.words)] for phrases in captions]
    array = np.full((len(rows), max([1, *map(len, rows)])), _END, PHRASE_DTYPE)  # without columns it cannot be mapped
    for row, codes in zip(array, rows, strict=True):
        row[: len(codes)] = codes
    return array


def decoded(row: np.ndarray, *, words: int) -> list[Phrase]:
    """The phrases of a caption of `words` words. DataError for a row that `encoded` cannot have written."""
    lists: list[tuple[int, list[int]]] = []
    codes = row.tolist()
    end = codes.index(_END) if _END in codes else len(codes)
    for code in codes[:end]:
        if code in _KINDS:
            lists.append((code, []))
        elif lists and 0 <= code < words:
            lists[-1][1].append(code)
        else:
            raise DataError(f"phrases: {code} stands among the positions of a caption of {words} words")
    if any(code != _END for code in codes[end:]) or not all(positions for _, positions in lists):
        raise DataError("phrases: a row has a phrase without words, or goes on behind its end")
    return [Phrase(_KINDS[code], tuple(positions)) for code, positions in lists]


def counted(codes: np.ndarray) -> tuple[int, int]:
    """(phrases, captions that have none)."""
    return int(np.isin(codes, list(_KINDS)).sum()), int((codes[:, 0] == _END).sum())
