"""A data set before ingest: images with their captions, by split, wherever the bytes are."""

from __future__ import annotations

import io
import itertools
import json
import os
import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Protocol

import numpy as np
from PIL import Image

from vsetune.config.sources.recipe import expand_path
from vsetune.data.stored import storage
from vsetune.data.stored.outside_shards import MOST_CHARACTERS
from vsetune.data.stored.photographs import rgb_image
from vsetune.data.stored.plain_files import Flaw, caption_line, composed, is_regular, is_text
from vsetune.data.stored.storage import NAME_TWICE, NOT_IN_IT
from vsetune.data.stored.tar_members import file_places
from vsetune.errors import DataError, one_line
from vsetune.home.hashes import sha256_of_pieces

_PICTURE_BYTES = 256 << 20
_TEXT_BYTES = 1 << 30


class ImageBytes(Protocol):
    """Source of the encoded bytes of one image."""

    @property
    def place(self) -> str:
        """Name for messages: a path, or a tar file and its member."""

    @property
    def size(self) -> int:
        """Bytes of the encoded image, or an upper bound."""

    def read(self) -> bytes:
        """The encoded image."""


@dataclass(frozen=True)
class FileImage:
    """An image file on disk."""

    path: Path

    @property
    def place(self) -> str:
        return str(self.path)

    @cached_property
    def size(self) -> int:
        try:
            return self.path.stat().st_size
        except OSError as error:
            raise storage.read_failure(self.place, error) from error

    def read(self) -> bytes:
        return storage.read_bytes(self.place, most=_PICTURE_BYTES)


@dataclass(frozen=True)
class TarImage:
    """An image inside a plain (uncompressed) tar file, read by its offset."""

    archive: Path
    member: str
    offset: int
    size: int

    @property
    def place(self) -> str:
        return f"{self.archive}:{self.member}"

    def read(self) -> bytes:
        if self.size > _PICTURE_BYTES:
            raise DataError(
                "VSE-D004", "{file}: {bytes:,} bytes or more, need at most {most:,}; check the file.", file=self.place,
                bytes=self.size, most=_PICTURE_BYTES,
            )
        with storage.open_stream(str(self.archive)) as stream:
            stream.seek(self.offset)
            return stream.read(self.size)


@dataclass(frozen=True)
class RawImage:
    """One image. source: None if only features exist. feature_row: its row in the split's arrays."""

    id: str
    captions: tuple[str, ...]
    source: ImageBytes | None = None
    feature_row: int | None = None


@dataclass(frozen=True)
class FileStamp:
    """Size and time of a file, to detect a change."""

    path: Path
    bytes: int
    modified_ns: int

    @classmethod
    def of(cls, path: Path) -> FileStamp | None:
        """None if there is no file."""
        try:
            about = path.stat()
        except OSError:
            return None
        return cls(path, about.st_size, about.st_mtime_ns)


@dataclass(frozen=True)
class FeatureArrays:
    """Ready features of one split, memory-mapped. features: (rows, regions, width); boxes: (rows, regions, 4).

    files: the mapped files, as they were; truncating a mapped file ends the process by a signal.
    """

    features: np.ndarray
    boxes: np.ndarray | None = None
    place: str = ""
    files: tuple[FileStamp, ...] = ()

    def require_unchanged(self) -> None:
        """DataError for a file that is missing or has changed."""
        for stamp in self.files:
            if FileStamp.of(stamp.path) != stamp:
                raise DataError("VSE-D005", "{file}: was changed while it was read; start again.", file=stamp.path)


@dataclass(frozen=True)
class RawSplit:
    """The images of one split, in the order they are numbered."""

    images: list[RawImage]
    arrays: FeatureArrays | None = None


@dataclass(frozen=True)
class RawDataset:
    """Splits by name, and what the reader counted and left out, one sentence each."""

    splits: dict[str, RawSplit]
    notes: list[str] = field(default_factory=list)

    def digest(self) -> str:
        """SHA-256 of every id and caption in order; equal digests mean an unchanged source."""
        return sha256_of_pieces(self._pieces())

    def _pieces(self) -> Iterator[bytes]:
        for name, split in self.splits.items():
            yield f"{name}\n".encode()
            for image in split.images:
                yield json.dumps([image.id, image.captions]).encode()


def decode_image(picture: bytes | Image.Image, *, place: str, fix: str = "replace it") -> Image.Image:
    """The image as RGB. DataError naming the place when it cannot be decoded. fix: what to do about it."""
    try:
        return rgb_image(picture)
    except Flaw as error:
        raise DataError(
            "VSE-D055", "{where}: not a readable image ({reason}); {fix}.", where=place, reason=error, fix=fix
        ) from error


def image_suffix(content: bytes) -> str | None:
    """`jpg` or `png` when the bytes are such a file, otherwise None."""
    if content.startswith(b"\xff\xd8\xff"):
        return "jpg"
    return "png" if content.startswith(b"\x89PNG\r\n\x1a\n") else None


def png_bytes(image: Image.Image) -> bytes:
    """The image as a PNG file."""
    buffer = io.BytesIO()
    image.save(buffer, format="PNG", compress_level=1)
    return buffer.getvalue()


def captioned_images(
    names: Iterable[str], captions: Mapping[str, list[str]], *, split: str, notes: list[str]
) -> Iterator[tuple[str, tuple[str, ...]]]:
    """The (name, captions) pairs of a split list, a caption as `caption_line`; images without a caption and empty
    captions are left out and counted in notes."""
    bare: list[str] = []
    empty: list[str] = []
    for name in names:
        found = [caption_line(text) for text in captions.get(name, ())]
        texts = tuple(filter(None, found))
        empty += [name] * (len(found) - len(texts))
        if texts:
            yield name, texts
        else:
            bare.append(name)
    if empty:
        notes.append(
            f"split {split}: left out {len(empty)} empty captions, the first of {empty[0]}; lists that count captions "
            "count those that are left"
        )
    if bare:
        notes.append(f"split {split}: left out {len(bare)} images without a caption, the first is {bare[0]}")


