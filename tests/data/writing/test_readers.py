import io
import itertools
import json
import os
import random
import re
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pydantic import TypeAdapter

from vsetune.config.sources.recipe import AnySource, IngestRecipe, SplitShares
from vsetune.data.looking.verify import verify
from vsetune.data.making.ingest import ingest
from vsetune.data.making.raw import RawDataset
from vsetune.data.making.readers import read_raw
from vsetune.data.making.readers.iapr import draw_splits, parse_annotation
from vsetune.data.progress import SilentProgress
from vsetune.data.stored.manifest import Manifest
from vsetune.errors import ConfigError, DataError

Save = Callable[..., bytes]
_SOURCE: TypeAdapter[AnySource] = TypeAdapter(AnySource)


def read(**plain: Any) -> RawDataset:
    return read_raw(_SOURCE.validate_python(plain))


def ids(raw: RawDataset) -> dict[str, list[str]]:
    return {name: [image.id for image in split.images] for name, split in raw.splits.items()}


@pytest.fixture
def karpathy(tmp_path: Path, save_image: Save, write_json: Callable[[Path, Any], int]) -> Callable[..., RawDataset]:
    """Reads a dataset_*.json of one image per given split; `entries` replaces them."""

    def make(*splits: str, restval: str = "train", entries: list[Any] | None = None) -> RawDataset:
        made = []
        for number, split in enumerate(splits):
            folder = {"filepath": "val2014"} if number % 2 else {}
            save_image(tmp_path / "images" / folder.get("filepath", "") / f"{number}.jpg")
            sentences = [{"raw": f"Caption {number}\n {word} ."} for word in ("one", "two")]
            made.append({"split": split, "filename": f"{number}.jpg", "sentences": sentences, **folder})
        (tmp_path / "images").mkdir(exist_ok=True)
        write_json(tmp_path / "dataset.json", {"images": made if entries is None else entries})
        return read(
            layout="karpathy", captions=str(tmp_path / "dataset.json"), images=str(tmp_path / "images"), restval=restval
        )

    return make


def test_karpathy_splits_keep_the_order_of_the_file(karpathy: Callable[..., RawDataset]) -> None:
    raw = karpathy("train", "val", "test", "train")
    assert ids(raw) == {"train": ["0.jpg", "3.jpg"], "val": ["1.jpg"], "test": ["2.jpg"]}
    assert raw.splits["val"].images[0].captions == ("Caption 1 one .", "Caption 1 two .")


def test_restval_trains_unless_it_is_left_out(karpathy: Callable[..., RawDataset]) -> None:
    assert ids(karpathy("train", "restval"))["train"] == ["0.jpg", "1.jpg"]
    left = karpathy("train", "restval", restval="leave_out")
    assert ids(left)["train"] == ["0.jpg"]
    assert left.notes == ["dataset.json: left out 1 images of the split restval"]


def test_a_karpathy_image_without_a_file_is_refused(karpathy: Callable[..., RawDataset]) -> None:
    entry = {"split": "train", "filename": "none.jpg", "sentences": [{"raw": "a dog"}]}
    with pytest.raises(DataError, match=r"1 of 1 images of dataset.json have no file, the first is .*none.jpg"):
        karpathy(entries=[entry])


@pytest.mark.parametrize(
    ("entries", "message"),
    [([], "no list `images`"), ([{"filename": "a.jpg"}], "images.0: no 'split' there"), (["x"], "images.0: no ")],
)
def test_a_karpathy_file_of_another_shape_is_refused(
    karpathy: Callable[..., RawDataset], entries: list[Any], message: str
) -> None:
    with pytest.raises(DataError, match=message):
        karpathy(entries=entries)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"sentences": ["a dog"]}, "sentences.0 is 'a dog', need an object with raw; fix the file."),
        ({"sentences": "a dog"}, "sentences is 'a dog', need a list; fix the file."),
        ({"sentences": {"raw": "a dog"}}, "sentences is {'raw': 'a dog'}, need a list; fix the file."),
        ({"sentences": None}, "sentences is None, need a list; fix the file."),
        ({"sentences": [{"raw": "a"}, {"tokens": ["a"]}]}, "sentences.1: no 'raw' there, need an object with raw"),
        ({"sentences": [{"raw": 3}]}, "raw is 3, need text; fix the file."),
        ({"split": ["train"]}, "split is ['train'], need text; fix the file."),
        ({"filename": ""}, "filename is '', need text; fix the file."),
        ({"filepath": ["val2014"]}, "filepath is ['val2014'], need text; fix the file."),
    ],
)
def test_a_karpathy_entry_of_wrong_types_is_told_by_its_key(
    karpathy: Callable[..., RawDataset], changed: dict[str, Any], message: str
) -> None:
    entry = {"split": "train", "filename": "0.jpg", "sentences": [{"raw": "a dog"}]}
    with pytest.raises(DataError, match=re.escape(f"dataset.json: images.0: {message}")):
        karpathy(entries=[entry | changed])


