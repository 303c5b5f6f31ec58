"""Samples of a shard, checked against the manifest: the same for training, verification and inspection."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from pathlib import PurePosixPath
from tarfile import TarInfo
from typing import BinaryIO, cast

import numpy as np

from vsetune.config.sources.trial_inputs import NetworkReads
from vsetune.data.stored import storage
from vsetune.data.stored.dataset import Dataset, damaged_shard, wrong_hash, wrong_size
from vsetune.data.stored.manifest import MANIFEST_FILE, FeatureInfo, OutsideShard, ShardInfo
from vsetune.data.stored.outside_shards import MOST_CHARACTERS, outside_samples, texts_in
from vsetune.data.stored.plain_files import HEADER_BYTES, Flaw, array_from_bytes, is_text, parse_json
from vsetune.data.stored.storage import MISFIT, OTHER_HASH
from vsetune.data.stored.tar_members import Limit, tar_members
from vsetune.data.stored.vocabulary import mirrored_words, tokenise, with_case
from vsetune.errors import DataError, Message, one_line
from vsetune.home.addresses import join
from vsetune.home.hashes import HashingReader, sha256_hex
from vsetune.home.s3 import NothingThere

NO_FEATURES = Message(
    "VSE-D094", "{folder}: its shards have photographs and no features; name a network that reads photographs, or "
    "ingest the images with an extractor.",
)


@dataclass(frozen=True)
class Photograph:
    """An encoded image (JPEG or PNG), not decoded yet. place: shard and sample, for messages."""

    content: bytes
    place: str


@dataclass(frozen=True)
class ImageSample:
    """One image with its captions. features: (regions, width) as stored; tokens: one int64 array per caption, without
    ids if the network reads word pieces.

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
    dataset: Dataset, shard: ShardInfo, *, reads: NetworkReads, hashed: bool = False
) -> Iterator[ImageSample]:
    """All images of a shard in order. DataError when it is damaged or differs from the manifest.

    reads: what the network needs. With pixels, photographs are read instead of features and boxes; if a mirrored one
    has other captions, these are made too. Data outside the shards is not read. hashed: compare its SHA-256 too, at its
    end; a shard of an s3:// prefix is always compared if this node caches it.
    """
    info, images = dataset.manifest.features, reads.pixels is not None
    if not images and not info.width:
        raise DataError(NO_FEATURES(folder=dataset.path))
    boxes = reads.boxes and info.boxes and not images
    arrays = () if images else (FEATURES, BOXES) if boxes else (FEATURES,)
    one_of = PHOTOGRAPHS if images else ()
    reads_words = reads.word_pieces is None or reads.phrases
    reads_turned = reads_words and reads.swaps_sides
    for where, record, members in _records(dataset, shard, arrays, one_of=one_of, hashed=hashed):
        tokens = _encoded(dataset, record.tokens) if reads_words else [_NO_IDS] * len(record.captions)
        if images:
            turned = _encoded(dataset, map(mirrored_words, record.tokens)) if reads_turned else None
            photograph = Photograph(photograph_of(members), where)
            yield ImageSample(record.index, record.first_caption, _NO_FEATURES, tokens, None, photograph, turned)
            continue
        features = features_of(where, members, info)
        placed = boxes_of(where, members, len(features)) if boxes else None
        yield ImageSample(record.index, record.first_caption, features, tokens, placed)


_NO_FEATURES = np.empty((1, 0), np.float16)
_NO_IDS = np.empty(0, np.int64)
"""Words of a caption whose word pieces are read, from a table of the split."""


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
    listed = dataset.split(split).shards
    with dataset.fetched_ahead([shard for shard in listed if shard.outside is None]) as ahead:
        coming = iter(ahead)
        for shard in listed:
            if shard.outside is not None:
                yield from caption_records(dataset, shard, shard.outside)
                continue
            for where, record, _ in _records(dataset, next(coming), hashed=True):
                yield where, record


def records_in(
    dataset: Dataset, shard: ShardInfo, stream: BinaryIO, size: int, arrays: tuple[str, ...], *,
    one_of: tuple[str, ...] = (),
) -> Iterator[tuple[str, Record, dict[str, bytes]]]:
    """`shard_samples` of an opened shard of this data set, also of one that other software wrote. Errors as there."""
    place, info = dataset.shard_url(shard), dataset.manifest.features
    if shard.outside is not None:
        return _outside_records(stream, size, place, shard, shard.outside)
    return shard_samples(stream, size, place, shard, info, arrays, one_of=one_of)


