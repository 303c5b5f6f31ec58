"""External lists of captions that also fit an image (extended ground truths), read from a CSV file."""

from __future__ import annotations

import csv
import io
from pathlib import Path

import torch
from torch import Tensor

from vsetune.data.stored import storage
from vsetune.data.stored.dataset import Dataset
from vsetune.data.stored.plain_files import composed
from vsetune.data.stored.shards import split_records
from vsetune.data.stored.storage import MISFIT, NAME_TWICE, TABLE_LINE
from vsetune.errors import DataError, one_line

_COLUMNS = ("image", "caption_image", "caption")
_LIST_BYTES = 1 << 30
_DIGITS = 9


def relevant_pairs(dataset: Dataset, split: str, path: Path | str) -> Tensor:
    """(P, 2) int64, (image, caption) indices of the split: every image with its own captions and with the listed ones.

    path: a CSV file, or its s3:// address, with the columns image, caption_image (ids as ingested) and caption (place
    in the list of caption_image, from 0). Raises DataError, naming the line, for a file that does not fit the split.
    """
    places: dict[str, tuple[int, int, int]] = {}  # image id -> index, first caption, captions
    captions = 0
    for where, record in split_records(dataset, split):
        name, count = record.image_id, len(record.captions)
        if composed(name) in places:
            raise DataError(NAME_TWICE(where=where, name=f"image {one_line(name)!r}"))
        places[composed(name)] = (len(places), captions, count)
        captions += count
    pairs = {(index, first + n) for index, first, count in places.values() for n in range(count)}
    pairs |= set(_listed(path, split, places))
    return torch.tensor(sorted(pairs), dtype=torch.int64)


def _listed(path: Path | str, split: str, places: dict[str, tuple[int, int, int]]) -> list[tuple[int, int]]:
    content = storage.read_bytes(str(path), most=_LIST_BYTES)
    try:
        reader = csv.DictReader(io.StringIO(content.decode("utf-8-sig"), newline=""))
        if reader.fieldnames is None or not set(_COLUMNS) <= set(reader.fieldnames):
            found = one_line(", ".join(reader.fieldnames or []) or "nothing")
            raise DataError(TABLE_LINE(file=path, line=1, found=f"columns {found}", need=", ".join(_COLUMNS)))
        return [_pair(row, f"{path}: line {reader.line_num}", split, places) for row in reader]
    except (csv.Error, UnicodeDecodeError) as error:
        raise DataError(
            "VSE-D089", "{file}: cannot be read ({reason}); need a CSV file with {need}", file=path,
            reason=one_line(error), need=", ".join(_COLUMNS),
        ) from error


def _pair(
    row: dict[str, str], where: str, split: str, places: dict[str, tuple[int, int, int]]
) -> tuple[int, int]:
    image, caption_image = (composed(row[column] or "") for column in ("image", "caption_image"))
    for column, found in (("image", image), ("caption_image", caption_image)):
        if found not in places:
            raise DataError(MISFIT(
                where=where, found=f"image {one_line(repr(row[column]))}", need=f"an id of split {split} as ingested",
                fix="correct the list.",
            ))
    _, first, count = places[caption_image]
    text = (row["caption"] or "").strip()
    if not text.isdecimal() or len(text) > _DIGITS or int(text) >= count:
        raise DataError(MISFIT(
            where=where, found=f"caption {one_line(repr(text))}",
            need=f"0 to {count - 1} for image {row['caption_image']}", fix="correct the list.",
        ))
    return places[image][0], first + int(text)