def test_a_karpathy_entry_may_leave_its_folder_empty(karpathy: Callable[..., RawDataset]) -> None:
    karpathy("train")
    entry = {"split": "train", "filename": "0.jpg", "filepath": None, "sentences": [{"raw": "a dog"}]}
    assert ids(karpathy(entries=[entry])) == {"train": ["0.jpg"]}


@pytest.fixture
def table(tmp_path: Path, save_image: Save) -> Callable[..., RawDataset]:
    """Reads a caption table of images a.jpg (in a folder) and b.jpg (in a tar file)."""

    def make(text: str, *, train: str = "a.jpg\n", dev: str = "b.jpg\n") -> RawDataset:
        save_image(tmp_path / "folder" / "a.jpg")
        content = save_image(tmp_path / "b.jpg", 7)
        with tarfile.open(tmp_path / "images-0.tar", "w") as tar:
            tar.add(tmp_path / "b.jpg", "deep/b.jpg")
        (tmp_path / "captions").write_text(text)
        (tmp_path / "train.txt").write_text(train)
        (tmp_path / "dev.txt").write_text(dev)
        raw = read(
            layout="caption_table", captions=str(tmp_path / "captions"),
            images=[str(tmp_path / "folder"), str(tmp_path / "images-*.tar")],
            lists={"train": str(tmp_path / "train.txt"), "dev": str(tmp_path / "dev.txt")},
        )
        source = raw.splits["dev"].images[0].source
        assert source is not None
        assert source.read() == content
        return raw

    return make


CSV = 'image,caption\na.jpg,"A dog, running ."\nb.jpg,A cat .\na.jpg,Another .\n'


def test_csv_captions_are_grouped_by_image(table: Callable[..., RawDataset]) -> None:
    raw = table(CSV)
    assert ids(raw) == {"train": ["a.jpg"], "dev": ["b.jpg"]}
    assert raw.splits["train"].images[0].captions == ("A dog, running .", "Another .")


def test_a_csv_with_everything_in_quotes_is_one(table: Callable[..., RawDataset]) -> None:
    quoted = '"image","caption"\n"a.jpg","A dog, running ."\n"b.jpg","A cat ."\n"a.jpg","Another ."\n'
    assert table(quoted).digest() == table(CSV).digest()


def test_token_lines_give_the_same_as_csv(table: Callable[..., RawDataset]) -> None:
    tokens = "a.jpg#0\tA dog, running .\nb.jpg#0\tA cat .\na.jpg#1\tAnother .\n"
    assert table(tokens).digest() == table(CSV).digest()


def test_captions_outside_the_lists_and_bare_images_are_counted(
    table: Callable[..., RawDataset], tmp_path: Path
) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "bare.jpg").write_bytes(b"")
    raw = table(CSV + "c.jpg,Not listed .\n", train="a.jpg\nbare.jpg\n")
    assert raw.notes == [
        "split train: left out 1 images without a caption, the first is bare.jpg",
        "captions: 1 images with captions are in no split list, e.g. c.jpg",
    ]