def _outside_records(
    stream: BinaryIO, size: int, place: str, shard: ShardInfo, outside: OutsideShard
) -> Iterator[tuple[str, Record, dict[str, bytes]]]:
    """As `shard_samples`, of a shard that other software wrote. Reading stops after the last image of the manifest."""
    if size != shard.bytes:
        raise wrong_size(size, shard)
    left_out = set(outside.left_out)
    samples = outside_samples(stream, outside.captions, outside.key_ends_at)
    kept = (each for each in samples if not each.flaw and each.key not in left_out)
    images = captions = 0
    for sample in islice(kept, shard.images):
        record = _outside_record(shard, outside, sample.key, sample.captions, (images, captions))
        images, captions = images + 1, captions + len(sample.captions)
        yield f"{place}: sample {sample.key}", record, {PHOTOGRAPHS[0]: cast(bytes, sample.picture)}
    _require_counts(shard, images, captions)


def caption_records(dataset: Dataset, shard: ShardInfo, outside: OutsideShard) -> Iterator[tuple[str, Record]]:
    """(place for messages, record) of each image of a shard that other software wrote, from the file with its captions:
    the shard is not read. DataError for a file that is missing or was changed."""
    where = join(dataset.path, outside.texts)
    try:
        content = storage.read_hashed(dataset.path, outside.texts, sha256=outside.texts_sha256, most=_TEXTS_BYTES)
    except NothingThere as error:
        raise DataError(
            "VSE-D102", "{file}: captions file missing; put it back, or delete {folder}/manifest.json and repeat "
            "`vsetune data index`.", file=where, folder=dataset.path,
        ) from error
    if sha256_hex(content) != outside.texts_sha256:
        fix = f"delete {dataset.path}/manifest.json and repeat `vsetune data index`."
        raise DataError(OTHER_HASH(file=where, listed=MANIFEST_FILE, fix=fix))
    images = captions = 0
    try:
        for key, texts in texts_in(content, where=where):
            yield f"{where}: sample {key}", _outside_record(shard, outside, key, texts, (images, captions))
            images, captions = images + 1, captions + len(texts)
        _require_counts(shard, images, captions)
    except Flaw as error:
        raise damaged_shard(dataset.path, shard, error) from error


def _outside_record(
    shard: ShardInfo, outside: OutsideShard, key: str, captions: list[str], before: tuple[int, int]
) -> Record:
    """before: images and captions of the shard before this one."""
    images, texts = before
    name = f"{PurePosixPath(outside.address).stem}/{key}"
    return Record(name, shard.first_image + images, shard.first_caption + texts, captions, None)


def _require_counts(shard: ShardInfo, images: int, captions: int) -> None:
    if (images, captions) != (shard.images, shard.captions):
        raise Flaw(
            f"holds {images} images with {captions} captions, the manifest says {shard.images} with {shard.captions}"
        )


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
            yield from records_in(dataset, shard, source, size, arrays, one_of=one_of)
            if hashing is not None:
                hashing.drain()
                if hashing.sha256 != shard.sha256:
                    raise wrong_hash()
        except Flaw as error:
            dataset.require_sound_copy(shard)
            raise damaged_shard(dataset.path, shard, error) from error
        except DataError:
            dataset.require_sound_copy(shard)
            raise


RECORD, FEATURES, BOXES = "json", "features.npy", "boxes.npy"
PHOTOGRAPHS = ("jpg", "png")
_RECORD_BYTES = 16 << 20
_TEXTS_BYTES = 1 << 30
_PHOTOGRAPH_BYTES = 256 << 20
_BOX_BYTES = 16
_AGAIN = "ingest the data set again."
_INFINITE = np.uint16(0x7C00)
"""The exponent bits of float16: all set in infinities and NaN, in no other value."""


@dataclass(frozen=True)
class Record:
    """The JSON member. name: id as ingested, perhaps empty. words: of each caption, as stored; None: not stored."""

    name: str
    index: int
    first_caption: int
    captions: list[str]
    words: list[list[str]] | None

    @cached_property
    def tokens(self) -> list[list[str]]:
        """The words of each caption."""
        return [tokenise(caption) for caption in self.captions] if self.words is None else self.words

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
    from webdataset.tariterators import group_by_keys  # brings torch, which checks of a study do without

    if size != shard.bytes:
        raise wrong_size(size, shard)
    suffixes, images, captions = (RECORD, *arrays), 0, 0
    limit = _limit(need, (*suffixes, *one_of))
    wanted = (
        {"fname": header.name, "data": content, "__url__": ""}
        for header, content in tar_members(stream, limit=limit) if _is_wanted(header, limit(header.name))
    )
    try:
        for members in group_by_keys(wanted):
            key = members["__key__"]
            _require_members(key, members, suffixes, one_of)
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
    except ValueError as error:  # from group_by_keys, for a repeated member
        raise Flaw(one_line(error.args[0] if error.args else error)) from error
    if images != shard.images:
        raise Flaw(f"holds {images} images, the manifest says {shard.images}")
    if captions != shard.captions:
        raise Flaw(f"holds {captions} captions, the manifest says {shard.captions}")


