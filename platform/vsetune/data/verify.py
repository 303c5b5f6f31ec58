"""Is a data set on disk what its manifest says? Hashes, counts, order, decodable members."""

from __future__ import annotations

import hashlib
import io
import json
import tarfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from vsetune.data import storage
from vsetune.data.dataset import Dataset
from vsetune.data.journal import file_sha256
from vsetune.data.manifest import MANIFEST_FILE, FeatureInfo, Manifest, ShardInfo, SplitInfo, sha256_hex
from vsetune.data.parses import parses_problems
from vsetune.data.raw import decode_image
from vsetune.data.vocabulary import Vocabulary
from vsetune.errors import DataError


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


def load_manifest(path: str) -> Manifest:
    """The manifest of a folder or s3:// prefix. DataError when there is none or it is of another format."""
    where = storage.join(path, MANIFEST_FILE)
    if not storage.exists(where):
        raise DataError(f"{where}: not there; ingest a recipe to this place first, or check the path.")
    return Manifest.from_bytes(storage.read_bytes(where), where=where)


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
    """Read everything once and list what is wrong, one sentence each. DataError when there is no manifest."""
    manifest = load_manifest(path)
    problems = [*_vocabulary_problems(path, manifest)]
    for name, split in manifest.splits.items():
        problems += _count_problems(name, split)
        for shard in split.shards:
            problems += _shard_problems(path, shard, manifest)
    return [*problems, *parses_problems(path, manifest), *_unlisted(path, manifest)]


def require_unchanged(dataset: Dataset, splits: Iterable[str]) -> None:
    """DataError for the first shard of these splits that is not, bit for bit, what was ingested. Local data only.

    An S3 prefix would have to be fetched twice for this; there damage is found when the shard is read.
    """
    if storage.is_remote(dataset.path):
        return
    for shard in (shard for name in splits for shard in dataset.split(name).shards):
        where = Path(dataset.shard_url(shard.file))
        found = where.stat().st_size
        if found != shard.bytes:
            raise DataError(
                f"{where}: {found:,} bytes, the manifest says {shard.bytes:,}; the shard is cut short or changed, copy "
                "it back or ingest the data set again."
            )
        if file_sha256(where) != shard.sha256:
            raise DataError(
                f"{where}: its SHA-256 is not the one of the manifest; the shard was changed, copy it back or ingest "
                "the data set again."
            )


def _vocabulary_problems(path: str, manifest: Manifest) -> Iterator[str]:
    where = storage.join(path, manifest.vocabulary.file)
    try:
        content = storage.read_bytes(where)
    except DataError as error:
        yield str(error)
        return
    try:
        words = len(Vocabulary.from_json(content))
    except DataError as error:
        yield f"{where}: {error}"
        return
    if sha256_hex(content) != manifest.vocabulary.sha256:
        yield f"{where}: its SHA-256 is not the one of the manifest; ingest again, or restore the file."
    if words != manifest.vocabulary.words:
        yield f"{where}: {words} words, the manifest says {manifest.vocabulary.words}; ingest again."


def _count_problems(name: str, split: SplitInfo) -> Iterator[str]:
    for what, total, counts in (
        ("images", split.images, [shard.images for shard in split.shards]),
        ("captions", split.captions, [shard.captions for shard in split.shards]),
    ):
        if total != sum(counts):
            yield f"split {name}: the manifest says {total} {what}, its shards hold {sum(counts)}; ingest again."


def _shard_problems(path: str, shard: ShardInfo, manifest: Manifest) -> list[str]:
    where = storage.join(path, shard.file)
    problems: list[str] = []
    try:
        with storage.open_stream(where) as stream:
            hashing = _HashingReader(stream)
            problems += _content_problems(where, hashing, shard, manifest)
            hashing.drain()
    except DataError as error:
        return [*problems, str(error)]
    if hashing.count != shard.bytes:
        problems.append(f"{where}: {hashing.count} bytes, need {shard.bytes}; the file is cut short or changed.")
    elif hashing.digest.hexdigest() != shard.sha256:
        problems.append(f"{where}: its SHA-256 is not the one of the manifest; the file was changed.")
    return problems