@pytest.mark.parametrize(
    ("text", "lists", "message"),
    [
        ("one two three", {}, r"need the header image,caption or lines name#0<tab>caption"),
        ("image,caption\na.jpg,A dog, running", {}, "line 2 has 3 fields, need 2"),
        ("a.jpg#0\tA dog\nb.jpg A cat", {}, "line 2 has no tab"),
        (CSV, {"train": "a.jpg\nz.jpg\n"}, "source.lists.train: 1 of 2 listed images have no file, the first is z.jpg"),
        (CSV, {"train": "folder/a.jpg\n"}, "the first is folder/a.jpg; images are found by their name without folders"),
        ('image,caption\na.jpg,A dog .\na.jpg,"A\nb.jpg,A cat .\n', {}, "the row that begins in line 3 is no CSV"),
        ('image,caption\na.jpg,"A dog" runs .\n', {}, "the row that begins in line 2 is no CSV"),
        (CSV, {"train": "\n"}, "the list is empty"),
        (CSV, {"train": "a.jpg\na.jpg\n"}, "a.jpg stands there more than once"),
    ],
)
def test_a_caption_table_that_does_not_fit_is_refused(
    table: Callable[..., RawDataset], text: str, lists: dict[str, str], message: str
) -> None:
    with pytest.raises(DataError, match=message) as raised:
        table(text, **lists)
    assert "\n" not in str(raised.value)


def test_the_mark_that_excel_and_notepad_put_before_a_text_is_no_part_of_it(table: Callable[..., RawDataset]) -> None:
    assert table(f"\ufeff{CSV}", train="\ufeffa.jpg\n").digest() == table(CSV).digest()


def test_two_images_of_one_name_are_refused_unless_they_are_equal(
    table: Callable[..., RawDataset], tmp_path: Path, save_image: Save
) -> None:
    save_image(tmp_path / "folder" / "2024" / "a.jpg")
    save_image(tmp_path / "folder" / "not_listed" / "c.jpg", 1)
    save_image(tmp_path / "folder" / "not_listed" / "small" / "c.jpg", 2)
    assert ids(table(CSV)) == {"train": ["a.jpg"], "dev": ["b.jpg"]}
    save_image(tmp_path / "folder" / "2024" / "a.jpg", 8)
    with pytest.raises(DataError, match=r"source.images: a.jpg stands for two images, .*2024/a.jpg and .*folder/a.jpg"):
        table(CSV)


def test_two_images_of_one_name_in_a_tar_are_refused(tmp_path: Path, save_image: Save) -> None:
    with tarfile.open(tmp_path / "images.tar", "w") as tar:
        for shade, folder in enumerate(("2023", "2024")):
            save_image(tmp_path / "a.jpg", shade)
            tar.add(tmp_path / "a.jpg", f"{folder}/a.jpg")
    (tmp_path / "captions").write_text("a.jpg#0\tA dog .\n")
    (tmp_path / "train.txt").write_text("a.jpg\n")
    with pytest.raises(DataError, match=r"two images, .*images.tar:2023/a.jpg and .*images.tar:2024/a.jpg"):
        read(
            layout="caption_table", captions=str(tmp_path / "captions"), images=[str(tmp_path / "images.tar")],
            lists={"train": str(tmp_path / "train.txt")},
        )


def test_an_image_that_trains_and_validates_is_told(table: Callable[..., RawDataset]) -> None:
    assert table(CSV, train="a.jpg\nb.jpg\n").notes == [
        "1 images stand in the splits train and dev, the first is b.jpg: what is measured on them is no test",
    ]


def test_a_missing_folder_is_named_with_its_key(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"source.captions: .*none.csv: cannot open \(No such file"):
        read(layout="caption_table", captions=str(tmp_path / "none.csv"), images=["x"], lists={"train": "t"})
    with pytest.raises(DataError, match=r"source.images: .*: found nothing there, need a folder"):
        read(layout="karpathy", captions="x", images=str(tmp_path / "none"))


def test_a_tar_cut_short_is_named(table: Callable[..., RawDataset], tmp_path: Path, save_image: Save) -> None:
    table(CSV)
    archive = tmp_path / "images-0.tar"
    archive.write_bytes(archive.read_bytes()[:700])
    with pytest.raises(DataError, match=r"images-0.tar"):
        read(
            layout="caption_table", captions=str(tmp_path / "captions"), images=[str(archive)],
            lists={"dev": str(tmp_path / "dev.txt")},
        )


def test_an_unset_variable_in_a_path_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("VSETUNE_NOWHERE", raising=False)
    with pytest.raises(ConfigError, match=r"source.captions: .* needs the environment variable VSETUNE_NOWHERE"):
        read(layout="caption_table", captions="${VSETUNE_NOWHERE}/c.csv", images=["x"], lists={"train": "t"})


