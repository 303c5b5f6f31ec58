"""Judgements of which captions and images of MS-COCO's test split fit each other, as published: ECCV Caption and CxC.

They name captions by the ids of MS-COCO, which a data set does not have: Karpathy's file of the splits has them.
"""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import permutations
from typing import Any, Protocol

import torch
from torch import Tensor

from vsetune.config.study.evaluation_settings import CocoSpec, has_all_crisscrossed
from vsetune.data.stored import storage
from vsetune.data.stored.dataset import Dataset
from vsetune.data.stored.plain_files import caption_line, parse_json
from vsetune.data.stored.shards import split_records
from vsetune.data.stored.storage import MISFIT, TABLE_LINE
from vsetune.errors import DataError, one_line
from vsetune.home.addresses import join
from vsetune.home.paths import under_home

_FILE_BYTES = 1 << 30
_FITS = 3.0
"""Least rating (0 to 5) of a caption that fits an image, or another caption (Parekh et al. 2021, section 3)."""
_IMAGES_FIT = 2.5
"""Least rating of two images that fit, as the released code of VSE-infinity has it (decision 0019)."""


Directions = tuple[Tensor, Tensor]
"""Pairs that fit, of image queries and of caption queries: (P, 2) int64 of image and caption as rows of a split."""


@dataclass(frozen=True)
class CocoPlaces:
    """Rows of a split by name. images: by id of MS-COCO and by file name. captions: by id of MS-COCO. siblings: rows of
    every two captions of one image, in both orders."""

    split: str
    images: Mapping[int | str, int]
    captions: Mapping[int, int]
    siblings: Sequence[tuple[int, int]]

    @classmethod
    def of(cls, dataset: Dataset, split: str, file: str) -> CocoPlaces:
        """file: `dataset_coco.json` of Karpathy and Fei-Fei (2015), with `cocoid` and `sentid`, from which the data set
        was made. DataError in one line for a file of other images or captions."""
        entries = {entry.get("filename"): entry for entry in _entries(file)}
        images: dict[int | str, int] = {}
        captions: dict[int, int] = {}
        siblings: list[tuple[int, int]] = []
        first = 0
        for row, (_, record) in enumerate(split_records(dataset, split)):
            entry, name = entries.get(record.image_id), one_line(record.image_id)
            if entry is None:
                raise _misfit(file, f"no image {name}", f"all images of split {split}")
            try:
                ids = [int(each["sentid"]) for each in entry["sentences"] if caption_line(each["raw"])]
                texts = list(filter(None, (caption_line(each["raw"]) for each in entry["sentences"])))
                number = int(entry["cocoid"])
            except (KeyError, TypeError, ValueError, AttributeError) as error:
                need = "cocoid, and sentences with sentid and raw"
                raise _misfit(f"{file}: image {name}", f"{type(error).__name__} {one_line(error)}", need) from error
            if texts != [*record.captions]:
                raise _misfit(f"{file}: image {name}", "other captions", f"those of split {split}")
            images[record.image_id] = images[number] = row
            captions |= {each: first + place for place, each in enumerate(ids)}
            siblings += permutations(range(first, first + len(ids)), 2)
            first += len(ids)
        return cls(split, images, captions, siblings)

    def image(self, name: int | str, *, where: str) -> int:
        """Its row. DataError for one that the split does not have."""
        if name not in self.images:
            raise self._unknown(f"image {one_line(name)}", where)
        return self.images[name]

    def caption(self, number: int, *, where: str) -> int:
        """Its row. DataError for one that the split does not have."""
        if number not in self.captions:
            raise self._unknown(f"caption {number}", where)
        return self.captions[number]

    def caption_named(self, name: str, *, where: str) -> int:
        """The row of the caption DATASET:sentid:NUMBER. DataError as in `caption`, and for another name."""
        number = name.rpartition(":")[2]
        if not number.isdecimal():
            raise self._unknown(f"caption {one_line(name) or 'without a name'}", where)
        return self.caption(int(number), where=where)

    def _unknown(self, found: str, where: str) -> DataError:
        need, fix = f"one of split {self.split}", "score the split that was judged."
        return DataError(MISFIT(where=where, found=found, need=need, fix=fix))


@dataclass(frozen=True)
class Crisscrossed:
    """Pairs of rows that fit (Parekh et al. 2021), each (P, 2) int64. across: image and caption. captions, images:
    query and candidate, in both orders; None where only the file of `across` is named."""

    across: Tensor
    captions: Tensor | None = None
    images: Tensor | None = None


