"""Dependency parses of captions: for each word the word it depends on, in one array per split.

They stand beside the shards, listed in `parses.json`, which is written last: with it the parses are complete. Shards
and manifest stay as they are, so parses can be added to a finished data set, and its fingerprint, hence checkpoints,
stay valid. A data set has parses by one pipeline; another is refused: networks trained on both do not compare.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path

import numpy as np
from pydantic import Field, ValidationError

from vsetune.config.spec.base import Spec
from vsetune.config.spec.foreign_text import one_line
from vsetune.data.captions.spacy_parser import load_parser
from vsetune.data.captions.svd_semantics import captions_fingerprint, fingerprint_of_shards
from vsetune.data.progress import ProgressSink
from vsetune.data.stored import storage
from vsetune.data.stored.array_cache import cached_array
from vsetune.data.stored.dataset import Dataset
from vsetune.data.stored.flaws import Flaw
from vsetune.data.stored.manifest import first_problem
from vsetune.data.stored.plain_arrays import HEADER_BYTES, array_from_bytes
from vsetune.data.stored.plain_json import parse_shallow_json
from vsetune.data.stored.samples import MOST_CHARACTERS
from vsetune.data.stored.shards import iter_words
from vsetune.errors import DataError, StorageError, StudyConflict
from vsetune.files.hashes import sha256_hex
from vsetune.files.whole_files import readable_json, write_whole
from vsetune.object_storage import s3
from vsetune.object_storage.addresses import is_remote, join

PARSES_FILE = "parses.json"
_FORMAT = "vsetune-parses-1"
NO_HEAD, NOT_PARSED = -1, -2
_DTYPE = "int16"
_ROWS_AT_ONCE = 4096


class SplitParses(Spec):
    """One split. `file` is relative to parses.json: (captions, words) int16, row = caption id.

    An entry is the position of the head among the words of the caption, from 0; -1 for a root and behind the last word;
    a caption without parse is a row of -2.
    """

    file: str = Field(pattern=r"^parses-[A-Za-z0-9._-]+\.npy$")
    sha256: str
    captions_fingerprint: str = Field(description="which captions these are: of the shards they stand in")
    captions: int = Field(ge=0, le=1 << 40)
    pairs: int = Field(ge=0, description="pairs of words that are joined, all captions together")
    not_parsed: int = Field(ge=0, description="captions without parse: the pipeline changed their words, or too long")


class Parses(Spec):
    """What stands in parses.json."""

    format: str = _FORMAT
    pipeline: str
    version: str = Field(description="of the pipeline, and of spaCy")
    splits: dict[str, SplitParses]


def read_parses(path: str) -> Parses | None:
    """The parses of a data folder or s3:// prefix; None where there are none. DataError for a damaged parses.json."""
    where = join(path, PARSES_FILE)
    content = storage.find_inside(path, PARSES_FILE)
    if content is None:
        return None
    plain = parse_shallow_json(content, where=where, fix=f"delete it, then {_again(path)}")
    try:
        parses = Parses.model_validate(plain)
    except ValidationError as error:
        raise DataError(f"{where}: damaged ({first_problem(error)}); delete it, then {_again(path)}") from error
    if parses.format != _FORMAT:
        raise DataError(
            f"{where}: format is {one_line(repr(parses.format))}, need {_FORMAT!r}; delete it, then {_again(path)}"
        )
    return parses


def parse_dataset(path: str, pipeline: str, *, progress: ProgressSink) -> Parses:
    """Parse every caption of a data set, or find that done. Killed, the same call goes on at the unfinished split.

    ConfigError: no such pipeline. StorageError: the place cannot be written. StudyConflict: it has parses by another
    pipeline. DataError: damaged shards.
    """
    dataset = Dataset.open(path)
    dataset.check_files(dataset.manifest.splits)
    found = read_parses(path)
    if found is not None and _fits(found, dataset):
        if found.pipeline == pipeline:
            return found
        raise StudyConflict(
            f"{path}: has parses by {found.pipeline} already, networks trained on both do not compare; delete "
            f"{join(path, PARSES_FILE)} to replace them by {pipeline}."
        )
    arrays = {split: _parsed(dataset, split, pipeline, progress) for split in dataset.manifest.splits}
    parses = Parses(
        pipeline=pipeline, version=load_parser(pipeline).version,
        splits={split: _described(dataset, split, array) for split, array in arrays.items()},
    )
    _store(parses, {split: Path(str(getattr(array, "filename", ""))) for split, array in arrays.items()}, path)
    return parses