@pytest.fixture
def feature_folder(tmp_path: Path) -> Callable[..., RawDataset]:
    """Writes train_ims.npy and train_caps.txt and reads them."""

    def make(features: np.ndarray, captions: int, boxes: np.ndarray | None = None, **keys: Any) -> RawDataset:
        np.save(tmp_path / "train_ims.npy", features)
        (tmp_path / "train_caps.txt").write_text("".join(f"caption {number}\n" for number in range(captions)))
        if boxes is not None:
            np.save(tmp_path / "train_boxes.npy", boxes)
        return read(layout="feature_folder", folder=str(tmp_path), **keys)

    return make


def features(images: int, *shape: int) -> np.ndarray:
    return np.random.default_rng(0).normal(size=(images, *shape)).astype(np.float32)


def test_rows_per_image_take_their_share_of_captions(feature_folder: Callable[..., RawDataset]) -> None:
    split = feature_folder(features(3, 4, 6), 15).splits["train"]
    assert [image.feature_row for image in split.images] == [0, 1, 2]
    assert split.images[1].captions == tuple(f"caption {number}" for number in range(5, 10))


def test_rows_repeated_per_caption_are_kept_once(feature_folder: Callable[..., RawDataset]) -> None:
    raw = feature_folder(features(3, 6).repeat(5, axis=0), 15)
    split = raw.splits["train"]
    assert [image.feature_row for image in split.images] == [0, 5, 10]
    assert split.arrays is not None
    assert split.arrays.features.shape == (15, 1, 6)
    assert raw.notes == ["split train: features stood once per caption; kept every 5th row"]


def test_one_caption_per_image_is_told_from_repeated_rows(feature_folder: Callable[..., RawDataset]) -> None:
    split = feature_folder(features(15, 6), 15).splits["train"]
    assert len(split.images) == 15
    assert split.images[14].captions == ("caption 14",)


@pytest.mark.parametrize(
    ("rows", "captions", "keys"),
    [(3, 16, {}), (15, 15, {"captions_per_image": 5}), (3, 15, {"captions_per_image": 3})],
)
def test_row_counts_that_do_not_fit_are_refused(
    feature_folder: Callable[..., RawDataset], rows: int, captions: int, keys: dict[str, int]
) -> None:
    with pytest.raises(DataError, match=f"{rows} rows of features and {captions} captions do not fit"):
        feature_folder(features(rows, 6), captions, **keys)


def test_an_id_may_have_spaces(feature_folder: Callable[..., RawDataset], tmp_path: Path) -> None:
    (tmp_path / "train_ids.txt").write_text("my photo 1.jpg\nfoto \u00e4 2.jpg\n\n")
    assert ids(feature_folder(features(2, 3, 4), 10)) == {"train": ["my photo 1.jpg", "foto \u00e4 2.jpg"]}


def test_ids_that_name_two_images_are_refused(feature_folder: Callable[..., RawDataset], tmp_path: Path) -> None:
    """Lists of captions that fit an image name it by its id."""
    (tmp_path / "train_ids.txt").write_text("a\nb\na\n")
    with pytest.raises(DataError, match=r"train_ids.txt: a stands there for more than one image; give each its own"):
        feature_folder(features(3, 4, 6), 15)


@pytest.mark.parametrize(("captions", "line"), [("one\n\nthree\n", 2), ("one\ntwo\nthree\n \n", 4), ("", 1)])
def test_an_empty_line_among_the_captions_is_told_by_its_number(
    feature_folder: Callable[..., RawDataset], tmp_path: Path, captions: str, line: int
) -> None:
    feature_folder(features(3, 4, 6), 15)
    (tmp_path / "train_caps.txt").write_text(captions)
    with pytest.raises(DataError, match=rf"train_caps.txt: line {line} is empty; every line is one caption"):
        read(layout="feature_folder", folder=str(tmp_path))


def test_features_of_whole_numbers_are_refused_with_the_way_to_mend_them(
    feature_folder: Callable[..., RawDataset]
) -> None:
    with pytest.raises(DataError, match=r"found int64 \(3, 4\), need floats .*; save them as floats: array.astype"):
        feature_folder(np.ones((3, 4), dtype=np.int64), 15)


