"""The manifest of an ingested data set: what stands in the folder, how it was made, and every hash.

`manifest.json` is written last, so a folder with a manifest is complete.
"""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import Any

from pydantic import Field, ValidationError

from vsetune.config.base import Spec
from vsetune.errors import DataError, StorageError

FORMAT_NAME = "vsetune-data"
FORMAT_VERSION = 1
MANIFEST_FILE = "manifest.json"
VOCABULARY_FILE = "vocabulary.json"


class ShardInfo(Spec):
    """One tar archive; `file` is relative to the manifest."""

    file: str
    sha256: str
    bytes: int = Field(ge=0)
    images: int = Field(ge=1)
    captions: int = Field(ge=1)
    first_image: int = Field(ge=0, description="index in the split of the first image in this shard")
    first_caption: int = Field(ge=0, description="index in the split of the first caption in this shard")


class SplitInfo(Spec):
    """One split; its images and captions are numbered from 0 in the order of the shards."""

    images: int = Field(ge=0)
    captions: int = Field(ge=0)
    captions_min: int = Field(ge=0, description="fewest captions of one image")
    captions_max: int = Field(ge=0, description="most captions of one image")
    captions_mean: float = Field(ge=0)
    shards: list[ShardInfo]


class FeatureInfo(Spec):
    """The image features in the shards: (regions, width) per image, and the recipe that made them."""

    extractor: str
    regions: int = Field(ge=1, description="regions of an image; the most of any image when they differ")
    regions_min: int = Field(ge=1, description="fewest regions of one image")
    width: int = Field(ge=1)
    dtype: str = "float16"
    boxes: bool = Field(False, description="KEY.boxes.npy stands beside the features")
    recipe: dict[str, Any] = Field(default_factory=dict, description="extractor, grid, model, ... as resolved")


class VocabularyInfo(Spec):
    """The vocabulary file, built from the train split only."""

    file: str = VOCABULARY_FILE
    sha256: str
    words: int = Field(ge=1, description="size, special tokens included")
    min_count: int = Field(ge=1)


class Manifest(Spec):
    """Everything a reader must know before it opens a shard."""

    format: str = FORMAT_NAME
    version: int = FORMAT_VERSION
    name: str
    splits: dict[str, SplitInfo]
    features: FeatureInfo
    vocabulary: VocabularyInfo
    images_stored: bool = Field(False, description="KEY.jpg or KEY.png stands beside the features")
    recipe_fingerprint: str = Field(description="fingerprint of the ingest recipe")
    source_sha256: str = Field("", description="of every id and caption in order, before ingest")
    notes: list[str] = Field(default_factory=list, description="what ingest counted and left out")

    def to_bytes(self) -> bytes:
        """The bytes of `manifest.json`; equal manifests give equal bytes."""
        return (json.dumps(self.to_plain(), indent=1, sort_keys=True) + "\n").encode()

    @classmethod
    def from_bytes(cls, content: bytes, *, where: str) -> Manifest:
        """Read `manifest.json`. where: its path or address, for the message of a DataError."""
        try:
            plain = json.loads(content)
        except ValueError as error:
            raise DataError(f"{where}: not JSON ({error}); ingest the data set again.") from error
        _check_format(plain, where=where)
        try:
            return cls.model_validate(plain)
        except ValidationError as error:
            first = error.errors()[0]
            key = ".".join(str(part) for part in first["loc"])
            raise DataError(f"{where}: key {key}: {first['msg']}; ingest the data set again.") from error


def _check_format(plain: Any, *, where: str) -> None:
    if not isinstance(plain, dict) or plain.get("format") != FORMAT_NAME:
        found = plain.get("format") if isinstance(plain, dict) else type(plain).__name__
        raise DataError(f"{where}: format is {found!r}, need {FORMAT_NAME!r}; is this a folder made by ingest?")
    if plain.get("version") != FORMAT_VERSION:
        raise DataError(
            f"{where}: format version {plain.get('version')!r}, this vsetune reads {FORMAT_VERSION}; "
            "ingest the data set again, or use the vsetune that wrote it."
        )


def write_manifest(manifest: Manifest, folder: Path) -> None:
    """Write `manifest.json` in one step: it is either whole or absent."""
    write_whole(folder / MANIFEST_FILE, manifest.to_bytes())


def write_whole(path: Path, content: bytes) -> None:
    """Write a small file so that a crash leaves the old one or the new one. StorageError when it cannot be written."""
    partial = path.with_name(path.name + ".partial")
    try:
        with open(partial, "wb") as stream:
            stream.write(content)
            stream.flush()
            os.fsync(stream.fileno())
        os.replace(partial, path)
    except OSError as error:
        partial.unlink(missing_ok=True)
        raise StorageError(f"{path}: cannot write ({error.strerror}); free space or choose another folder.") from error


def sha256_hex(content: bytes) -> str:
    """SHA-256 of the content as 64 hex digits."""
    return hashlib.sha256(content).hexdigest()
