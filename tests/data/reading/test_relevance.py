"""Extended ground truths: a CSV file of further captions that fit an image."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from refusals import refused

from vsetune.data.captions.relevance_lists import relevant_pairs
from vsetune.data.stored.dataset import Dataset
from vsetune.data.stored.shards import split_records

HEADER = "image,caption_image,caption\n"
CAPTIONS = [["a dog runs", "a brown dog"], ["a cat"], ["two birds", "birds fly", "a flock"]]


def ids(dataset: Dataset) -> list[tuple[str, int]]:
    return [(record.image_id, len(record.captions)) for _, record in split_records(dataset, "train")]


@pytest.fixture
def dataset(tiny: Any) -> Dataset:
    return tiny(CAPTIONS).write()


def write(folder: Path, text: str) -> Path:
    path = folder / "relevance.csv"
    path.write_text(text)
    return path


def test_listed_captions_are_added_to_the_own_ones(dataset: Dataset, tmp_path: Path) -> None:
    names = ids(dataset)
    own, captions = [], 0
    for index, (_, count) in enumerate(names):
        own += [(index, captions + number) for number in range(count)]
        captions += count
    (first, count), (second, _) = names[0], names[1]
    path = write(tmp_path, f"{HEADER}{first},{second},0\n{second},{second},0\n")
    found = [tuple(pair) for pair in relevant_pairs(dataset, "train", path).tolist()]
    assert found == sorted({*own, (0, count)})


def test_a_list_without_lines_is_the_ordinary_ground_truth(dataset: Dataset, tmp_path: Path) -> None:
    assert len(relevant_pairs(dataset, "train", write(tmp_path, HEADER))) == sum(count for _, count in ids(dataset))


@pytest.mark.parametrize(
    ("text", "message", "fields"),
    [
        ("picture,text\n", "VSE-D052", {"line": 1, "found": "columns picture, text"}),
        (HEADER + "nobody,{0},0\n", "VSE-D024", {"found": "image 'nobody'"}),
        (HEADER + "{0},{0},0\n{0},{0},99\n", "VSE-D024", {"found": "caption '99'"}),
        (HEADER + "{0},{0},-1\n", "VSE-D024", {"found": "caption '-1'"}),
        (HEADER + "{0},{0}\n", "VSE-D024", {"found": "caption ''"}),
    ],
)
def test_a_line_that_does_not_fit_is_refused(text, message, fields, dataset: Dataset, tmp_path: Path) -> None:
    with refused(message, **fields):
        relevant_pairs(dataset, "train", write(tmp_path, text.format(ids(dataset)[0][0])))


def test_a_missing_file_is_named(dataset: Dataset, tmp_path: Path) -> None:
    with refused("VSE-D001"):
        relevant_pairs(dataset, "train", tmp_path / "none.csv")
