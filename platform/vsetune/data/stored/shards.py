"""Samples of one shard, checked against the manifest.

Shards come from other people: members are JSON and plain arrays, never pickles, and the address is opened by
`storage`, never by a shell.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from typing import BinaryIO, cast

import numpy as np

from vsetune.config.sources.network_reads import NetworkReads
from vsetune.data.stored.dataset import Dataset, damaged_shard, wrong_hash
from vsetune.data.stored.flaws import Flaw
from vsetune.data.stored.manifest import ShardInfo
from vsetune.data.stored.samples import (
    BOXES,
    FEATURES,
    PHOTOGRAPHS,
    Record,
    boxes_of,
    features_of,
    photograph_of,
    shard_samples,
)
from vsetune.data.stored.tokens import mirrored_words, with_case
from vsetune.errors import DataError
from vsetune.files.hashes import HashingReader
from vsetune.object_storage.node_cache import WrongContent


@dataclass(frozen=True)
class Photograph:
    """An encoded image (JPEG or PNG), not decoded yet. place: shard and sample, for messages."""

    content: bytes
    place: str


@dataclass(frozen=True)
class ImageSample:
    """One image with its captions. features: (regions, width) as stored; tokens: one int64 array per caption.

    An image may have its photograph instead of its features (then one region of width 0); mirrored_tokens are then the
    captions of the mirrored photograph, or None if not requested.
    boxes: (regions, 4) float32 x1, y1, x2, y2, 0 to 1 of the image; None if they were not read.
    """

    index: int
    first_caption: int
    features: np.ndarray
    tokens: list[np.ndarray]
    boxes: np.ndarray | None = None
    photograph: Photograph | None = None
    mirrored_tokens: list[np.ndarray] | None = None


def read_shard(
    dataset: Dataset, shard: ShardInfo, *, reads: NetworkReads, mirrored: bool = False, hashed: bool = False
) -> Iterator[ImageSample]:
    """All images of a shard in order. DataError when it is damaged or differs from the manifest.

    reads: boxes, or photographs instead of features and boxes; data outside the shards is not read. mirrored: for
    photographs, also the captions of the mirrored ones. hashed: compare its SHA-256 too, at its end; a shard of an
    s3:// prefix is always compared if this node caches it.
    """
    info, images = dataset.manifest.features, reads.pixels is not None
    boxes = reads.boxes and info.boxes and not images
    arrays = () if images else (FEATURES, BOXES) if boxes else (FEATURES,)
    one_of = PHOTOGRAPHS if images else ()
    for where, record, members in _records(dataset, shard, arrays, one_of=one_of, hashed=hashed):
        tokens = _encoded(dataset, record.tokens)
        if images:
            turned = _encoded(dataset, map(mirrored_words, record.tokens)) if mirrored else None
            photograph = Photograph(photograph_of(members), where)
            yield ImageSample(record.index, record.first_caption, _NO_FEATURES, tokens, None, photograph, turned)
            continue
        features = features_of(where, members, info)
        placed = boxes_of(where, members, len(features)) if boxes else None
        yield ImageSample(record.index, record.first_caption, features, tokens, placed)


_NO_FEATURES = np.empty((1, 0), np.float16)


def _encoded(dataset: Dataset, captions: Iterable[list[str]]) -> list[np.ndarray]:
    return [np.asarray(dataset.vocabulary.encode(words), np.int64) for words in captions]


def read_some(
    dataset: Dataset, shard: ShardInfo, wanted: Collection[int]
) -> Iterator[tuple[Record, np.ndarray | None, Photograph | None]]:
    """(record, boxes, photograph) of the images with these indices, in order; reading stops after the last one.

    boxes as in `ImageSample`; None if the data set stores none, likewise the photograph.
    """
    info, are_stored = dataset.manifest.features, dataset.manifest.images_stored
    arrays = (FEATURES, BOXES) if info.boxes else ()
    for where, record, members in _records(dataset, shard, arrays, one_of=PHOTOGRAPHS if are_stored else ()):
        if record.index in wanted:
            boxes = boxes_of(where, members, len(features_of(where, members, info))) if info.boxes else None
            yield record, boxes, Photograph(photograph_of(members), where) if are_stored else None
        if record.index >= max(wanted):
            return


def iter_captions(dataset: Dataset, split: str) -> Iterator[str]:
    """Every caption of a split, in the order of caption ids."""
    for _, record in split_records(dataset, split):
        yield from record.captions


def iter_words(dataset: Dataset, split: str) -> Iterator[list[str]]:
    """The words of every caption as written, one per token id except start and end; in order of caption ids."""
    for _, record in split_records(dataset, split):
        yield from map(with_case, record.tokens, record.captions)


def split_records(dataset: Dataset, split: str) -> Iterator[tuple[str, Record]]:
    """(place for messages, record) of every image of a split, in order; arrays and photographs are skipped.

    Hashes are compared: data derived from captions is stored under the manifest's hashes, and would outlast the damage.
    """
    with dataset.fetched_ahead(dataset.split(split).shards) as shards:
        for shard in shards:
            for where, record, _ in _records(dataset, shard, hashed=True):
                yield where, record


def checked_records(
    dataset: Dataset, shard: ShardInfo, stream: BinaryIO, size: int, arrays: tuple[str, ...], *,
    one_of: tuple[str, ...] = (),
) -> Iterator[tuple[str, Record, dict[str, bytes]]]:
    """`shard_samples` of an opened shard of this data set; damage is raised as a DataError with the fix."""
    place, info = dataset.shard_url(shard.file), dataset.manifest.features
    try:
        yield from shard_samples(stream, size, place, shard, info, arrays, one_of=one_of)
    except Flaw as error:
        raise damaged_shard(dataset.path, shard, error) from error


def _records(
    dataset: Dataset, shard: ShardInfo, arrays: tuple[str, ...] = (), *, one_of: tuple[str, ...] = (),
    hashed: bool = False,
) -> Iterator[tuple[str, Record, dict[str, bytes]]]:
    """(place for messages, record, members) of each sample in order, counted against the manifest."""
    stream, size = dataset.open_shard(shard)
    with stream:
        hashing = HashingReader(stream) if hashed else None
        source = stream if hashing is None else cast(BinaryIO, hashing)
        try:
            yield from checked_records(dataset, shard, source, size, arrays, one_of=one_of)
            if hashing is not None:
                hashing.drain()
                if hashing.sha256 != shard.sha256:
                    raise damaged_shard(dataset.path, shard, wrong_hash())
        except WrongContent as error:
            raise damaged_shard(dataset.path, shard, Flaw(error.reason)) from error
        except DataError:
            dataset.require_sound_copy(shard)
            raise
