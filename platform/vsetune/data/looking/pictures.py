"""Single images of a split for people to look at: picture, captions, words, places of the regions."""

from __future__ import annotations

import io
from collections.abc import Collection
from dataclasses import dataclass

import numpy as np
from PIL import Image

from vsetune.data.batches.pixels import decoded
from vsetune.data.stored.dataset import Dataset
from vsetune.data.stored.samples import Record
from vsetune.data.stored.shards import Photograph, read_some
from vsetune.data.stored.tokens import with_case
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

    Reads only the shards that contain them. DataError when one is damaged.
    """
    found: dict[int, Picture] = {}
    for shard in dataset.split(split).shards:
        inside = {index for index in wanted if 0 <= index - shard.first_image < shard.images}
        if inside:
            found |= {each[0].index: _picture(*each, size) for each in read_some(dataset, shard, inside)}
    missing = sorted(set(wanted) - set(found))
    if missing:
        raise DataError(f"{dataset.path}: split {split} has no image {missing[0]}; check with `vsetune data verify`.")
    return found


def _picture(
    record: Record, boxes: np.ndarray | None, photograph: Photograph | None, size: int
) -> Picture:
    return Picture(
        index=record.index, name=record.name or str(record.index), first_caption=record.first_caption,
        captions=record.captions, words=list(map(with_case, record.tokens, record.captions)), boxes=boxes,
        thumbnail=None if photograph is None else thumbnail(decoded(photograph), size),
    )


def thumbnail(image: Image.Image, size: int) -> Thumbnail:
    """The image scaled so that its longer side has `size` pixels, but enlarged at most twice."""
    scale = min(2.0, size / max(image.size))
    width, height = (max(1, round(side * scale)) for side in image.size)
    buffer = io.BytesIO()
    image.resize((width, height), Image.Resampling.LANCZOS).save(buffer, format="JPEG", quality=_QUALITY)
    return Thumbnail(buffer.getvalue(), width, height)
