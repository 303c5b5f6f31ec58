"""Checked content of a shard: the same functions for training, for `vsetune data verify` and for inspection."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import BinaryIO

import numpy as np
from webdataset.tariterators import group_by_keys

from vsetune.config.spec.foreign_text import one_line
from vsetune.data.stored.dataset import wrong_size
from vsetune.data.stored.flaws import Flaw
from vsetune.data.stored.manifest import FeatureInfo, ShardInfo
from vsetune.data.stored.plain_arrays import HEADER_BYTES, array_from_bytes
from vsetune.data.stored.plain_json import is_text, parse_json
from vsetune.data.stored.tar_members import tar_members
from vsetune.errors import DataError

RECORD, FEATURES, BOXES = "json", "features.npy", "boxes.npy"
PHOTOGRAPHS = ("jpg", "png")
MOST_CHARACTERS = 20_000
"""Limit for the characters of a caption, and for its words: a longer text is not a caption, and every batch with it
would be padded to it."""

_RECORD_BYTES = 16 << 20
_PHOTOGRAPH_BYTES = 256 << 20
_BOX_BYTES = 16
_AGAIN = "ingest the data set again."
_INFINITE = np.uint16(0x7C00)
"""The exponent bits of float16: all set in infinities and NaN, in no other value."""


@dataclass(frozen=True)
class Record:
    """The JSON member. name: id as ingested, perhaps empty. tokens: the words of each caption."""

    name: str
    index: int
    first_caption: int
    captions: list[str]
    tokens: list[list[str]]

    @property
    def image_id(self) -> str:
        """The image's name in lists."""
        return self.name or f"{self.index:09d}"


def shard_samples(
    stream: BinaryIO, size: int, place: str, shard: ShardInfo, need: FeatureInfo, arrays: tuple[str, ...],
    *, one_of: tuple[str, ...] = (),
) -> Iterator[tuple[str, Record, dict[str, bytes]]]:
    """(place of the sample, its record, {suffix: content}) of each image of a shard, in the order of the manifest.

    size: length of the stream in bytes. place: of the shard. Each sample has a record and all the arrays, and at least
    one of `one_of` if that is given; other members are skipped. Flaw for a problem of the shard, DataError for a
    problem of a record.
    """
    if size != shard.bytes:
        raise wrong_size(size, shard)
    images = captions = 0
    for key, members in _samples(stream, need, (RECORD, *arrays), one_of):
        if images == shard.images:
            raise Flaw(f"holds more images than the {shard.images} of the manifest")
        where = f"{place}: sample {key}"
        record = _record(where, members)
        found = (record.index, record.first_caption)
        expected = (shard.first_image + images, shard.first_caption + captions)
        if found != expected:
            raise Flaw(f"sample {key} is (image, caption) {one_line(found)}, need {expected}")
        images, captions = images + 1, captions + len(record.captions)
        yield where, record, members
    if images != shard.images:
        raise Flaw(f"holds {images} images, the manifest says {shard.images}")
    if captions != shard.captions:
        raise Flaw(f"holds {captions} captions, the manifest says {shard.captions}")


def _samples(
    stream: BinaryIO, need: FeatureInfo, suffixes: tuple[str, ...], one_of: tuple[str, ...]
) -> Iterator[tuple[str, dict[str, bytes]]]:
    array_bytes = HEADER_BYTES + need.regions * need.width * np.dtype(need.dtype).itemsize
    most = {RECORD: _RECORD_BYTES, FEATURES: array_bytes, BOXES: HEADER_BYTES + need.regions * _BOX_BYTES}
    wanted = (*suffixes, *one_of)

    def limit(name: str) -> int | None:
        suffix = name.rpartition("/")[2].partition(".")[2].lower()
        return most.get(suffix, _PHOTOGRAPH_BYTES) if suffix in wanted else None

    members = tar_members(stream, limit=limit)
    try:
        for sample in group_by_keys({"fname": name, "data": content, "__url__": ""} for name, content in members):
            key = sample["__key__"]
            missing = [suffix for suffix in suffixes if suffix not in sample]
            if missing:
                raise Flaw(f"sample {key} has no .{missing[0]} member")
            if one_of and not any(suffix in sample for suffix in one_of):
                raise Flaw(f"sample {key} has no .{' or .'.join(one_of)} member")
            yield key, sample
    except ValueError as error:  # from group_by_keys, for a repeated member
        raise Flaw(one_line(error.args[0] if error.args else error)) from error


