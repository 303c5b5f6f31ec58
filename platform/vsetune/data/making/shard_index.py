"""Index of one shard that other software wrote: its hash, counts, words and flaws, in one pass over its bytes."""

from __future__ import annotations

import json
import os
from collections import Counter
from dataclasses import dataclass
from functools import lru_cache
from pathlib import PurePosixPath
from typing import BinaryIO, cast

import numpy as np
from PIL import Image
from pydantic import Field

from vsetune.config.sources.index_recipe import KeyEnd
from vsetune.config.spec.base import Spec
from vsetune.data.stored import storage
from vsetune.data.stored.outside_shards import APART, OutsideSample, outside_samples
from vsetune.data.stored.photographs import rgb_image
from vsetune.data.stored.plain_files import Flaw
from vsetune.data.stored.vocabulary import tokenise
from vsetune.errors import DataError
from vsetune.home import s3
from vsetune.home.addresses import is_remote
from vsetune.home.hashes import HashingReader, fingerprint_of, sha256_hex

MISSING = "missing"
_ALIKE_BITS = 4
"""Images whose difference hashes differ in at most this many of 64 bits look the same."""
_SIDE = 8


@dataclass(frozen=True)
class IndexTask:
    """One shard to index: plain data. version: changes with its content; None if it is missing. known: folder or
    prefix, and file name in it, of the evaluation pictures that its images are compared with; empty for a shard of an
    evaluation split."""

    split: str
    number: int
    address: str
    version: str | None
    captions: str
    key_ends_at: KeyEnd
    perceptual: bool
    known: tuple[str, str] = ("", "")

    @property
    def name(self) -> str:
        return f"{self.split}-{self.number:06d}"

    @property
    def record(self) -> str:
        """File name of the result: another content or other settings have another one. The place of the shard in the
        recipe does not count."""
        inputs = {
            "format": 2, "address": self.address, "version": self.version, "captions": self.captions,
            "key_ends_at": self.key_ends_at, "perceptual": self.perceptual, "known": self.known[1],
            "is_training": self.split == "train",
        }
        return f"{fingerprint_of(inputs)}.json"


class Duplicate(Spec):
    """An image that an evaluation split has too. of: its name there. words: of its captions, with their counts."""

    of: str
    alike: str
    captions: int
    words: dict[str, int]


class IndexedShard(Spec, frozen=False):
    """What is known of a shard; it grows while the shard is read.

    damage: empty for a sound shard; the samples before the damage are counted. left_out: reasons by key of sample;
    several if the key comes again. undecodable: samples of these that lack nothing but a sound picture. unused: why
    captions of images are left out, by key. has_lines: images whose caption is a text of several lines.
    captions_min, captions_max: of one image. texts: the captions of each image, by key. words: counts in all captions,
    of the train split alone. duplicates: by key; they are counted in images, captions, texts and words. pictures: of
    evaluation splits alone, by key, the SHA-256 (16 hex digits) and the difference hash of the image (empty unless
    requested).
    """

    sha256: str = ""
    bytes: int = 0
    damage: str = ""
    images: int = 0
    captions: int = 0
    captions_min: int = 0
    captions_max: int = 0
    left_out: dict[str, list[str]] = Field(default_factory=dict)
    undecodable: list[str] = Field(default_factory=list)
    unused: dict[str, list[str]] = Field(default_factory=dict)
    has_lines: int = 0
    duplicates: dict[str, Duplicate] = Field(default_factory=dict)
    texts: dict[str, list[str]] = Field(default_factory=dict)
    words: dict[str, int] = Field(default_factory=dict)
    pictures: dict[str, tuple[str, str]] = Field(default_factory=dict)


def version_of(address: str) -> str | None:
    """Text that changes with the content of a shard; None if there is none. StorageError."""
    if is_remote(address):
        state = s3.look(address)
        return None if state is None else f"{state.size} {state.etag}"
    if not storage.exists(address):
        return None
    about = os.stat(address)
    return f"{about.st_size} {about.st_mtime_ns}"


