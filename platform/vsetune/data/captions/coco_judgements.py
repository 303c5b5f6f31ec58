"""Judgements of which captions fit which images of MS-COCO's test split, as published: ECCV Caption and CxC.

They name captions by the ids of MS-COCO, which a data set does not have: Karpathy's file of the splits has them.
"""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from vsetune.data import messages
from vsetune.data.stored import storage
from vsetune.data.stored.dataset import Dataset
from vsetune.data.stored.plain_files import parse_json
from vsetune.data.stored.shards import split_records
from vsetune.errors import DataError, one_line
from vsetune.storage.addresses import join

_FILE_BYTES = 1 << 30
_CXC_COLUMNS = ("caption", "image", "agg_score")
_FITS = 3.0
"""Least rating (0 to 5) of a caption that fits an image (Parekh et al. 2021, section 3)."""


Directions = tuple[Tensor, Tensor]
"""Pairs that fit, of image queries and of caption queries: (P, 2) int64 of image and caption as rows of a split."""


@dataclass(frozen=True)
class CocoPlaces:
    """Rows of a split by name. images: by id of MS-COCO and by file name. captions: by id of MS-COCO."""

    split: str
    images: Mapping[int | str, int]
    captions: Mapping[int, int]

    @classmethod
    def of(cls, dataset: Dataset, split: str, file: str) -> CocoPlaces:
        """file: `dataset_coco.json` of Karpathy and Fei-Fei (2015), with `cocoid` and `sentid`, from which the data set
        was made. DataError in one line for a file of other images or captions."""
        entries = {entry.get("filename"): entry for entry in _entries(file)}
        images: dict[int | str, int] = {}
        captions: dict[int, int] = {}
        first = 0
        for row, (_, record) in enumerate(split_records(dataset, split)):
            entry, name = entries.get(record.image_id), one_line(record.image_id)
            if entry is None:
                raise _misfit(file, f"no image {name}", f"all images of split {split}")
            try:
                ids = [int(each["sentid"]) for each in entry["sentences"] if each["raw"].strip()]
                texts = [" ".join(each["raw"].split()) for each in entry["sentences"] if each["raw"].strip()]
                number = int(entry["cocoid"])
            except (KeyError, TypeError, ValueError, AttributeError) as error:
                need = "cocoid, and sentences with sentid and raw"
                raise _misfit(f"{file}: image {name}", f"{type(error).__name__} {one_line(error)}", need) from error
            if texts != [*record.captions]:
                raise _misfit(f"{file}: image {name}", "other captions", f"those of split {split}")
            images[record.image_id] = images[number] = row
            captions |= {each: first + place for place, each in enumerate(ids)}
            first += len(ids)
        return cls(split, images, captions)

    def pair(self, image: int | str, caption: int, *, where: str) -> tuple[int, int]:
        """The rows of both. DataError for one that the split does not have."""
        if image not in self.images or caption not in self.captions:
            unknown = f"image {one_line(image)}" if image not in self.images else f"caption {caption}"
            raise DataError(messages.MISFIT(
                where=where, found=unknown, need=f"one of split {self.split}", fix="score the split that was judged.",
            ))
        return self.images[image], self.captions[caption]


def eccv_caption(folder: str, places: CocoPlaces) -> Directions:
    """ECCV Caption (Chun et al. 2022), its `eccv_image_to_caption.json` and `eccv_caption_to_image.json`: 1,261 images
    and 1,332 captions as queries, each direction with a list of its own. DataError for other files."""
    by_image = [
        places.pair(image, caption, where=where)
        for where, image, caption in _lists(join(folder, "eccv_image_to_caption.json"))
    ]
    by_caption = [
        places.pair(image, caption, where=where)
        for where, caption, image in _lists(join(folder, "eccv_caption_to_image.json"))
    ]
    return _pairs(by_image), _pairs(by_caption)


def crisscrossed(file: str, places: CocoPlaces) -> Tensor:
    """Crisscrossed Captions (Parekh et al. 2021), its `sits_test.csv`: the pairs rated 3 or more, which leave out a few
    captions of their own image. (P, 2) int64 of image and caption, of both directions. DataError for other files."""
    pairs = []
    try:
        reader = csv.DictReader(io.StringIO(storage.read_bytes(file, most=_FILE_BYTES).decode("utf-8"), newline=""))
        if not set(_CXC_COLUMNS) <= set(reader.fieldnames or ()):
            found = one_line(", ".join(reader.fieldnames or []) or "nothing")
            need = ", ".join(_CXC_COLUMNS)
            raise DataError(messages.TABLE_LINE(file=file, line=1, found=f"columns {found}", need=need))
        for row in reader:
            caption, rating = (row["caption"] or "").rpartition(":")[2], _number(row["agg_score"])
            if not caption.isdecimal() or not math.isfinite(rating):
                found = one_line(f"{row['caption']}, {row['agg_score']}")
                need = "a caption DATASET:sentid:NUMBER and a rating"
                raise DataError(messages.TABLE_LINE(file=file, line=reader.line_num, found=found, need=need))
            pair = places.pair(row["image"] or "", int(caption), where=f"{file}: line {reader.line_num}")
            pairs += [pair] if rating >= _FITS else []
    except (csv.Error, UnicodeDecodeError) as error:
        need = ", ".join(_CXC_COLUMNS)
        raise DataError(messages.LIST_UNREADABLE(file=file, reason=one_line(error), need=need)) from error
    return _pairs(pairs)


def _entries(file: str) -> list[dict[str, Any]]:
    plain = parse_json(storage.read_bytes(file, most=_FILE_BYTES), where=file, fix="fetch the file again.")
    entries = plain.get("images") if isinstance(plain, dict) else None
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        raise _misfit(file, "no list `images` of objects", "dataset_coco.json of Karpathy")
    return entries


def _lists(file: str) -> Iterator[tuple[str, int, int]]:
    """(place in the file, query, positive) of every entry. Both are ids."""
    plain = parse_json(storage.read_bytes(file, most=_FILE_BYTES), where=file, fix="fetch the file again.")
    try:
        lists = {int(query): [int(each) for each in positives] for query, positives in plain.items()}
    except (AttributeError, TypeError, ValueError) as error:
        raise _misfit(file, one_line(error), "an object with a list of ids for every id") from error
    for query, positives in lists.items():
        for each in positives:
            yield f"{file}: {query}", query, each


def _pairs(listed: list[tuple[int, int]]) -> Tensor:
    return torch.tensor(listed, dtype=torch.int64).reshape(-1, 2)


def _number(text: str | None) -> float:
    try:
        return float(text or "nan")
    except ValueError:
        return math.nan


def _misfit(where: str, found: str, need: str) -> DataError:
    return DataError(messages.MISFIT(where=where, found=found, need=need, fix="name the file that it was made from."))
