"""Writing one WebDataset shard: a tar whose bytes depend only on its samples.

A sample is KEY.json, KEY.features.npy (float16, (regions, width)), and optionally KEY.boxes.npy and KEY.jpg or KEY.png.
KEY is the zero-padded index of the image in its split.
"""

from __future__ import annotations

import errno
import io
import json
import tarfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import IO

import numpy as np

from vsetune.data.stored.manifest import ShardInfo
from vsetune.data.stored.vocabulary import tokenise
from vsetune.errors import StorageError
from vsetune.home.hashes import HashingWriter
from vsetune.home.whole_files import whole_file

TAR_END_BYTES = 2 * tarfile.RECORDSIZE
"""Most bytes of a tar beside its members."""
_BLOCK = tarfile.BLOCKSIZE
_NPY_HEADER = 128


@dataclass(frozen=True)
class Sample:
    """One image with its captions, ready to be written. image: encoded bytes and `jpg` or `png`."""

    index: int
    first_caption: int
    id: str
    captions: Sequence[str]
    features: np.ndarray
    boxes: np.ndarray | None = None
    image: tuple[bytes, str] | None = None

    def members(self) -> list[tuple[str, bytes]]:
        """(member name, content) in the order of writing."""
        record = {
            "image": self.id,
            "index": self.index,
            "first_caption": self.first_caption,
            "captions": list(self.captions),
            "tokens": [tokenise(caption) for caption in self.captions],
        }
        text = json.dumps(record, ensure_ascii=False, separators=(",", ":"))
        members = [("json", text.encode()), ("features.npy", _npy(self.features))]
        if self.boxes is not None:
            members.append(("boxes.npy", _npy(self.boxes)))
        if self.image is not None:
            content, suffix = self.image
            members.append((suffix, content))
        return [(f"{self.index:09d}.{suffix}", content) for suffix, content in members]


def write_shard(path: Path, samples: Iterable[Sample], *, first_image: int, first_caption: int) -> ShardInfo | None:
    """Write a shard in one step: it is either whole or absent. None, and no file, when there are no samples.

    StorageError when the disk refuses; a partial file is removed.
    """
    try:
        samples = iter(samples)
        first = next(samples, None)
        if first is None:
            return None
        with whole_file(path, durable=True) as stream:
            images, captions, written, digest = _write_tar(stream, chain([first], samples))
    except OSError as error:
        raise storage_error(path, error) from error
    return ShardInfo(
        file=path.name, sha256=digest, bytes=written, images=images, captions=captions,
        first_image=first_image, first_caption=first_caption,
    )


def _write_tar(stream: IO[bytes], samples: Iterable[Sample]) -> tuple[int, int, int, str]:
    """(images, captions, bytes, SHA-256) of the written tar."""
    images = captions = 0
    hashing = HashingWriter(stream)
    with tarfile.open(fileobj=hashing, mode="w|", format=tarfile.USTAR_FORMAT) as tar:
        for sample in samples:
            for name, content in sample.members():
                tar.addfile(_header(name, len(content)), io.BytesIO(content))
            images += 1
            captions += len(sample.captions)
    return images, captions, hashing.written, hashing.sha256


def sample_bytes_bound(captions: Sequence[str], *, feature_bytes: int, box_bytes: int, image_bytes: int) -> int:
    """Most bytes of a sample in a shard. Caption text is in it twice, the second time split into words."""
    text = 256 + sum(8 * len(caption.encode()) + 8 for caption in captions)
    contents = [text, feature_bytes + _NPY_HEADER]
    contents += [box_bytes + _NPY_HEADER] if box_bytes else []
    contents += [image_bytes] if image_bytes else []
    return sum(_BLOCK + -(-size // _BLOCK) * _BLOCK for size in contents)


def storage_error(path: Path, error: OSError) -> StorageError:
    """The StorageError for a write that failed."""
    if error.errno in {errno.ENOSPC, errno.EDQUOT}:
        return StorageError(
            "VSE-D006", "{file}: no space left on the disk; free some and start the same ingest again.", file=path
        )
    return StorageError(
        "VSE-D003", "{file}: cannot write ({reason}); check the folder and its rights.", file=path,
        reason=error.strerror or error,
    )


def _header(name: str, size: int) -> tarfile.TarInfo:
    """A tar header without time, user or rights of this machine."""
    header = tarfile.TarInfo(name)
    header.size = size
    header.mode = 0o644
    return header


def _npy(array: np.ndarray) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, array, allow_pickle=False)
    return buffer.getvalue()
