"""Checks a stored data set against its manifest: hashes, counts, order, decodable members, parses."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, cast

import numpy as np

from vsetune.data.batches.pixels import decoded
from vsetune.data.captions.parse_files import SplitParses, again, fetched_array
from vsetune.data.captions.parses import PARSES_OTHER_CAPTIONS, read_parses
from vsetune.data.captions.phrase_rules import decoded as phrases_of
from vsetune.data.stored.array_cache import damaged_arrays
from vsetune.data.stored.dataset import Dataset, damaged_shard, load_manifest, without_check, wrong_hash, wrong_size
from vsetune.data.stored.manifest import Manifest, ShardInfo
from vsetune.data.stored.plain_files import Flaw
from vsetune.data.stored.shards import (
    BOXES,
    FEATURES,
    PHOTOGRAPHS,
    Photograph,
    boxes_of,
    caption_records,
    features_of,
    photograph_of,
    records_in,
)
from vsetune.data.stored.storage import MISFIT
from vsetune.data.stored.vocabulary import SPECIAL_WORDS, Vocabulary
from vsetune.errors import DataError, Problem, one_line
from vsetune.home.addresses import is_remote, join
from vsetune.home.hashes import HashingReader
from vsetune.home.s3 import NothingThere
from vsetune.home.whole_files import partials_in


@dataclass(frozen=True)
class SplitSummary:
    """One line of `summary`: a split with its totals."""

    split: str
    images: int
    captions: int
    captions_min: int
    captions_mean: float
    captions_max: int
    shards: int
    bytes: int


def summary(path: str) -> list[SplitSummary]:
    """Totals of each split, from the manifest alone. DataError."""
    return [
        SplitSummary(
            name, split.images, split.captions, split.captions_min, split.captions_mean, split.captions_max,
            len(split.shards), sum(shard.bytes for shard in split.shards),
        )
        for name, split in load_manifest(path).splits.items()
    ]


def verify(path: str) -> list[Problem]:
    """Read everything once and list the problems, one sentence each.

    The checks read data through the functions that training uses, so data that passes here can be read there. For an
    s3:// prefix the objects themselves are read, never this node's copies, which may be sound when the objects no
    longer are.
    DataError when there is no manifest, StorageError when a file cannot be reached.
    """
    manifest = load_manifest(path)
    problems: list[Problem] = []
    try:
        dataset = Dataset.open(path)
    except DataError as error:
        problems.append(error.problem)
        dataset = Dataset(path, manifest, Vocabulary(SPECIAL_WORDS))
    words: dict[str, list[int]] = {}
    for name, split in manifest.splits.items():
        problems += dataset.count_problems(name, split)
        words[name] = []
        for shard in split.shards:
            problems += _shard_problems(dataset, shard, words[name])
    problems += parses_problems(dataset, words)
    problems += [] if is_remote(path) else damaged_arrays(Path(path))
    return [without_check(problem, dataset.path) for problem in [*problems, *_unlisted(path, manifest)]]


def _shard_problems(dataset: Dataset, shard: ShardInfo, words: list[int]) -> Iterator[Problem]:
    """Problems of one shard. words: receives the number of words of each caption."""
    try:
        stream, size = dataset.open_original(shard)
    except NothingThere:
        yield dataset.missing(shard).problem
        return
    except DataError as error:
        yield error.problem
        return
    with stream:
        if size != shard.bytes:
            yield damaged_shard(dataset.path, shard, wrong_size(size, shard)).problem
            return
        hashing = HashingReader(stream)
        try:
            _read_all(dataset, cast(BinaryIO, hashing), size, shard, words)
        except Flaw as error:
            yield damaged_shard(dataset.path, shard, error).problem
        except DataError as error:
            yield error.problem
        hashing.drain()
    if hashing.sha256 != shard.sha256:
        yield damaged_shard(dataset.path, shard, wrong_hash()).problem


def _read_all(dataset: Dataset, stream: BinaryIO, size: int, shard: ShardInfo, words: list[int]) -> None:
    """Read a shard to its end. Flaw or DataError for the first problem of its content."""
    manifest = dataset.manifest
    arrays = (FEATURES, BOXES) if manifest.features.boxes else (FEATURES,)
    one_of = PHOTOGRAPHS if manifest.images_stored else ()
    texts = iter(()) if shard.outside is None else caption_records(dataset, shard, shard.outside)
    for place, record, members in records_in(dataset, shard, stream, size, arrays, one_of=one_of):
        words.extend(map(len, record.tokens))
        if shard.outside is not None and next(texts, ("", None))[1] != record:
            raise DataError(MISFIT(
                where=join(dataset.path, shard.outside.texts), found="other captions", need=f"those of {place}",
                fix="index the shards again.",
            ))
        if shard.outside is None:
            features = features_of(place, members, manifest.features)
            if manifest.features.boxes:
                boxes_of(place, members, len(features))
        if manifest.images_stored:
            decoded(Photograph(photograph_of(members), place))


def _unlisted(path: str, manifest: Manifest) -> list[Problem]:
    """Messages for tar files and partial files in a local folder that the manifest does not list."""
    if is_remote(path):
        return []
    known = {shard.file for split in manifest.splits.values() for shard in split.shards}
    found = sorted(file.name for file in [*Path(path).glob("*.tar"), *partials_in(Path(path))])
    return [Problem.of(
        "VSE-D027", "{file}: not in the manifest; remove it, unless the manifest is wrong.", file=join(path, name)
    ) for name in found if name not in known]


_ROWS_AT_ONCE = 4096


def parses_problems(dataset: Dataset, words: Mapping[str, Sequence[int]]) -> Iterator[Problem]:
    """Problems of a data set's parses, one sentence each; none if it has no parses.

    words: number of words of each caption, by split; for a damaged split only of the captions that could be read.
    """
    path, known = dataset.path, dataset.manifest.splits
    try:
        parses = read_parses(path)
    except DataError as error:
        yield error.problem
        return
    if parses is None:
        return
    for split in known.keys() - parses.splits.keys():
        yield PARSES_OTHER_CAPTIONS(folder=path, split=split, fix=again(path))
    for split, info in parses.splits.items():
        if split not in known or info.captions != known[split].captions:
            yield PARSES_OTHER_CAPTIONS(folder=path, split=one_line(split), fix=again(path))
            continue
        if info.captions_fingerprint != known[split].captions_fingerprint:
            yield PARSES_OTHER_CAPTIONS(folder=path, split=split, fix=again(path))
        yield from _array_problems(info, np.asarray(words[split]), path)


def _array_problems(info: SplitParses, words: np.ndarray, path: str) -> Iterator[Problem]:
    """Problems of the arrays of a split. words: of each caption; fewer if some could not be read."""
    try:
        heads = fetched_array(info, info.captions, path)
        if len(words) == len(heads) and not _are_of(heads, words):
            yield Problem.of(
                "VSE-D082", "parses: a head is beyond the words of its caption; make them again: vsetune data parse"
            ).at(join(path, info.file))
    except DataError as error:
        yield error.problem
    if info.phrases is None:
        return
    try:
        codes = fetched_array(info.phrases, info.captions, path)
        for row, count in zip(codes, words.tolist() if len(words) == len(codes) else [], strict=False):
            phrases_of(row, words=count)
    except DataError as error:
        place, problem = join(path, info.phrases.file), error.problem
        fix = again(path, phrases=True)
        yield problem if problem.startswith(path) else problem.worded(f"{place}: {problem}; {fix}")


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
