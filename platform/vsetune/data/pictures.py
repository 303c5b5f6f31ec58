"""Single images of a split for people to look at: picture, captions, words, places of the regions."""

from __future__ import annotations

import io
import json
import tarfile
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import BinaryIO

import numpy as np
from PIL import Image

from vsetune.data import storage
from vsetune.data.dataset import Dataset
from vsetune.data.manifest import ShardInfo
from vsetune.data.raw import decode_image
from vsetune.data.tokens import with_case
from vsetune.errors import DataError

_QUALITY = 82


@dataclass(frozen=True)
class Thumbnail:
    """A small picture. jpeg: the bytes of a JPEG file. width, height: pixels."""

    jpeg: bytes
    width: int
    height: int


@dataclass(frozen=True)
class Picture:
    """index: in the split. name: id as ingested. first_caption: index in the split of the first of its captions.

    words: of every caption as written, one per token id but start and end. boxes: (regions, 4) x1, y1, x2, y2, 0 to 1
    of the image; None where the data set has none. thumbnail: None where images are not stored.
    """

    index: int
    name: str
    first_caption: int
    captions: list[str]
    words: list[list[str]]
    boxes: np.ndarray | None
    thumbnail: Thumbnail | None


def read_pictures(dataset: Dataset, split: str, wanted: Collection[int], *, size: int) -> dict[int, Picture]:
    """Images of a split by index. size: pixels of the longer side of their thumbnails.

    Only the shards that hold them are read. DataError when one is damaged.
    """
    found: dict[int, Picture] = {}
    for shard in dataset.split(split).shards:
        inside = {index for index in wanted if 0 <= index - shard.first_image < shard.images}
        if inside:
            found |= {picture.index: picture for picture in _read(dataset, shard, inside, size)}
    missing = sorted(set(wanted) - set(found))
    if missing:
        raise DataError(f"{dataset.path}: split {split} has no image {missing[0]}; check with `vsetune data verify`.")
    return found


def _read(dataset: Dataset, shard: ShardInfo, wanted: Collection[int], size: int) -> Iterator[Picture]:
    url = dataset.shard_url(shard.file)
    last, keys = f"{max(wanted):09d}", {f"{index:09d}" for index in wanted}
    samples: dict[str, dict[str, bytes]] = {}
    try:
        with storage.open_stream(url) as stream:
            for key, suffix, content in _members(stream, keys, last):
                samples.setdefault(key, {})[suffix] = content
        for key, members in samples.items():
            yield _picture(f"{url}: sample {key}", members, size)
    except (tarfile.TarError, OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise DataError(f"{url}: damaged shard ({error}); check with `vsetune data verify {dataset.path}`.") from error


def _members(stream: BinaryIO, keys: set[str], last: str) -> Iterator[tuple[str, str, bytes]]:
    """(key, suffix, content) of these samples; keys rise within a shard, so what follows the last is not read."""
    with tarfile.open(fileobj=stream, mode="r|") as tar:
        for member in tar:
            key, _, suffix = member.name.partition(".")
            if key > last:
                return
            file = tar.extractfile(member) if key in keys and suffix in {"json", "boxes.npy", "jpg", "png"} else None
            if file is not None:
                yield key, suffix, file.read()


def _picture(where: str, members: dict[str, bytes], size: int) -> Picture:
    described = json.loads(members["json"])
    image, boxes = members.get("jpg") or members.get("png"), members.get("boxes.npy")
    captions, index = [str(text) for text in described["captions"]], int(described["index"])
    return Picture(
        index=index, name=str(described.get("image", index)), first_caption=int(described["first_caption"]),
        captions=captions, words=[with_case(*each) for each in zip(described["tokens"], captions, strict=True)],
        boxes=None if boxes is None else np.lib.format.read_array(io.BytesIO(boxes), allow_pickle=False),
        thumbnail=None if image is None else thumbnail(decode_image(image, place=where), size),
    )


def thumbnail(image: Image.Image, size: int) -> Thumbnail:
    """The image scaled so that its longer side has `size` pixels; a smaller one is not enlarged beyond twice."""
    scale = min(2.0, size / max(image.size))
    width, height = (max(1, round(side * scale)) for side in image.size)
    buffer = io.BytesIO()
    image.resize((width, height), Image.Resampling.LANCZOS).save(buffer, format="JPEG", quality=_QUALITY)
    return Thumbnail(buffer.getvalue(), width, height)