def _record(where: str, members: dict[str, bytes]) -> Record:
    """The JSON member, with images and captions in the form that ingest writes."""
    plain = parse_json(members[RECORD], where=f"{where}: .{RECORD}", fix=_AGAIN)
    found = plain if isinstance(plain, dict) else {}
    captions, tokens = found.get("captions"), found.get("tokens")
    index, first_caption, name = found.get("index"), found.get("first_caption"), found.get("image", "")
    if (
        isinstance(captions, list) and isinstance(tokens, list) and len(captions) == len(tokens) > 0
        and all(map(_is_caption, captions)) and all(map(_are_words, tokens)) and is_text(name)
        and type(index) is int and type(first_caption) is int
    ):
        return Record(name, index, first_caption, captions, tokens)
    raise DataError(
        f"{where}: .{RECORD} needs captions and tokens of equal number (text, up to {MOST_CHARACTERS:,} characters), "
        f"index and first_caption; {_AGAIN}"
    )


def features_of(where: str, members: dict[str, bytes], need: FeatureInfo) -> np.ndarray:
    """(regions, width) as stored, finite, read-only."""
    array = _array(where, members, FEATURES)
    fits = array.ndim == 2 and need.regions_min <= len(array) <= need.regions and array.shape[1] == need.width
    if not fits or array.dtype != np.dtype(need.dtype):
        fewest = "" if need.regions_min == need.regions else f"{need.regions_min} to "
        raise DataError(
            f"{where}: features are {array.shape} {array.dtype}, the manifest says ({fewest}{need.regions}, "
            f"{need.width}) {need.dtype}; {_AGAIN}"
        )
    if not _are_finite(array):
        raise DataError(f"{where}: features are not all finite, need finite {need.dtype}; {_AGAIN}")
    return array


def boxes_of(where: str, members: dict[str, bytes], regions: int) -> np.ndarray:
    """(regions, 4) float32 x1, y1, x2, y2, 0 to 1 of the image."""
    array = _array(where, members, BOXES)
    if array.shape != (regions, 4) or array.dtype != np.float32 or not ((array >= 0) & (array <= 1)).all():
        raise DataError(
            f"{where}: boxes are {array.shape} {array.dtype}, need ({regions}, 4) float32 from 0 to 1 (x by the width "
            f"of the image, y by its height); {_AGAIN}"
        )
    return array


def photograph_of(members: dict[str, bytes]) -> bytes:
    """The encoded photograph of a sample that has one."""
    return next(members[suffix] for suffix in PHOTOGRAPHS if suffix in members)


def _array(where: str, members: dict[str, bytes], suffix: str) -> np.ndarray:
    try:
        return array_from_bytes(members[suffix])
    except Flaw as error:
        raise DataError(f"{where}: .{suffix} is no plain array ({error}); {_AGAIN}") from error


def _are_finite(array: np.ndarray) -> bool:
    if array.dtype == np.float16:
        return not ((array.view(np.uint16) & _INFINITE) == _INFINITE).any()
    return bool(np.isfinite(array).all())


def _is_caption(text: object) -> bool:
    return is_text(text) and len(str(text)) <= MOST_CHARACTERS


def _are_words(words: object) -> bool:
    return isinstance(words, list) and len(words) <= MOST_CHARACTERS and all(map(is_text, words))