def index_shard(task: IndexTask) -> IndexedShard:
    """Read a shard once. A missing or damaged one is no error, see `IndexedShard.damage`. StorageError."""
    try:
        stream, size = storage.open_sized(task.address)
    except DataError:
        return IndexedShard(damage=MISSING)
    found, known = IndexedShard(bytes=size), _known(*task.known) if task.known[1] else KnownPictures()
    with stream:
        hashing = HashingReader(stream)
        try:
            for sample in outside_samples(cast(BinaryIO, hashing), task.captions, task.key_ends_at):
                _add(sample, found, task, known)
        except Flaw as flaw:
            found.damage = str(flaw)
        hashing.drain()
    counts = [len(captions) for captions in found.texts.values()]
    return found.model_copy(update={
        "sha256": hashing.sha256, "images": len(counts), "captions": sum(counts),
        "captions_min": min(counts, default=0), "captions_max": max(counts, default=0),
    })


def _add(sample: OutsideSample, found: IndexedShard, task: IndexTask, known: KnownPictures) -> None:
    """Note a sample, or why it is left out."""
    if sample.flaw == APART:  # said instead of what each part lacks
        found.left_out[sample.key] = [sample.flaw]
        return
    if sample.flaw or sample.picture is None:
        found.left_out.setdefault(sample.key, []).append(sample.flaw)
        return
    try:
        image = rgb_image(sample.picture)
    except Flaw as flaw:
        found.left_out[sample.key] = [f"picture cannot be decoded: {flaw}"]
        found.undecodable.append(sample.key)
        return
    if sample.unused:
        found.unused[sample.key] = sample.unused
    found.has_lines += sample.has_lines
    found.texts[sample.key] = sample.captions
    digest, look = sha256_hex(sample.picture)[:16], difference_hash(image) if task.perceptual else ""
    if task.split != "train":
        found.pictures[sample.key] = digest, look
        return
    words = Counter(word for caption in sample.captions for word in tokenise(caption))
    for word, count in words.items():
        found.words[word] = found.words.get(word, 0) + count
    match = known.match(digest, look)
    if match is not None:
        found.duplicates[sample.key] = Duplicate(
            of=match[0], alike=match[1], captions=len(sample.captions), words=dict(words)
        )


def image_name(address: str, key: str) -> str:
    """Name of an image: stem of its shard and key of its sample."""
    return f"{PurePosixPath(address).stem}/{key}"


def difference_hash(image: Image.Image) -> str:
    """16 hex digits: for each of 8 x 8 cells of the grey image, whether its right neighbour is brighter."""
    grey = np.asarray(image.convert("L").resize((_SIDE + 1, _SIDE), Image.Resampling.BOX), np.int16)
    return np.packbits(grey[:, 1:] > grey[:, :-1]).tobytes().hex()


class KnownPictures:
    """Pictures of the evaluation splits, by hash; each has the name of an image."""

    def __init__(self, by_bytes: dict[str, str] | None = None, by_look: dict[str, str] | None = None) -> None:
        self._by_bytes, by_look = by_bytes or {}, by_look or {}
        self._looks = np.array([int(look, 16) for look in by_look], np.uint64)
        self._names = list(by_look.values())

    def match(self, digest: str, look: str) -> tuple[str, str] | None:
        """(name, way in which they are alike) of a picture with these bytes, or that looks the same. look: empty if
        only bytes are compared."""
        if digest in self._by_bytes:
            return self._by_bytes[digest], "same bytes"
        if not look or not len(self._looks):
            return None
        differing = (self._looks ^ np.uint64(int(look, 16))).view(np.uint8).reshape(-1, 8)
        bits = _BITS[differing].sum(axis=1)
        nearest = int(bits.argmin())
        return (self._names[nearest], "looks the same") if bits[nearest] <= _ALIKE_BITS else None


_BITS = np.array([bin(byte).count("1") for byte in range(256)], np.uint8)


@lru_cache(maxsize=1)
def _known(place: str, name: str) -> KnownPictures:
    plain = json.loads(storage.read_inside(place, name, most=1 << 30))
    return KnownPictures(plain["by_bytes"], plain["by_look"])