def test_boxes_given_by_their_width_and_height_are_refused(feature_folder: Callable[..., RawDataset]) -> None:
    boxes = np.tile([0.5, 0.5, 0.2, 0.3], (3, 4, 1))
    with pytest.raises(DataError, match=r"row 0, region 0 ends at \(0.2, 0.3\) and begins at \(0.5, 0.5"):
        feature_folder(features(3, 4, 6), 15, boxes=boxes)
    boxes[..., 2:] += boxes[..., :2]
    feature_folder(features(3, 4, 6), 15, boxes=boxes)


def test_boxes_that_only_some_splits_have_are_left_out_and_told(
    feature_folder: Callable[..., RawDataset], tmp_path: Path
) -> None:
    np.save(tmp_path / "dev_ims.npy", features(2, 4, 6))
    (tmp_path / "dev_caps.txt").write_text("a\nb\n")
    raw = feature_folder(features(3, 4, 6), 15, boxes=np.tile([0.0, 0.0, 0.5, 1.0], (3, 4, 1)))
    assert raw.notes == ["boxes are left out: the split dev has none (dev_boxes.npy)"]


def test_boxes_that_do_not_fit_are_refused(feature_folder: Callable[..., RawDataset]) -> None:
    with pytest.raises(DataError, match=r"train_boxes.npy: float32 \(3, 5, 4\), need floats \(3, 4, 4\)"):
        feature_folder(features(3, 4, 6), 15, boxes=features(3, 5, 4))


def test_boxes_in_pixels_are_refused_with_the_way_to_mend_them(feature_folder: Callable[..., RawDataset]) -> None:
    boxes = np.full((3, 4, 4), 0.5)
    boxes[1, 2, 3] = 480
    with pytest.raises(DataError, match=r"train_boxes.npy: boxes from 0.5 to 480, need .* divide x by its width"):
        feature_folder(features(3, 4, 6), 15, boxes=boxes)
    boxes[1, 2, 3] = np.nan
    with pytest.raises(DataError, match=r"boxes from nan to nan"):
        feature_folder(features(3, 4, 6), 15, boxes=boxes)


def test_pickled_arrays_are_refused(feature_folder: Callable[..., RawDataset]) -> None:
    with pytest.raises(DataError, match=r"cannot read as a plain .npy array"):
        feature_folder(np.array([{"a": 1}], dtype=object), 5)


def test_a_feature_folder_is_ingested_with_boxes_as_float16(
    feature_folder: Callable[..., RawDataset], run: Callable[[IngestRecipe], Manifest], tmp_path: Path
) -> None:
    array = features(3, 4, 6)
    feature_folder(array, 15, boxes=np.sort(np.random.default_rng(1).random((3, 4, 2, 2)), axis=2).reshape(3, 4, 4))
    recipe = IngestRecipe.model_validate({
        "name": "ready", "output": str(tmp_path / "out"), "vocabulary_min_count": 1,
        "source": {"layout": "feature_folder", "folder": str(tmp_path)}, "features": {"extractor": "precomputed"},
    })
    manifest = run(recipe)
    assert manifest.features.boxes
    assert not manifest.images_stored
    assert verify(str(tmp_path / "out")) == []
    with tarfile.open(tmp_path / "out" / "train-000000.tar") as tar:
        file = tar.extractfile("000000001.features.npy")
        assert file is not None
        assert np.array_equal(np.load(io.BytesIO(file.read())), array[1].astype(np.float16))


@pytest.mark.parametrize("change", ["cut short", "written anew", "removed"])
def test_an_array_that_changes_while_it_is_read_is_told(
    feature_folder: Callable[..., RawDataset], tmp_path: Path, change: str
) -> None:
    """One that is cut short would end the process without a word, for it is mapped."""
    feature_folder(features(300, 40, 64), 300)
    recipe = IngestRecipe.model_validate({
        "name": "ready", "output": str(tmp_path / "out"), "features": {"extractor": "precomputed"},
        "source": {"layout": "feature_folder", "folder": str(tmp_path)},
    })
    path = tmp_path / "train_ims.npy"

    class Changing(SilentProgress):
        def advance(self, count: int) -> None:
            if change == "cut short":
                os.truncate(path, 1000)
            elif change == "written anew":
                os.utime(path, ns=(0, 0))
            else:
                path.unlink()

    with pytest.raises(DataError, match=r"train_ims.npy: changed while it was read; start again once it is whole"):
        ingest(recipe, progress=Changing())
    assert not (tmp_path / "out" / "manifest.json").exists()


