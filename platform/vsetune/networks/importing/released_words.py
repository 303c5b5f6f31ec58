"""The vocabulary of a released implementation: the word of each row of its word vectors.

SCAN, SGRAF, GSMN and VSE-infinity provide it as JSON, {"word2idx": {word: id}, ...}; VSE++, VSRN, PVSE and PCME as a
pickled object of their class Vocabulary with the same `word2idx`. In a pickle only this class is accepted, and it is
replaced by a plain holder of attributes: no code of the file runs.
"""

from __future__ import annotations

import json
import pickle
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from vsetune.errors import DataError
from vsetune.networks.parts.damaged import DAMAGED

_CLASS = "Vocabulary"
_HOMES = ("vocab", "__main__", "datasets.vocab")
"""Modules that contain the class: imported, defined in the script itself, PCME's package."""
_SPECIAL = ("<pad>", "<start>", "<end>", "<unk>")
UNKNOWN = "<unknown>"
_RELEASED = {UNKNOWN: "<unk>"}
"""Our name of a special word -> the released one. The others have equal names; <mask> is missing there."""


class _Refused(pickle.UnpicklingError):
    """An object that is not plain data."""


class _PlainUnpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if name == _CLASS and module in _HOMES:
            return type(_CLASS, (), {})  # new for every file: what a file does to it ends with it
        raise _Refused(f"{module}.{name}")


def read_words(path: Path) -> tuple[str, ...]:
    """words[i] is the word of row i. DataError in one line for a file that is no vocabulary, or contains other
    objects."""
    if not path.is_file():
        raise DataError(f"{path}: no such file; need the vocabulary of the released model (.json or .pkl).")
    try:
        ids = _ids(path)
    except _Refused as error:
        raise DataError(
            f"{path}: holds an object of {error}, which could run code; need a vocabulary of plain words and numbers."
        ) from error
    except (*DAMAGED, RecursionError, MemoryError) as error:
        raise DataError(f"{path}: not a vocabulary (.json, .pkl), or damaged; download it again.") from error
    if not isinstance(ids, Mapping):
        raise DataError(f"{path}: holds no `word2idx`, need the vocabulary of a released model.")
    return _in_order(path, ids)


def rows_of(words: Sequence[str], released: Sequence[str]) -> list[int | None]:
    """For each of our words the row in a released vocabulary, special words included; None for a word that it lacks."""
    rows = {word: row for row, word in enumerate(released)}
    return [rows.get(_RELEASED.get(word, word)) for word in words]


def _ids(path: Path) -> Any:
    if path.suffix == ".json":
        content = json.loads(path.read_text(encoding="utf-8"))
        return content.get("word2idx") if isinstance(content, Mapping) else None
    with path.open("rb") as stream:
        held = _PlainUnpickler(stream, encoding="utf-8").load()  # many were written by Python 2
    return held.get("word2idx") if isinstance(held, Mapping) else getattr(held, "word2idx", None)


def _in_order(path: Path, ids: Mapping[Any, Any]) -> tuple[str, ...]:
    is_plain = all(type(word) is str and type(number) is int for word, number in ids.items())
    if not is_plain or sorted(ids.values()) != list(range(len(ids))):
        raise DataError(f"{path}: `word2idx` does not number its words 0, 1, 2, ... once each; download it again.")
    missing = [word for word in _SPECIAL if word not in ids]
    if missing:
        need = ", ".join(_SPECIAL)
        raise DataError(f"{path}: `word2idx` has no {missing[0]}, need {need}; get the released vocabulary.")
    return tuple(sorted(ids, key=ids.__getitem__))
