"""Checks a stored data set against its manifest: hashes, counts, order, decodable members."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, cast

from vsetune.data.batches.pixels import decoded
from vsetune.data.captions.parse_checks import parses_problems
from vsetune.data.stored import storage
from vsetune.data.stored.array_cache import damaged_arrays
from vsetune.data.stored.dataset import Dataset, check_first, damaged_shard, load_manifest, wrong_hash, wrong_size
from vsetune.data.stored.manifest import Manifest, ShardInfo
from vsetune.data.stored.samples import BOXES, FEATURES, PHOTOGRAPHS, boxes_of, features_of, photograph_of
from vsetune.data.stored.shards import Photograph, checked_records
from vsetune.data.stored.vocabulary import SPECIAL_WORDS, Vocabulary
from vsetune.errors import DataError
from vsetune.files.hashes import HashingReader
from vsetune.files.whole_files import partials_in
from vsetune.object_storage.addresses import is_remote, join
from vsetune.object_storage.s3 import NothingThere


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


def verify(path: str) -> list[str]:
    """Read everything once and list the problems, one sentence each.

    The checks read data through the functions that training uses, so data that passes here can be read there. For an
    s3:// prefix the objects themselves are read, never this node's copies, which may be sound when the objects no
    longer are.
    DataError when there is no manifest, StorageError when a file cannot be reached.
    """
    manifest = load_manifest(path)
    problems: list[str] = []
    try:
        dataset = Dataset.open(path)
    except DataError as error:
        problems.append(str(error))
        dataset = Dataset(path, manifest, Vocabulary(SPECIAL_WORDS))
    words: dict[str, list[int]] = {}
    for name, split in manifest.splits.items():
        problems += dataset.count_problems(name, split)
        words[name] = []
        for shard in split.shards:
            problems += _shard_problems(dataset, shard, words[name])
    problems += parses_problems(dataset, words)
    problems += [] if is_remote(path) else damaged_arrays(Path(path))
    return [problem.replace(check_first(dataset.path), "") for problem in [*problems, *_unlisted(path, manifest)]]


def _shard_problems(dataset: Dataset, shard: ShardInfo, words: list[int]) -> Iterator[str]:
    """Problems of one shard. words: receives the number of words of each caption."""
    try:
        stream, size = storage.open_inside(dataset.path, shard.file)
    except NothingThere:
        yield str(dataset.missing(shard))
        return
    except DataError as error:
        yield str(error)
        return
    with stream:
        if size != shard.bytes:
            yield str(damaged_shard(dataset.path, shard, wrong_size(size, shard)))
            return
        hashing = HashingReader(stream)
        try:
            _read_all(dataset, cast(BinaryIO, hashing), size, shard, words)
        except DataError as error:
            yield str(error)
        hashing.drain()
    if hashing.sha256 != shard.sha256:
        yield str(damaged_shard(dataset.path, shard, wrong_hash()))


def _read_all(dataset: Dataset, stream: BinaryIO, size: int, shard: ShardInfo, words: list[int]) -> None:
    """Read a shard to its end. DataError for the first problem of its content."""
    manifest = dataset.manifest
    arrays = (FEATURES, BOXES) if manifest.features.boxes else (FEATURES,)
    one_of = PHOTOGRAPHS if manifest.images_stored else ()
    for place, record, members in checked_records(dataset, shard, stream, size, arrays, one_of=one_of):
        words.extend(map(len, record.tokens))
        features = features_of(place, members, manifest.features)
        if manifest.features.boxes:
            boxes_of(place, members, len(features))
        if manifest.images_stored:
            decoded(Photograph(photograph_of(members), place))


def _unlisted(path: str, manifest: Manifest) -> list[str]:
    """Messages for tar files and partial files in a local folder that the manifest does not list."""
    if is_remote(path):
        return []
    known = {shard.file for split in manifest.splits.values() for shard in split.shards}
    found = sorted(file.name for file in [*Path(path).glob("*.tar"), *partials_in(Path(path))])
    return [
        f"{join(path, name)}: not in the manifest; remove it, unless the manifest is what was changed."
        for name in found if name not in known
    ]