def test_features_beyond_float16_are_refused(
    feature_folder: Callable[..., RawDataset], run: Callable[[IngestRecipe], Manifest], tmp_path: Path
) -> None:
    array = features(3, 4, 6)
    array[1, 2, 3] = 1e6
    feature_folder(array, 15)
    recipe = IngestRecipe.model_validate({
        "name": "ready", "output": str(tmp_path / "out"), "features": {"extractor": "precomputed"},
        "source": {"layout": "feature_folder", "folder": str(tmp_path)},
    })
    with pytest.raises(DataError, match=r"train_ims.npy row 1: a feature is 1e"):
        run(recipe)


ENG = """<DOC>
<DOCNO>annotations/{id}.eng</DOCNO>
<TITLE>T</TITLE>
<DESCRIPTION>{text}</DESCRIPTION>
<IMAGE>images/{id}.jpg</IMAGE>
</DOC>
"""


@pytest.fixture
def iapr(tmp_path: Path, save_image: Save) -> Callable[..., RawDataset]:
    """Ten annotated images 00/0 ... 00/9, the last one without a description."""

    def make(**keys: Any) -> RawDataset:
        for number in range(10):
            save_image(tmp_path / "images" / "00" / f"{number}.jpg")
            path = tmp_path / "annotations" / "00" / f"{number}.eng"
            path.parent.mkdir(parents=True, exist_ok=True)
            text = "" if number == 9 else f"a caf\u00e9 {number};\na man"
            path.write_text(ENG.format(id=f"00/{number}", text=text), encoding="latin-1")
        return read(
            layout="iapr", annotations=str(tmp_path / "annotations"), images=str(tmp_path / "images"), **keys
        )

    return make


def test_an_iapr_description_is_one_latin_1_caption(iapr: Callable[..., RawDataset], tmp_path: Path) -> None:
    (tmp_path / "train.txt").write_text("00/3\nimages/00/1.jpg\n00/9\n")
    raw = iapr(lists={"train": str(tmp_path / "train.txt")})
    assert ids(raw) == {"train": ["00/3", "00/1"]}
    assert raw.splits["train"].images[0].captions == ("a caf\u00e9 3; a man",)
    assert raw.notes == [
        "7 annotated images are in no split list, e.g. 00/0",
        "split train: left out 1 images without a caption, the first is 00/9",
    ]


def test_an_iapr_description_in_utf_8_keeps_its_accents(iapr: Callable[..., RawDataset], tmp_path: Path) -> None:
    (tmp_path / "train.txt").write_text("00/3\n")
    iapr(lists={"train": str(tmp_path / "train.txt")})
    file = tmp_path / "annotations" / "00" / "3.eng"
    file.write_text(file.read_text(encoding="latin-1"), encoding="utf-8-sig")
    assert parse_annotation(file) == ("images/00/3.jpg", "a caf\u00e9 3; a man")


@pytest.mark.parametrize("again", ["images/00/3.jpg", "00/3.jpg", "00/3"])
def test_an_iapr_image_that_a_list_names_twice_is_refused(
    iapr: Callable[..., RawDataset], tmp_path: Path, again: str
) -> None:
    (tmp_path / "train.txt").write_text(f"00/3\n00/4\n{again}\n")
    with pytest.raises(DataError, match=r"train\.txt: 00/3 stands there more than once; remove the repetition"):
        iapr(lists={"train": str(tmp_path / "train.txt")})


@pytest.mark.parametrize(
    ("image", "told"), [("images/", "IMAGE images/ names no file"), ("images/.", "names no file"),
                        ("images/00/33", r"1 of . images have no file, the first is .*00/33")]
)
def test_an_iapr_image_that_is_no_file_is_refused(
    iapr: Callable[..., RawDataset], tmp_path: Path, image: str, told: str
) -> None:
    iapr(shares={"validation": 0.2, "test": 0.2})
    odd = tmp_path / "annotations" / "01.eng"
    odd.write_text(ENG.replace("images/{id}.jpg", image).format(id="x", text="a text"))
    with pytest.raises(DataError, match=told):
        read(layout="iapr", annotations=str(tmp_path / "annotations"), images=str(tmp_path / "images"),
             shares={"validation": 0.2, "test": 0.2})