def _limit(need: FeatureInfo, wanted: tuple[str, ...]) -> Limit:
    """Most bytes of the members with these suffixes."""
    array_bytes = HEADER_BYTES + need.regions * need.width * np.dtype(need.dtype).itemsize
    most = {RECORD: _RECORD_BYTES, FEATURES: array_bytes, BOXES: HEADER_BYTES + need.regions * _BOX_BYTES}

    def limit(name: str) -> int | None:
        suffix = name.rpartition("/")[2].partition(".")[2].lower()
        return most.get(suffix, _PHOTOGRAPH_BYTES) if suffix in wanted else None

    return limit


def _is_wanted(header: TarInfo, most: int | None) -> bool:
    """Whether a member is read. Flaw for what our shards do not have: links, folders, larger members."""
    if not header.isreg():
        raise Flaw(f"member {one_line(header.name)} is of type {one_line(header.type)}, need regular files only")
    if most is not None and header.size > most:
        raise Flaw(f"member {one_line(header.name)} has {header.size:,} bytes, need at most {most:,}")
    return most is not None


def _require_members(
    key: str, members: Mapping[str, bytes], suffixes: tuple[str, ...], one_of: tuple[str, ...]
) -> None:
    """Flaw unless a sample has all these members, and one of the others."""
    missing = [suffix for suffix in suffixes if suffix not in members]
    if missing:
        raise Flaw(f"sample {key} has no .{missing[0]} member")
    if one_of and not any(suffix in members for suffix in one_of):
        raise Flaw(f"sample {key} has no .{' or .'.join(one_of)} member")


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
    raise DataError(MISFIT(
        where=f"{where}: .{RECORD}", found="another record",
        need=f"captions and tokens, each up to {MOST_CHARACTERS:,}, index and first_caption", fix=_AGAIN,
    ))


def features_of(where: str, members: dict[str, bytes], need: FeatureInfo) -> np.ndarray:
    """(regions, width) as stored, finite, read-only."""
    array = _array(where, members, FEATURES)
    fits = array.ndim == 2 and need.regions_min <= len(array) <= need.regions and array.shape[1] == need.width
    if not fits or array.dtype != np.dtype(need.dtype):
        fewest = "" if need.regions_min == need.regions else f"{need.regions_min} to "
        raise DataError(MISFIT(
            where=where, found=f"features {array.shape} {array.dtype}",
            need=f"({fewest}{need.regions}, {need.width}) {need.dtype}", fix=_AGAIN,
        ))
    if not _are_finite(array):
        raise DataError(MISFIT(
            where=where, found="features that are not finite", need=f"finite {need.dtype}", fix=_AGAIN,
        ))
    return array


def boxes_of(where: str, members: dict[str, bytes], regions: int) -> np.ndarray:
    """(regions, 4) float32 x1, y1, x2, y2, 0 to 1 of the image."""
    array = _array(where, members, BOXES)
    if array.shape != (regions, 4) or array.dtype != np.float32 or not ((array >= 0) & (array <= 1)).all():
        raise DataError(MISFIT(
            where=where, found=f"boxes {array.shape} {array.dtype}", need=f"({regions}, 4) float32 from 0 to 1",
            fix=_AGAIN,
        ))
    return array


def photograph_of(members: dict[str, bytes]) -> bytes:
    """The encoded photograph of a sample that has one."""
    return next(members[suffix] for suffix in PHOTOGRAPHS if suffix in members)


def _array(where: str, members: dict[str, bytes], suffix: str) -> np.ndarray:
    try:
        return array_from_bytes(members[suffix])
    except Flaw as error:
        raise DataError(
            "VSE-D011", "{where}: no plain array ({reason}); {fix}", where=f"{where}: .{suffix}", reason=error,
            fix="ingest the data set again.",
        ) from error


def _are_finite(array: np.ndarray) -> bool:
    if array.dtype == np.float16:
        return not ((array.view(np.uint16) & _INFINITE) == _INFINITE).any()
    return bool(np.isfinite(array).all())


def _is_caption(text: object) -> bool:
    return is_text(text) and len(str(text)) <= MOST_CHARACTERS


def _are_words(words: object) -> bool:
    return isinstance(words, list) and len(words) <= MOST_CHARACTERS and all(map(is_text, words))