def _content_problems(where: str, stream: _HashingReader, shard: ShardInfo, manifest: Manifest) -> Iterator[str]:
    image, caption = shard.first_image, shard.first_caption
    try:
        for key, members in _samples(stream):
            place = f"{where}: sample {key}"
            try:
                captions = _check_record(place, members, image=image, caption=caption)
                _check_features(place, members, manifest.features)
                _check_image(place, members, manifest)
            except DataError as error:
                yield str(error)
                return
            image, caption = image + 1, caption + captions
    except (tarfile.TarError, OSError, EOFError) as error:
        yield f"{where}: damaged tar after sample {image - 1} ({error}); fetch it again or ingest again."
        return
    found = (image - shard.first_image, caption - shard.first_caption)
    if found != (shard.images, shard.captions):
        yield f"{where}: (images, captions) {found}, the manifest says {(shard.images, shard.captions)}; ingest again."


def _samples(stream: _HashingReader) -> Iterator[tuple[str, dict[str, bytes]]]:
    """(key, {suffix: content}) of each sample of a tar."""
    key, members = "", dict[str, bytes]()
    with tarfile.open(fileobj=stream, mode="r|") as tar:
        for member in tar:
            file = tar.extractfile(member)
            name, _, suffix = member.name.partition(".")
            if name != key and members:
                yield key, members
                members = {}
            key = name
            members[suffix] = file.read() if file is not None else b""
    if members:
        yield key, members


def _check_record(place: str, members: dict[str, bytes], *, image: int, caption: int) -> int:
    """The number of captions of a sample whose record is right."""
    try:
        record: dict[str, Any] = json.loads(members["json"])
        captions, tokens = record["captions"], record["tokens"]
        found = (record["index"], record["first_caption"])
    except (KeyError, ValueError, TypeError) as error:
        raise DataError(f"{place}: its json member is missing or damaged ({error}); ingest again.") from error
    if found != (image, caption):
        raise DataError(f"{place}: (index, first_caption) {found}, need {(image, caption)}; ingest again.")
    if not captions or len(captions) != len(tokens):
        raise DataError(f"{place}: {len(captions)} captions and {len(tokens)} token lists; ingest again.")
    return len(captions)


def _check_features(place: str, members: dict[str, bytes], info: FeatureInfo) -> None:
    features = _array(place, members, "features.npy")
    if features.ndim != 2 or not (
        features.shape[1] == info.width and info.regions_min <= features.shape[0] <= info.regions
    ):
        raise DataError(f"{place}: features {features.shape}, need ({info.regions}, {info.width}); ingest again.")
    if features.dtype != info.dtype or not np.isfinite(features).all():
        raise DataError(
            f"{place}: need finite {info.dtype} features, found {features.dtype} or not finite; ingest again."
        )
    if info.boxes and _array(place, members, "boxes.npy").shape != (features.shape[0], 4):
        raise DataError(f"{place}: boxes do not fit {features.shape[0]} regions; ingest again.")


def _array(place: str, members: dict[str, bytes], suffix: str) -> np.ndarray:
    try:
        array: np.ndarray = np.load(io.BytesIO(members[suffix]), allow_pickle=False)
    except (KeyError, ValueError, EOFError, OSError) as error:
        raise DataError(f"{place}: its {suffix} member is missing or damaged ({error}); ingest again.") from error
    return array


def _check_image(place: str, members: dict[str, bytes], manifest: Manifest) -> None:
    if not manifest.images_stored:
        return
    content = members.get("jpg") or members.get("png")
    if not content:
        raise DataError(f"{place}: no jpg or png member, the manifest says images are stored; ingest again.")
    decode_image(content, place=place)


def _unlisted(path: str, manifest: Manifest) -> list[str]:
    """Tar files in a local folder that the manifest does not know."""
    if storage.is_remote(path):
        return []
    known = {shard.file for split in manifest.splits.values() for shard in split.shards}
    found = sorted(file.name for file in Path(path).iterdir() if file.suffix in {".tar", ".partial"})
    return [f"{storage.join(path, name)}: not in the manifest; remove it." for name in found if name not in known]


class _HashingReader(io.RawIOBase):
    """Hashes and counts what is read."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream
        self.digest = hashlib.sha256()
        self.count = 0

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        content = self._stream.read(size)
        self.digest.update(content)
        self.count += len(content)
        return content

    def drain(self) -> None:
        while self.read(1 << 20):
            pass