def copy_parses(folder: Path, prefix: str) -> None:
    """Copy the parses of a local data set, where it has some, to its copy under an s3:// prefix. StorageError."""
    parses = read_parses(str(folder))
    if parses is None:
        return
    there = join(prefix, PARSES_FILE)
    if storage.exists(there) and storage.read_bytes(there) == readable_json(parses.to_plain()):
        return
    _store(parses, {split: folder / info.file for split, info in parses.splits.items()}, prefix)


def word_heads(dataset: Dataset, split: str) -> np.ndarray:
    """(captions, words) int16 as `SplitParses` says. Mapped, read-only; of a remote data set copied here first.

    DataError, with the command that makes them, where there are no parses of these captions.
    """
    parses = read_parses(dataset.path)
    if parses is None:
        raise DataError(f"{dataset.path}: has no parses of its captions; add them: vsetune data parse {dataset.path}")
    info = parses.splits.get(split)
    if info is None or info.captions_fingerprint != captions_fingerprint(dataset, split):
        raise DataError(f"{dataset.path}: its parses are of other captions than split {split}; {_again(dataset.path)}")
    if info.captions != dataset.split(split).captions:
        raise DataError(
            f"{dataset.path}: its parses are of {info.captions} captions in {split}; {_again(dataset.path)}"
        )
    fetch = partial(_fetched, info, dataset.path)
    return cached_array(dataset.path, info.file, rows=info.captions, make=fetch, dtype=_DTYPE)