def refuse_missing(missing: Sequence[object], *, of: int, need: str, where: str) -> None:
    """DataError if the source lacks something for some of its listed images."""
    if missing:
        raise DataError(
            "VSE-D057", "{where}: {missing} of {listed} images have no {need}, the first is {first}; complete the "
            "source.", where=where, missing=len(missing), listed=of, first=missing[0], need=need,
        )


def require_text(path: Path, *, key: str, encoding: str = "utf-8") -> str:
    """The text of a file, without a byte order mark, each line ended by a newline alone. DataError naming the recipe
    key when it is missing or not in that encoding."""
    try:
        content = storage.read_bytes(str(path), most=_TEXT_BYTES)
    except DataError as error:
        raise DataError(error.problem.at(key)) from error
    try:
        text, wrong = content.decode(encoding), content.find(0)  # a NUL: UTF-16 without a mark
    except UnicodeDecodeError as error:
        text, wrong = "", error.start
    if wrong >= 0:
        raise DataError(
            "VSE-D050", "{key}: {file}: not {encoding} text at byte {byte}; convert the file.", key=key, file=path,
            encoding=encoding, byte=wrong,
        )
    return re.sub(r"\r+\n|\r", "\n", text.removeprefix("\ufeff"))


def read_lists(lists: Mapping[str, str]) -> Iterator[tuple[str, str, list[str]]]:
    """(split, key in the recipe, image names as `composed`) of each split list, names in their order. DataError when a
    name is repeated or a list is empty."""
    for split, text in lists.items():
        key = f"source.lists.{split}"
        path = Path(expand_path(text, key=key))
        names = [composed(line) for line in require_text(path, key=key).split("\n") if line.strip()]
        if not names:
            raise DataError(NOT_IN_IT(where=f"{key}: {path}", need="image names"))
        if len(set(names)) < len(names):
            twice = next(name for index, name in enumerate(names) if name in names[:index])
            raise DataError(NAME_TWICE(where=f"{key}: {path}", name=twice))
        yield split, key, names


def file_named(folder: Path, name: str) -> Path:
    """The file of this name in a folder, whichever form of Unicode and whichever slashes the name has. One that may not
    exist."""
    plain = name.replace("\\", "/")
    forms = (folder / unicodedata.normalize(form, plain) for form in ("NFC", "NFD"))
    return next((path for path in (folder / plain, *forms) if path.is_file()), folder / plain)


def require_folder(text: str, *, key: str) -> Path:
    """The folder that a recipe names. DataError naming the recipe key when there is none."""
    path = Path(expand_path(text, key=key))
    if not path.is_dir():
        found = "a file" if path.exists() else "nothing"
        raise DataError(
            "VSE-D048", "{key}: {folder}: found {found} there, need a folder; check the path in the recipe.", key=key,
            folder=path, found=found,
        )
    return path


def files_below(folder: Path) -> list[Path]:
    """The regular files of a folder and its sub-folders, also through links, each folder once.

    StorageError for a folder that cannot be read: its files would count as missing.
    """

    def refuse(error: OSError) -> None:
        raise storage.read_failure(error.filename, error) from error

    found: list[Path] = []
    seen: set[str] = set()
    for place, folders, names in os.walk(folder, onerror=refuse, followlinks=True):
        real = os.path.realpath(place)
        if real in seen:
            folders.clear()
            continue
        seen.add(real)
        folders.sort()  # so that of two ways to a folder always the same one is taken
        found += [path for path in (Path(place, name) for name in names) if is_regular(path)]
    return sorted(found)


def require_captions(captions: Iterable[str], *, place: str) -> None:
    """DataError for a caption that readers of shards refuse: too long, or with half of a surrogate pair."""
    for caption in captions:
        if len(caption) > MOST_CHARACTERS:
            raise DataError(
                "VSE-D053", "{where}: a caption of {characters:,} characters, need at most {most:,}; shorten it.",
                where=place, characters=len(caption), most=MOST_CHARACTERS,
            )
        if not is_text(caption):
            raise DataError(
                "VSE-D054", "{where}: a caption holds half of a surrogate pair ({caption}); fix it.", where=place,
                caption=one_line(repr(caption)),
            )


def note_shared_images(splits: Mapping[str, RawSplit], notes: list[str]) -> None:
    """A note for every two splits that have images in common."""
    ids = {name: [image.id for image in split.images] for name, split in splits.items()}
    for one, other in itertools.combinations(ids, 2):
        shared = sorted(set(ids[one]) & set(ids[other]))
        if shared:
            notes.append(
                f"{len(shared)} images stand in the splits {one} and {other}, the first is {shared[0]}: "
                "what is measured on them is no test"
            )


def tar_images(archive: Path) -> list[TarImage]:
    """The place of the bytes of every file in a plain tar. DataError for a damaged or compressed tar."""
    stream, size = storage.open_sized(str(archive))
    try:
        with stream:
            found = [TarImage(archive, file.name, file.offset, file.size) for file in file_places(stream)]
        if any(image.offset + image.size > size for image in found):
            raise Flaw("it ends before its last image does")
    except Flaw as error:
        raise DataError(
            "VSE-D058", "{archive}: not a readable plain tar file ({reason}); unpack or fetch it again.",
            archive=archive, reason=one_line(error),
        ) from error
    return found