def test_an_iapr_id_without_annotation_is_refused(iapr: Callable[..., RawDataset], tmp_path: Path) -> None:
    (tmp_path / "train.txt").write_text("00/3\n41/1\n")
    with pytest.raises(DataError, match=r"1 of 2 listed images have no annotation, the first is 41/1"):
        iapr(lists={"train": str(tmp_path / "train.txt")})


def test_an_iapr_image_with_two_annotations_is_refused(iapr: Callable[..., RawDataset], tmp_path: Path) -> None:
    again = tmp_path / "annotations" / "01.eng"
    again.parent.mkdir()
    again.write_text(ENG.format(id="00/3", text="another text"), encoding="latin-1")
    with pytest.raises(DataError, match=r"IMAGE images/00/3\.jpg is that of another \.eng file too; remove one"):
        iapr(shares={"validation": 0.2, "test": 0.2})


def test_drawn_splits_are_disjoint_complete_and_seeded(iapr: Callable[..., RawDataset]) -> None:
    shares = {"validation": 0.2, "test": 0.3, "seed": 4}
    raw = iapr(shares=shares)
    one = ids(raw)
    assert raw.notes == ["left out 1 images without a caption, the first is 00/9"]
    assert {name: len(found) for name, found in one.items()} == {"train": 4, "validation": 2, "test": 3}
    assert sorted(itertools.chain(*one.values())) == [f"00/{number}" for number in range(9)]
    assert one == ids(iapr(shares=shares))
    assert one != ids(iapr(shares={**shares, "seed": 5}))


def test_drawn_splits_do_not_depend_on_the_order_of_files() -> None:
    names = [str(number) for number in range(30)]
    mixed = names.copy()
    random.Random(1).shuffle(mixed)
    shares = SplitShares(validation=0.1, test=0.1)
    assert draw_splits(names, shares) == draw_splits(mixed, shares)


def test_flickr8k_is_read_as_it_is_distributed(flickr8k: Path) -> None:
    raw = read(
        layout="caption_table", captions=str(flickr8k / "captions.csv"), images=[str(flickr8k / "images-*.tar")],
        lists={"train": str(flickr8k / "Flickr_8k.trainImages.txt"), "dev": str(flickr8k / "Flickr_8k.devImages.txt")},
    )
    assert {name: len(found) for name, found in ids(raw).items()} == {"train": 6000, "dev": 1000}
    assert all(len(image.captions) == 5 for split in raw.splits.values() for image in split.images)
    assert raw.notes == []


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ({"sentences": [{"raw": None}]}, "raw is None, need text"),
        ({"sentences": None}, "sentences is None, need a list"),
        ({"filename": 7}, "filename is 7, need text"),
        ({"filename": "../../etc/passwd"}, "leads out of the folder of images"),
        ({"filename": "/etc/passwd"}, "leads out of the folder of images"),
        ({"filepath": "..", "filename": "x.jpg"}, "leads out of the folder of images"),
    ],
)
def test_a_karpathy_entry_of_another_shape_is_one_line(tmp_path: Path, entry: dict[str, Any], message: str) -> None:
    whole = {"split": "train", "filename": "a.jpg", "sentences": [{"raw": "a dog"}]} | entry
    (tmp_path / "dataset.json").write_text(json.dumps({"images": [whole]}))
    with pytest.raises(DataError, match=message) as caught:
        read(layout="karpathy", captions=str(tmp_path / "dataset.json"), images=str(tmp_path))
    assert "\n" not in str(caught.value)


def test_a_source_that_is_no_regular_file_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "captions.json")
    with pytest.raises(DataError, match=r"source.captions: .*captions.json: is a FIFO, need a regular file"):
        read(layout="karpathy", captions=str(tmp_path / "captions.json"), images=str(tmp_path))
    with pytest.raises(DataError, match=r"source.captions: /dev/zero: is a device, need a regular file"):
        read(layout="karpathy", captions="/dev/zero", images=str(tmp_path))