def joined_words(heads: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """(captions, L, L) bool over token positions: a parse joins two words; both orders, no diagonal.

    heads: (captions, words), rows of `word_heads`. lengths: (captions,) token ids, start and end included; L is the
    longest. Word w stands at position w + 1. DataError for a head beyond its caption.
    """
    heads = heads[:, : lengths.max()]
    caption, word = np.nonzero(heads >= 0)
    head = heads[caption, word].astype(np.int64)
    if (np.maximum(word, head) > lengths[caption] - 3).any():
        raise DataError("parses: a head stands beyond the words of its caption; make them again: vsetune data parse")
    joined = np.zeros((len(lengths), lengths.max(), lengths.max()), np.bool_)
    joined[caption, word + 1, head + 1] = True
    joined[caption, head + 1, word + 1] = True
    return joined


def parses_problems(dataset: Dataset, words: Mapping[str, Sequence[int]]) -> Iterator[str]:
    """What is wrong with the parses of a data set, one sentence each; nothing where it has none.

    words: how many each caption has, by split; of a damaged split those that could be read.
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
        yield f"{where}: has no parses of split {split}; {_again(path)}"
    for split, info in parses.splits.items():
        if split not in known or info.captions != known[split].captions:
            yield f"{where}: its split {one_line(split)} is not in the manifest; {_again(path)}"
            continue
        if info.captions_fingerprint != fingerprint_of_shards(known[split]):
            yield f"{where}: its split {split} is of other captions; {_again(path)}"
        try:
            heads = _fetched(info, path)
        except DataError as error:
            yield str(error)
            continue
        if len(words[split]) == len(heads) and not _are_of(heads, np.asarray(words[split])):
            yield f"{join(path, info.file)}: a head stands beyond the words of its caption; {_again(path)}"


def _are_of(heads: np.ndarray, words: np.ndarray) -> bool:
    """Every head, and every word that has one, is a word of its caption. words: (captions,) how many it has."""
    return all(
        (np.maximum(word, heads[caption, word]) < words[caption]).all()
        for start in range(0, len(heads), _ROWS_AT_ONCE)
        for caption, word in [_with_heads(heads, start)]
    )


def _with_heads(heads: np.ndarray, start: int) -> tuple[np.ndarray, np.ndarray]:
    caption, word = np.nonzero(heads[start : start + _ROWS_AT_ONCE] >= 0)
    return caption + start, word


def _fits(parses: Parses, dataset: Dataset) -> bool:
    """The parses are of the captions that the data set holds now."""
    made_of = {split: info.captions_fingerprint for split, info in parses.splits.items()}
    return made_of == {split: captions_fingerprint(dataset, split) for split in dataset.manifest.splits}


def _parsed(dataset: Dataset, split: str, pipeline: str, progress: ProgressSink) -> np.ndarray:
    """The array of a split, kept as soon as it is whole; found again by a name that says what it is made of."""
    captions = dataset.split(split).captions
    parser = load_parser(pipeline)

    def make() -> np.ndarray:
        progress.stage(f"parsing captions of {split}", captions)
        rows: list[np.ndarray | None] = []
        for heads in parser.heads(iter_words(dataset, split)):
            rows.append(heads)
            progress.advance(1)
        width = max((len(heads) for heads in rows if heads is not None), default=0)
        array = np.full((captions, max(1, width)), NO_HEAD, _DTYPE)  # an array without columns cannot be mapped
        for row, heads in zip(array, rows, strict=True):
            if heads is None:
                row[:] = NOT_PARSED
            else:
                row[: len(heads)] = heads
        return array

    made_of = sha256_hex(f"{pipeline} {parser.version} {captions_fingerprint(dataset, split)}".encode())[:12]
    return cached_array(dataset.path, f"parses-{split}-{made_of}.npy", rows=captions, make=make, dtype=_DTYPE)


def _described(dataset: Dataset, split: str, array: np.ndarray) -> SplitParses:
    file = Path(str(getattr(array, "filename", "")))
    digest = storage.sha256_of(str(file))
    if digest is None:
        raise StorageError(f"{dataset.path}: its parses cannot be written; choose a place with room and rights.")
    return SplitParses(
        file=file.name, sha256=digest, captions_fingerprint=captions_fingerprint(dataset, split), captions=len(array),
        pairs=int((array >= 0).sum()), not_parsed=int((array[:, 0] == NOT_PARSED).sum()),
    )


def _store(parses: Parses, files: dict[str, Path], path: str) -> None:
    """Arrays first, then the list of them. Those of a local data set stand there, unless the cache already had them."""
    if is_remote(path):
        for split, file in files.items():
            s3.upload(file, join(path, parses.splits[split].file))
        with tempfile.TemporaryDirectory() as folder:
            write_whole(Path(folder) / PARSES_FILE, readable_json(parses.to_plain()), durable=True)
            s3.upload(Path(folder) / PARSES_FILE, join(path, PARSES_FILE))
        return
    for file in files.values():
        if file.parent != Path(path):
            write_whole(Path(path) / file.name, file.read_bytes(), durable=True)
    write_whole(Path(path) / PARSES_FILE, readable_json(parses.to_plain()), durable=True)


def _fetched(info: SplitParses, path: str) -> np.ndarray:
    """The array, compared with its hash and counts. DataError when it is missing or another."""
    where = join(path, info.file)
    content = storage.read_inside(path, info.file, most=HEADER_BYTES + 2 * info.captions * MOST_CHARACTERS)
    if sha256_hex(content) != info.sha256:
        raise DataError(
            f"{where}: its SHA-256 is not the one of {PARSES_FILE}, the file was changed; restore it, or delete it and "
            f"{PARSES_FILE} and run: vsetune data parse {path}"
        )
    try:
        array = array_from_bytes(content)
    except Flaw as error:
        raise DataError(f"{where}: no plain array ({error}); {_again(path)}") from error
    if array.ndim != 2 or len(array) != info.captions or array.dtype != np.dtype(_DTYPE):
        raise DataError(
            f"{where}: is {array.shape} {array.dtype}, need ({info.captions}, words) {_DTYPE}; {_again(path)}"
        )
    return array


def _again(path: str) -> str:
    return f"make them again: vsetune data parse {path}"