def judgements_of(dataset: Dataset, split: str, wanted: CocoSpec) -> tuple[Directions | None, Crisscrossed | None]:
    """The wanted pairs that fit, of ECCV Caption and of CxC. DataError for files that do not fit the split."""
    places = CocoPlaces.of(dataset, split, under_home(wanted.captions))
    return (
        None if wanted.eccv_caption is None else eccv_caption(under_home(wanted.eccv_caption), places),
        None if wanted.cxc is None else crisscrossed(under_home(wanted.cxc), places),
    )


def eccv_caption(folder: str, places: CocoPlaces) -> Directions:
    """ECCV Caption (Chun et al. 2022), its `eccv_image_to_caption.json` and `eccv_caption_to_image.json`: 1,261 images
    and 1,332 captions as queries, each direction with a list of its own. DataError for other files."""
    file = join(folder, "eccv_image_to_caption.json")
    by_image = [
        (places.image(image, where=where), places.caption(caption, where=where))
        for where, image, caption in _lists(file)
    ]
    other = join(folder, "eccv_caption_to_image.json")
    by_caption = [
        (places.image(image, where=where), places.caption(caption, where=where))
        for where, caption, image in _lists(other)
    ]
    return _pairs(by_image, file), _pairs(by_caption, other)


def crisscrossed(path: str, places: CocoPlaces) -> Crisscrossed:
    """Crisscrossed Captions (Parekh et al. 2021). path: its `sits_test.csv`, or the folder that also has `sts_test.csv`
    and `sis_test.csv`.

    A caption and an image fit if they are rated 3 or more, which leaves out a few captions of their own image. Two
    captions fit if they are rated 3 or more, or of one image. Two images fit if they are rated 2.5 or more in one of
    their two orders. DataError for other files.
    """
    if not has_all_crisscrossed(path):
        return Crisscrossed(_across(path, places))
    by_text, by_image = join(path, "sts_test.csv"), join(path, "sis_test.csv")
    captions = _rated(by_text, {"caption1": places.caption_named, "caption2": places.caption_named}, _FITS)
    images = _rated(by_image, {"image1": places.image, "image2": places.image}, _IMAGES_FIT)
    return Crisscrossed(
        _across(join(path, "sits_test.csv"), places),
        _pairs([*places.siblings, *_both_orders(captions)], by_text), _pairs(_both_orders(images), by_image),
    )


def _across(file: str, places: CocoPlaces) -> Tensor:
    return _pairs(_rated(file, {"image": places.image, "caption": places.caption_named}, _FITS), file)


class _RowOf(Protocol):
    def __call__(self, name: str, *, where: str) -> int:
        """The row of an item of this name. where: in the file."""


def _rated(file: str, columns: Mapping[str, _RowOf], least: float) -> list[tuple[int, int]]:
    """The rows of the pairs that are rated `least` or more. columns: two, with what knows the rows of their items."""
    need, pairs = ", ".join((*columns, "agg_score")), []
    try:
        reader = csv.DictReader(io.StringIO(storage.read_bytes(file, most=_FILE_BYTES).decode("utf-8-sig"), newline=""))
        if not {*columns, "agg_score"} <= set(reader.fieldnames or ()):
            found = one_line(", ".join(reader.fieldnames or []) or "nothing")
            raise DataError(TABLE_LINE(file=file, line=1, found=f"columns {found}", need=need))
        for row in reader:
            where, rating = f"{file}: line {reader.line_num}", _number(row["agg_score"])
            first, second = (row_of(row[column] or "", where=where) for column, row_of in columns.items())
            if not math.isfinite(rating):
                found = one_line(row["agg_score"] or "nothing")
                raise DataError(TABLE_LINE(file=file, line=reader.line_num, found=found, need="a rating"))
            pairs += [(first, second)] if rating >= least else []
    except (csv.Error, UnicodeDecodeError) as error:
        raise DataError(
            "VSE-D089", "{file}: cannot be read ({reason}); need a CSV file with {need}", file=file,
            reason=one_line(error), need=need,
        ) from error
    return pairs


def _both_orders(pairs: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    return [pair for first, second in pairs if first != second for pair in ((first, second), (second, first))]


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


def _pairs(listed: list[tuple[int, int]], file: str) -> Tensor:
    if not listed:
        raise _misfit(file, "no pair that fits", "one at least")
    return torch.tensor(listed, dtype=torch.int64)


def _number(text: str | None) -> float:
    try:
        return float(text or "nan")
    except ValueError:
        return math.nan


def _misfit(where: str, found: str, need: str) -> DataError:
    return DataError(MISFIT(where=where, found=found, need=need, fix="name the file that it was made from."))
