"""Samples of one shard, checked against the manifest.

Shards come from other people: members are JSON and plain arrays, never pickles, and the address is opened by
`storage`, never by a shell.
"""

from __future__ import annotations

import io
import json
import tarfile
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from webdataset.tariterators import group_by_keys, tar_file_iterator

from vsetune.data import storage
from vsetune.data.dataset import Dataset
from vsetune.data.manifest import ShardInfo
from vsetune.data.tokens import mirrored_words, with_case
from vsetune.errors import DataError

_CAPTIONS = "json"
_FEATURES = "features.npy"
_BOXES = "boxes.npy"
_PHOTOGRAPHS = ("jpg", "png")


@dataclass(frozen=True)
class Photograph:
    """An encoded image (JPEG or PNG), not decoded yet. place: shard and sample, for messages."""

    content: bytes
    place: str


@dataclass(frozen=True)
class ImageSample:
    """One image with its captions. features: (regions, width) as stored; tokens: one int64 array per caption.

    Instead of its features (then one region of width 0) an image may bring its photograph; mirrored_tokens are then the
    captions of the mirrored photograph, or None where they were not asked for.
    boxes: (regions, 4) float32 x1, y1, x2, y2, 0 to 1 of the image; None where they were not read.
    """

    index: int
    first_caption: int
    features: np.ndarray
    tokens: list[np.ndarray]
    boxes: np.ndarray | None = None
    photograph: Photograph | None = None
    mirrored_tokens: list[np.ndarray] | None = None


def read_shard(
    dataset: Dataset, shard: ShardInfo, *, boxes: bool = False, images: bool = False, mirrored: bool = False
) -> Iterator[ImageSample]:
    """All images of a shard in order. DataError when it is damaged or does not hold what the manifest says.

    boxes: read them too, where the data set has them. images: read the stored photographs instead of features and
    boxes. mirrored: also the captions of mirrored images.
    """
    boxes = boxes and dataset.manifest.features.boxes and not images
    captions = 0
    arrays = () if images else (_FEATURES, _BOXES) if boxes else (_FEATURES,)
    samples = _samples(dataset, shard, (_CAPTIONS, *arrays), one_of=_PHOTOGRAPHS if images else ())
    for position, (key, members) in enumerate(samples):
        where = f"{dataset.shard_url(shard.file)}: sample {key}"
        described = _described(where, members)
        expected = (shard.first_image + position, shard.first_caption + captions)
        found = (described["index"], described["first_caption"])
        if found != expected:
            raise _damaged(dataset, shard, f"sample {key} is (image, caption) {found}, need {expected}")
        tokens = _encoded(dataset, described["tokens"])
        captions += len(tokens)
        if images:
            turned = _encoded(dataset, map(mirrored_words, described["tokens"])) if mirrored else None
            yield ImageSample(*found, _NO_FEATURES, tokens, None, _photograph(where, members), turned)
            continue
        features = _features(dataset, where, members)
        yield ImageSample(*found, features, tokens, _boxes(where, members, len(features)) if boxes else None)
    _check_captions(dataset, shard, captions)


_NO_FEATURES = np.empty((1, 0), np.float16)


def _encoded(dataset: Dataset, captions: Iterable[list[str]]) -> list[np.ndarray]:
    return [np.asarray(dataset.vocabulary.encode(words), np.int64) for words in captions]


def _photograph(where: str, members: dict[str, bytes]) -> Photograph:
    return Photograph(next(members[suffix] for suffix in _PHOTOGRAPHS if suffix in members), where)


def read_captions(dataset: Dataset, shard: ShardInfo) -> Iterator[list[str]]:
    """The captions of each image of a shard, as text, in order; image features are not read."""
    captions = 0
    for key, members in _samples(dataset, shard, (_CAPTIONS,)):
        texts = _described(f"{dataset.shard_url(shard.file)}: sample {key}", members)["captions"]
        captions += len(texts)
        yield texts
    _check_captions(dataset, shard, captions)


def read_image_ids(dataset: Dataset, shard: ShardInfo) -> Iterator[tuple[str, int]]:
    """(id as ingested, number of captions) of each image of a shard, in order."""
    for key, members in _samples(dataset, shard, (_CAPTIONS,)):
        described = _described(f"{dataset.shard_url(shard.file)}: sample {key}", members)
        yield str(described.get("image", key)), len(described["captions"])


def iter_captions(dataset: Dataset, split: str) -> Iterator[str]:
    """Every caption of a split, in the order of caption ids."""
    for shard in dataset.split(split).shards:
        for texts in read_captions(dataset, shard):
            yield from texts


def iter_words(dataset: Dataset, split: str) -> Iterator[list[str]]:
    """The words of every caption, one per token id but start and end, as they are written; in order of caption ids."""
    for shard in dataset.split(split).shards:
        for key, members in _samples(dataset, shard, (_CAPTIONS,)):
            described = _described(f"{dataset.shard_url(shard.file)}: sample {key}", members)
            yield from map(with_case, described["tokens"], described["captions"])


