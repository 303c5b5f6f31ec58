"""Files in the formats of Karpathy, ECCV Caption and Crisscrossed Captions, about a split made here."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from vsetune.data.stored.dataset import Dataset
from vsetune.data.stored.shards import split_records


def image_number(row: int) -> int:
    """The id of an image in these files, by its row in the split."""
    return 900 - row


def caption_number(row: int) -> int:
    """The id of a caption in these files, by its row in the split."""
    return 5000 - 3 * row


def write_captions(folder: Path, dataset: Dataset, split: str) -> str:
    """`dataset_coco.json`: images and captions of the split, images in the opposite order, some of their spaces double.
    """
    images: list[dict[str, Any]] = []
    first = 0
    for row, (_, record) in enumerate(split_records(dataset, split)):
        sentences = [
            {"raw": text.replace(" ", "  ", 1), "sentid": caption_number(first + place)}
            for place, text in enumerate(record.captions)
        ]
        first += len(sentences)
        images.append({"filename": record.image_id, "cocoid": image_number(row), "sentences": sentences})
    path = folder / "dataset_coco.json"
    path.write_text(json.dumps({"images": [{"filename": "other.jpg"}, *reversed(images)]}))
    return str(path)


def write_eccv(folder: Path, by_image: Mapping[int, Sequence[int]], by_caption: Mapping[int, Sequence[int]]) -> str:
    """The two lists of ECCV Caption, given as ids."""
    for name, lists in (("eccv_image_to_caption", by_image), ("eccv_caption_to_image", by_caption)):
        (folder / f"{name}.json").write_text(json.dumps({str(query): [*found] for query, found in lists.items()}))
    return str(folder)


def write_cxc(folder: Path, *rows: tuple[int, str, float]) -> str:
    """`sits_test.csv`: id of a caption, file name of an image, rating."""
    path = folder / "sits_test.csv"
    lines = [f"COCO_val2014:sentid:{caption},{image},{rating:g},c2i_intrasim" for caption, image, rating in rows]
    path.write_text("\n".join(["caption,image,agg_score,sampling_method", *lines]) + "\n")
    return str(path)


def write_all_cxc(
    folder: Path, across: Sequence[tuple[int, str, float]], captions: Sequence[tuple[int, int, float]],
    images: Sequence[tuple[str, str, float]],
) -> str:
    """The three files of Crisscrossed Captions, captions by id and images by file name."""
    write_cxc(folder, *across)
    for name, kind, rows in (
        ("sts", "caption", [[*(f"COCO_val2014:sentid:{each}" for each in row[:2]), row[2]] for row in captions]),
        ("sis", "image", images),
    ):
        lines = [f"{kind}1,{kind}2,agg_score,sampling_method"]
        lines += [f"{first},{second},{rating:g},made" for first, second, rating in rows]
        (folder / f"{name}_test.csv").write_text("\n".join(lines) + "\n")
    return str(folder)
