"""ECCV Caption and Crisscrossed Captions, read by the ids of Karpathy's file."""

from __future__ import annotations

import json
from itertools import permutations
from pathlib import Path
from typing import Any

import pytest
from coco_files import caption_number, image_number, write_all_cxc, write_captions, write_cxc, write_eccv
from refusals import refused

from vsetune.data.captions.coco_judgements import CocoPlaces, crisscrossed, eccv_caption
from vsetune.data.stored.dataset import Dataset
from vsetune.data.stored.shards import split_records
from vsetune.errors import DataError

CAPTIONS = [["a dog runs", "a brown dog"], ["a cat"], ["two birds", "birds fly", "a flock"]]


@pytest.fixture
def dataset(tiny: Any) -> Dataset:
    return tiny(CAPTIONS).write()


@pytest.fixture
def places(dataset: Dataset, tmp_path: Path) -> CocoPlaces:
    return CocoPlaces.of(dataset, "train", write_captions(tmp_path, dataset, "train"))


def test_each_direction_of_eccv_caption_has_its_own_list(places: CocoPlaces, tmp_path: Path) -> None:
    folder = write_eccv(
        tmp_path, {image_number(2): [caption_number(0), caption_number(5)]},
        {caption_number(1): [image_number(0), image_number(1)], caption_number(2): [image_number(1)]},
    )
    by_image, by_caption = eccv_caption(folder, places)
    assert by_image.tolist() == [[2, 0], [2, 5]]
    assert by_caption.tolist() == [[0, 1], [1, 1], [1, 2]]


def test_crisscrossed_pairs_fit_from_a_rating_of_3_on(places: CocoPlaces, dataset: Dataset, tmp_path: Path) -> None:
    names = [record.image_id for _, record in split_records(dataset, "train")]
    file = write_cxc(
        tmp_path, (caption_number(0), names[0], 4.97), (caption_number(0), names[2], 3.0),
        (caption_number(3), names[2], 2.99),
    )
    found = crisscrossed(file, places)
    assert found.across.tolist() == [[0, 0], [2, 0]]
    assert (found.captions, found.images) == (None, None)


def test_captions_fit_from_3_on_or_with_one_image_and_images_from_2_5_on(
    places: CocoPlaces, dataset: Dataset, tmp_path: Path
) -> None:
    names = [record.image_id for _, record in split_records(dataset, "train")]
    ids = [caption_number(row) for row in range(6)]
    folder = write_all_cxc(
        tmp_path, [(ids[0], names[0], 5.0)],
        [(ids[2], ids[5], 3.0), (ids[2], ids[0], 2.9), (ids[0], ids[1], 0.5)],  # the last two are of one image
        [(names[0], names[1], 2.49), (names[1], names[0], 2.5), (names[1], names[2], 1.0)],
    )
    found = crisscrossed(folder, places)
    of_one_image = {(0, 1), *permutations((3, 4, 5), 2)}
    assert {tuple(pair) for pair in found.captions.tolist()} == of_one_image | {(1, 0), (2, 5), (5, 2)}
    assert sorted(found.images.tolist()) == [[0, 1], [1, 0]]
    (tmp_path / "sis_test.csv").write_text(f"image1,image2,agg_score\n{names[0]},{names[1]},1\n")
    with refused("VSE-D024", by=DataError, where=f"{folder}/sis_test.csv", found="no pair that fits"):
        crisscrossed(folder, places)


@pytest.mark.parametrize(("text", "message", "fields"), [
    ("caption,image\n", "VSE-D052", {"line": 1, "found": "columns caption, image"}),
    ("caption,image,agg_score\nx:sentid:5000,{0},high\n", "VSE-D052", {"line": 2}),
    ("caption,image,agg_score\nx:sentid:no,{0},3\n", "VSE-D024", {"found": "caption x:sentid:no"}),
    ("caption,image,agg_score\nx:sentid:7,{0},3\n", "VSE-D024", {"found": "caption 7"}),
    ("caption,image,agg_score\nx:sentid:5000,nobody.jpg,1\n", "VSE-D024", {"found": "image nobody.jpg"}),
])
def test_crisscrossed_files_that_do_not_fit_are_refused(
    text: str, message: str, fields: dict[str, Any], places: CocoPlaces, dataset: Dataset, tmp_path: Path
) -> None:
    (tmp_path / "sits.csv").write_text(text.replace("{0}", next(split_records(dataset, "train"))[1].image_id))
    with refused(message, by=DataError, **fields):
        crisscrossed(str(tmp_path / "sits.csv"), places)


@pytest.mark.parametrize(("by_image", "found"), [({"1": [5000]}, "image 1"), ({"900": [1]}, "caption 1")])
def test_ids_of_other_images_are_refused_with_their_query(
    by_image: Any, found: str, places: CocoPlaces, tmp_path: Path
) -> None:
    folder = write_eccv(tmp_path, by_image, {})
    (query,) = by_image
    where = f"{folder}/eccv_image_to_caption.json: {query}"
    with refused("VSE-D024", by=DataError, where=where, found=found, need="one of split train"):
        eccv_caption(folder, places)
    (tmp_path / "eccv_image_to_caption.json").write_text("[1]")
    with refused("VSE-D024", by=DataError, where=f"{folder}/eccv_image_to_caption.json"):
        eccv_caption(folder, places)


@pytest.mark.parametrize("change", ["text", "order", "missing", "no_id"])
def test_a_file_of_other_captions_is_refused(change: str, dataset: Dataset, tmp_path: Path) -> None:
    file = Path(write_captions(tmp_path, dataset, "train"))
    plain = json.loads(file.read_text())
    entry = plain["images"][-1]  # of the first image
    if change == "text":
        entry["sentences"][0]["raw"] = "a dog sleeps"
    elif change == "order":
        entry["sentences"].reverse()
    elif change == "missing":
        entry["filename"] = "elsewhere.jpg"
    else:
        del entry["sentences"][0]["sentid"]
    file.write_text(json.dumps(plain))
    with refused("VSE-D024", by=DataError):
        CocoPlaces.of(dataset, "train", str(file))
