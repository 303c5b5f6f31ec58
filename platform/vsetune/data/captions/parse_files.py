"""The files that `parses.json` lists: read whole, compared with their hashes and counts."""

from __future__ import annotations

import numpy as np

from vsetune.data.captions.parse_lists import Parses, SplitParses, SplitPhrases
from vsetune.data.stored import storage
from vsetune.data.stored.flaws import Flaw
from vsetune.data.stored.plain_arrays import HEADER_BYTES, array_from_bytes
from vsetune.data.stored.samples import MOST_CHARACTERS
from vsetune.errors import DataError
from vsetune.files.hashes import sha256_hex
from vsetune.object_storage import s3
from vsetune.object_storage.addresses import join

PARSES_FILE = "parses.json"
HEADS_DTYPE = "int16"


def are_there(parses: Parses, path: str) -> bool:
    """Whether every listed array exists; a missing one is made again. DataError for an array that differs from the
    list."""
    try:
        for info in parses.splits.values():
            for each in (info, info.phrases):
                if each is not None:
                    fetched_array(each, info.captions, path)
    except s3.NothingThere:
        return False
    return True


def fetched_array(info: SplitParses | SplitPhrases, captions: int, path: str) -> np.ndarray:
    """A listed array, compared with its hash and counts. NothingThere when it is missing, DataError when it differs."""
    where, fix = join(path, info.file), again(path, phrases=isinstance(info, SplitPhrases))
    try:
        content = storage.read_inside(path, info.file, most=HEADER_BYTES + 2 * captions * MOST_CHARACTERS)
    except s3.NothingThere as error:
        raise s3.NothingThere(f"{where}: listed in {PARSES_FILE}, and missing; {fix}") from error
    if sha256_hex(content) != info.sha256:
        raise DataError(
            f"{where}: its SHA-256 is not the one of {PARSES_FILE}, the file was changed; restore it, or delete it and "
            f"{PARSES_FILE} and {fix}"
        )
    try:
        array = array_from_bytes(content)
    except Flaw as error:
        raise DataError(f"{where}: no plain array ({error}); {fix}") from error
    if array.ndim != 2 or len(array) != captions or array.dtype != np.dtype(HEADS_DTYPE):
        raise DataError(f"{where}: is {array.shape} {array.dtype}, need ({captions}, words) {HEADS_DTYPE}; {fix}")
    return array


def again(path: str, *, phrases: bool = False) -> str:
    """Advice for parses, or phrases, that cannot be used."""
    return f"make them again: vsetune data parse {path}{' --phrases' if phrases else ''}"
