"""The manifest of an ingested data set: the files of the folder, how they were made, and every hash.

`manifest.json` is written last, so a folder with a manifest is complete.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from pydantic import Field, ValidationError, field_validator, model_validator

from vsetune.config.sources.index_recipe import CAPTIONS_AT, KeyEnd
from vsetune.config.spec.base import Spec
from vsetune.config.spec.loading import describe_problems
from vsetune.data.stored.plain_files import parse_shallow_json
from vsetune.data.stored.storage import NAME_TWICE, is_inside
from vsetune.errors import DataError, Problem, one_line
from vsetune.home.hashes import sha256_hex
from vsetune.home.paths import PathText
from vsetune.home.whole_files import readable_json, write_whole

FORMAT_NAME = "vsetune-data"
FORMAT_VERSION = 1
MANIFEST_FILE = "manifest.json"
VOCABULARY_FILE = "vocabulary.json"

_MOST = 1 << 40
"""Limit for the bytes of a shard, and for any number of images or captions."""
_MOST_VALUES = 1 << 24
"""Limit for regions x width of one image."""
_HEADERS = 1024
"""Fewest bytes of an image in a shard, beside its features: a block of text and a header."""
_LONGEST_NAME = 200
_RESTORE = "restore the file, or ingest the data set again."


class OutsideShard(Spec):
    """A shard that other software wrote, read from where it is; see `outside_shards`."""

    later_keys: ClassVar[tuple[str, ...]] = ("key_ends_at",)

    address: PathText = Field(description="absolute path or s3:// address")
    captions: str = Field("txt", pattern=CAPTIONS_AT)
    key_ends_at: KeyEnd = "first_dot"
    texts: str = Field(max_length=_LONGEST_NAME, description="file with its captions, relative to the manifest")
    texts_sha256: str
    left_out: list[str] = Field(
        default_factory=list, description="keys of complete samples that are not in the data set",
    )
    weight: float = Field(
        1.0, gt=0, le=1000, description="how often an epoch reads each of its images; 0.5: half of them",
    )

    @field_validator("texts")
    @classmethod
    def _inside(cls, name: str) -> str:
        return _file_name(name)


class ShardInfo(Spec):
    """One tar archive; `file` is relative to the manifest. outside: the archive is elsewhere, `file` is only its name.
    """

    later_keys: ClassVar[tuple[str, ...]] = ("outside",)

    file: str = Field(max_length=_LONGEST_NAME)
    sha256: str
    bytes: int = Field(ge=0, le=_MOST)
    images: int = Field(ge=1, le=_MOST)
    captions: int = Field(ge=1, le=_MOST)
    first_image: int = Field(ge=0, le=_MOST, description="index in the split of the first image in this shard")
    first_caption: int = Field(ge=0, le=_MOST, description="index in the split of the first caption in this shard")
    outside: OutsideShard | None = None

    @field_validator("file")
    @classmethod
    def _inside(cls, name: str) -> str:
        return _file_name(name)


class SplitInfo(Spec):
    """One split; its images and captions are numbered from 0 in the order of the shards."""

    images: int = Field(ge=0, le=_MOST)
    captions: int = Field(ge=0, le=_MOST)
    captions_min: int = Field(ge=0, le=_MOST, description="fewest captions of one image")
    captions_max: int = Field(ge=0, le=_MOST, description="most captions of one image")
    captions_mean: float = Field(ge=0)
    shards: list[ShardInfo]

    @property
    def captions_fingerprint(self) -> str:
        """Identity of the captions: 12 hex digits from the hashes of their shards."""
        return sha256_hex(" ".join(shard.sha256 for shard in self.shards).encode())[:12]


class FeatureInfo(Spec):
    """The image features in the shards: (regions, width) per image, and the recipe that made them."""

    extractor: str
    regions: int = Field(ge=1, description="regions of an image; the most of any image when they differ")
    regions_min: int = Field(ge=1, description="fewest regions of one image")
    width: int = Field(ge=0, description="0: the shards have photographs alone")
    dtype: str = Field("float16", pattern="^float(16|32)$")
    boxes: bool = Field(False, description="KEY.boxes.npy stands beside the features")
    recipe: dict[str, Any] = Field(default_factory=dict, description="extractor, grid, model, ... as resolved")

    @model_validator(mode="after")
    def _fits_in_memory(self) -> FeatureInfo:
        if self.regions_min > self.regions:
            raise ValueError(Problem.of(
                "VSE-D016", "regions_min {regions_min} is above regions {regions}", regions_min=self.regions_min,
                regions=self.regions,
            ))
        if self.regions * self.width > _MOST_VALUES:
            raise ValueError(Problem.of(
                "VSE-D017", "{regions} x {width} values an image, need at most {most}", regions=self.regions,
                width=self.width, most=_MOST_VALUES,
            ))
        return self

    def bytes_at_least(self, images: int) -> int:
        """Fewest bytes of this many images in a shard, not counting captions."""
        return images * (_HEADERS + self.regions_min * self.width * np.dtype(self.dtype).itemsize)


class VocabularyInfo(Spec):
    """The vocabulary file, built from the train split only."""

    file: str = Field(VOCABULARY_FILE, max_length=_LONGEST_NAME)
    sha256: str
    words: int = Field(ge=1, description="size, special tokens included")
    min_count: int = Field(ge=1)

    @field_validator("file")
    @classmethod
    def _inside(cls, name: str) -> str:
        return _file_name(name)


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

    @model_validator(mode="after")
    def _describes_files(self) -> Manifest:
        """Refuse counts that the files cannot hold: readers allocate memory by them, and the file sizes reveal a wrong
        count."""
        files: set[str] = set()
        for split, info in self.splits.items():
            if not split.isprintable() or not 0 < len(split) <= _LONGEST_NAME:
                raise ValueError(Problem.of("VSE-D018", "split {split}: need a printable name", split=one_line(split)))
            for shard in info.shards:
                if shard.file in files:
                    raise ValueError(NAME_TWICE(where="shards", name=shard.file))
                files.add(shard.file)
                if shard.bytes < max(self.features.bytes_at_least(shard.images), shard.captions):
                    raise ValueError(Problem.of(
                        "VSE-D020", "shard {shard}: {bytes} bytes cannot hold {images} images with {captions} captions",
                        shard=shard.file, bytes=shard.bytes, images=shard.images, captions=shard.captions,
                    ))
        return self

    def to_bytes(self) -> bytes:
        """The bytes of `manifest.json`; equal manifests give equal bytes."""
        return readable_json(self.to_plain())

    @classmethod
    def from_bytes(cls, content: bytes, *, where: str) -> Manifest:
        """Read `manifest.json`. where: its path or address, for the message of a DataError."""
        plain = parse_shallow_json(content, where=where, fix=_RESTORE)
        _check_format(plain, where=where)
        try:
            return cls.model_validate(plain)
        except ValidationError as error:
            raise DataError(
                "VSE-D014", "{where}: {reason}; restore the file, or ingest the data set again.", where=where,
                reason=first_problem(error),
            ) from error


def first_problem(error: ValidationError) -> str:
    """The first problem that pydantic found: its key, the value, the value needed, in one line."""
    first = describe_problems(error, where="")[0]
    return one_line(first)


def _file_name(name: str) -> str:
    if not is_inside(name):
        raise ValueError(Problem.of(
            "VSE-D008", "{file} leads out of its folder, need the name of a file in it", file=one_line(name)
        ))
    return name


def _check_format(plain: Any, *, where: str) -> None:
    if not isinstance(plain, dict) or plain.get("format") != FORMAT_NAME:
        found = plain.get("format") if isinstance(plain, dict) else type(plain).__name__
        raise DataError(
            "VSE-D015", "{where}: format is {found}, need {need}; ingest the data set again, or use the vsetune that "
            "wrote it.", where=where, found=one_line(repr(found)), need=FORMAT_NAME,
        )
    if plain.get("version") != FORMAT_VERSION:
        raise DataError(
            "VSE-D015", "{where}: format is {found}, need {need}; ingest the data set again, or use the vsetune that "
            "wrote it.", where=where, found=f"version {one_line(repr(plain.get('version')))}", need=FORMAT_VERSION,
        )


def write_manifest(manifest: Manifest, folder: Path) -> None:
    """Write `manifest.json` in one step: it is either whole or absent."""
    write_whole(folder / MANIFEST_FILE, manifest.to_bytes(), durable=True)
