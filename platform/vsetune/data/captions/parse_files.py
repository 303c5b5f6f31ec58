"""The files that `parses.json` lists, with the arrays of parses and phrases of every split."""

from __future__ import annotations

from typing import Any

import numpy as np
from pydantic import Field, SerializerFunctionWrapHandler, model_serializer

from vsetune.config.spec.base import Spec
from vsetune.data.stored import storage
from vsetune.data.stored.outside_shards import MOST_CHARACTERS
from vsetune.data.stored.plain_files import HEADER_BYTES, Flaw, array_from_bytes
from vsetune.data.stored.storage import MISFIT, OTHER_HASH
from vsetune.errors import DataError, Problem
from vsetune.home import s3
from vsetune.home.addresses import join
from vsetune.home.hashes import sha256_hex

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
        raise s3.NothingThere(Problem.of(
            "VSE-D077", "{where}: listed in parses.json, and missing; {fix}", where=where, fix=fix
        )) from error
    if sha256_hex(content) != info.sha256:
        raise DataError(OTHER_HASH(
            file=where, listed=PARSES_FILE, fix=f"restore it, or delete it and {PARSES_FILE} and {fix}",
        ))
    try:
        array = array_from_bytes(content)
    except Flaw as error:
        raise DataError(
            "VSE-D011", "{where}: no plain array ({reason}); {fix}", where=where, reason=error, fix=fix
        ) from error
    if array.ndim != 2 or len(array) != captions or array.dtype != np.dtype(HEADS_DTYPE):
        raise DataError(MISFIT(
            where=where, found=f"{array.shape} {array.dtype}", need=f"({captions}, words) {HEADS_DTYPE}", fix=fix,
        ))
    return array


def again(path: str, *, phrases: bool = False) -> str:
    """Advice for parses, or phrases, that cannot be used."""
    return f"make them again: vsetune data parse {path}{' --phrases' if phrases else ''}"


PARSES_FORMAT = "vsetune-parses-1"


class SplitPhrases(Spec):
    """The phrases of one split. `file` is relative to parses.json, see `vsetune.data.captions.phrase_rules`."""

    file: str = Field(pattern=r"^phrases-[A-Za-z0-9._-]+\.npy$")
    sha256: str
    phrases: int = Field(ge=0, description="all captions together")
    without: int = Field(ge=0, description="captions that have none")


class SplitParses(Spec):
    """One split. `file` is relative to parses.json: (captions, words) int16, row = caption id.

    An entry is the position of the head among the words of the caption, from 0; -1 for a root and after the last word;
    a caption without parse is a row of -2.
    """

    file: str = Field(pattern=r"^parses-[A-Za-z0-9._-]+\.npy$")
    sha256: str
    captions_fingerprint: str = Field(description="which captions these are: of the shards they stand in")
    captions: int = Field(ge=0, le=1 << 40)
    pairs: int = Field(ge=0, description="pairs of words that are joined, all captions together")
    not_parsed: int = Field(ge=0, description="captions without parse: the pipeline changed their words, or too long")
    phrases: SplitPhrases | None = Field(None, description="null: not made")

    @model_serializer(mode="wrap")
    def _as_before_phrases(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Without `phrases` if there are none, which leaves the older form of parses.json."""
        plain: dict[str, Any] = handler(self)
        return {key: value for key, value in plain.items() if key != "phrases" or value is not None}


class Parses(Spec):
    """Contents of parses.json."""

    format: str = PARSES_FORMAT
    pipeline: str
    version: str = Field(description="of the pipeline, and of spaCy")
    splits: dict[str, SplitParses]

    @property
    def has_phrases(self) -> bool:
        """Whether every split has phrases."""
        return all(info.phrases is not None for info in self.splits.values())

    def files(self) -> list[str]:
        """All listed arrays."""
        infos = self.splits.values()
        return [info.file for info in infos] + [info.phrases.file for info in infos if info.phrases is not None]