def _samples(
    dataset: Dataset, shard: ShardInfo, suffixes: tuple[str, ...], *, one_of: tuple[str, ...] = ()
) -> Iterator[tuple[str, dict[str, bytes]]]:
    """(key, {suffix: content}) of each sample; exactly as many as the manifest says.

    A sample has all the suffixes, and where some are given at least one of `one_of`.
    """
    url = dataset.shard_url(shard.file)
    endings = tuple(f".{suffix}" for suffix in (*suffixes, *one_of))
    count = 0
    with storage.open_stream(url) as stream:
        members = tar_file_iterator(stream, select_files=lambda name: name.endswith(endings))
        grouped = group_by_keys({**member, "__url__": url} for member in members)
        while True:
            try:
                sample = next(grouped, None)
            except (tarfile.TarError, OSError, EOFError, ValueError, zlib.error) as error:
                # webdataset appends stream addresses to the text of the errors that pass through it
                reason = str(error.args[0] if error.args else error).partition(" @ <")[0]
                raise _damaged(dataset, shard, reason) from error
            if sample is None:
                break
            count += 1
            if count > shard.images:
                raise _damaged(dataset, shard, f"holds more images than the {shard.images} of the manifest")
            key = sample["__key__"]
            missing = [suffix for suffix in suffixes if suffix not in sample]
            if missing:
                raise _damaged(dataset, shard, f"sample {key} has no .{missing[0]} member")
            if one_of and not any(suffix in sample for suffix in one_of):
                raise _damaged(dataset, shard, f"sample {key} has no .{' or .'.join(one_of)} member")
            yield key, sample
    if count != shard.images:
        raise _damaged(dataset, shard, f"holds {count} images, the manifest says {shard.images}")


def _described(where: str, members: dict[str, bytes]) -> dict[str, Any]:
    """The JSON member, its shape checked so far as the reader relies on it."""
    try:
        described = json.loads(members[_CAPTIONS])
    except ValueError as error:
        raise DataError(f"{where}: .{_CAPTIONS} is not JSON ({error}); ingest the data set again.") from error
    try:
        texts, tokens = described["captions"], described["tokens"]
        is_sound = (
            len(texts) == len(tokens) > 0
            and all(isinstance(text, str) for text in texts)
            and all(isinstance(words, list) and all(isinstance(word, str) for word in words) for words in tokens)
            and all(type(described[name]) is int for name in ("index", "first_caption"))
        )
    except (KeyError, TypeError, AttributeError):
        is_sound = False
    if not is_sound:
        raise DataError(
            f"{where}: .{_CAPTIONS} needs captions and tokens of equal number, index and first_caption; ingest the "
            "data set again."
        )
    return described  # type: ignore[no-any-return]


def _array(where: str, members: dict[str, bytes], suffix: str) -> np.ndarray:
    try:
        # read_array, unlike np.load, has no other formats to fall back to
        return np.lib.format.read_array(io.BytesIO(members[suffix]), allow_pickle=False)
    except (ValueError, EOFError, OSError, MemoryError) as error:
        raise DataError(
            f"{where}: .{suffix} is no plain array ({error}); pickles are refused, ingest the data set again."
        ) from error


def _boxes(where: str, members: dict[str, bytes], regions: int) -> np.ndarray:
    array = _array(where, members, _BOXES)
    if array.shape != (regions, 4) or array.dtype != np.float32 or not ((array >= 0) & (array <= 1)).all():
        raise DataError(
            f"{where}: boxes are {array.shape} {array.dtype}, need ({regions}, 4) float32 from 0 to 1 (x by the width "
            "of the image, y by its height); ingest the data set again."
        )
    return array


def _features(dataset: Dataset, where: str, members: dict[str, bytes]) -> np.ndarray:
    array = _array(where, members, _FEATURES)
    need = dataset.manifest.features
    fits = array.ndim == 2 and need.regions_min <= len(array) <= need.regions and array.shape[1] == need.width
    if not fits or array.dtype != np.dtype(need.dtype):
        fewest = "" if need.regions_min == need.regions else f"{need.regions_min} to "
        raise DataError(
            f"{where}: features are {array.shape} {array.dtype}, the manifest says ({fewest}{need.regions}, "
            f"{need.width}) {need.dtype}; ingest the data set again."
        )
    return array


def _check_captions(dataset: Dataset, shard: ShardInfo, found: int) -> None:
    if found != shard.captions:
        raise _damaged(dataset, shard, f"holds {found} captions, the manifest says {shard.captions}")


def _damaged(dataset: Dataset, shard: ShardInfo, reason: str) -> DataError:
    return DataError(
        f"{dataset.shard_url(shard.file)}: damaged shard ({reason}); check with `vsetune data verify {dataset.path}`, "
        "then copy it back or ingest the data set again."
    )
