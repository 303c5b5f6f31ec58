import io
import itertools
import os
import random
import tarfile
import unicodedata
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pydantic import TypeAdapter
from refusals import refused

from vsetune.config.sources.recipe import AnySource, IngestRecipe, SplitShares
from vsetune.data.captions.relevance_lists import relevant_pairs
from vsetune.data.looking.verify import verify
from vsetune.data.making.ingest import ingest
from vsetune.data.making.raw import RawDataset
from vsetune.data.making.readers import read_raw
from vsetune.data.making.readers.iapr import draw_splits, parse_annotation
from vsetune.data.progress import SilentProgress
from vsetune.data.stored.dataset import Dataset
from vsetune.data.stored.plain_files import composed
from vsetune.data.stored.shards import split_records
from vsetune.errors import ConfigError

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
    assert ids(karpathy("train", "RestVal", restval="leave_out")) == {"train": ["0.jpg"]}


@pytest.mark.parametrize(
    ("filepath", "filename"),
    [
        ("sub\\deep", "x.jpg"), (".\\sub\\deep\\", "x.jpg"), ("", "sub\\deep\\x.jpg"), ("./sub/", "deep/x.jpg"),
        (None, "./sub//deep/x.jpg"), ("sub", "deep\\x.jpg"), ("elsewhere\\val2014", "sub/deep/x.jpg"),
    ],
)
def test_a_karpathy_path_may_have_the_slashes_of_windows(karpathy, save_image, tmp_path, filepath, filename):
    save_image(tmp_path / "images" / "sub" / "deep" / "x.jpg")
    entry = {"split": "train", "filename": filename, "filepath": filepath, "sentences": [{"raw": "a dog"}]}
    (image,) = karpathy(entries=[entry]).splits["train"].images
    assert Path(image.source.place).samefile(tmp_path / "images/sub/deep/x.jpg")


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


def test_captions_are_grouped_by_image_in_every_form_of_table(table: Callable[..., RawDataset]) -> None:
    raw = table(CSV)
    assert ids(raw) == {"train": ["a.jpg"], "dev": ["b.jpg"]}
    assert raw.splits["train"].images[0].captions == ("A dog, running .", "Another .")
    quoted = '"image","caption"\n"a.jpg","A dog, running ."\n"b.jpg","A cat ."\n"a.jpg","Another ."\n'
    tokens = "a.jpg#0\tA dog, running .\nb.jpg#0\tA cat .\na.jpg#1\tAnother .\n"
    assert table(quoted).digest() == table(tokens).digest() == raw.digest()
    assert table(f"\ufeff{CSV}", train="\ufeffa.jpg\n").digest() == raw.digest(), "the mark of Excel and Notepad"


@pytest.mark.parametrize(
    "text",
    [
        "a.jpg\t0\tA dog, running .\nb.jpg\t0\tA cat .\na.jpg\t1\tAnother .\n",
        "a.jpg\tA dog, running .\nb.jpg\tA cat .\t\na.jpg\tAnother .\n",
        '"a.jpg#0"\t"A dog, running ."\n"b.jpg#0"\t"A cat ."\n"a.jpg#1"\t"Another ."\n',
        'image\tcaption\na.jpg\tA dog, running .\nb.jpg\tA cat .\na.jpg\t"Another ."\n',
        ',image,caption\n0,a.jpg,"A dog, running ."\n1,b.jpg,A cat .\n2,a.jpg,Another .\n',
        "image;caption\na.jpg;A dog, running .\nb.jpg;A cat .\na.jpg;Another .\n",
        "image_name| comment_number| comment\na.jpg| 0| A dog, running .\nb.jpg| 0| A cat .\na.jpg| 1| Another .\n",
        "image,caption\na.jpg,\"A dog,\u2028running .\"\nb.jpg,A\x0ccat\u0085.\na.jpg,\ufeffAnother \u3000.\n",
        "a.jpg#0\tA dog,\u2029running .\nb.jpg#0\tA\x1ccat\u0085.\na.jpg#1\tAnother\x0b.\n",
    ],
    ids=["number", "no number", "quotes", "tsv", "index", "semicolons", "bars", "separators", "separators in tokens"],
)
def test_tables_as_other_programs_write_them_hold_the_same_captions(table, text) -> None:
    expected = table(CSV).digest()
    for end in ("\n", "\r\n", "\r\r\n", "\r"):
        lists = {"train": f"\ufeffa.jpg{end}", "dev": f"{end}b.jpg"}
        assert table("\ufeff" + text.replace("\n", end), **lists).digest() == expected, repr(end)


def test_a_caption_that_pandas_has_quoted_for_its_quotes_is_unquoted(table) -> None:
    raw = table('a.jpg#0\t"A ""big"" dog"\na.jpg#1\t"Go" , says she .\nb.jpg#0\t"Stop !"\n')
    captions = raw.splits["train"].images[0].captions + raw.splits["dev"].images[0].captions
    assert captions == ('A "big" dog', '"Go" , says she .', '"Stop !"')


def test_columns_that_are_not_read_are_told(table) -> None:
    assert table("image,caption,split\na.jpg,A dog,train\nb.jpg,A cat,dev\n").notes == [
        "captions: columns that are not read: split"
    ]


@pytest.mark.parametrize(
    "text",
    [
        "image,caption\na.jpg,A dog\na.jpg,\nb.jpg,A cat\na.jpg,  \nb.jpg,\" \u3000\"\n",
        "a.jpg#0\tA dog\na.jpg#1\t\nb.jpg#0\tA cat\na.jpg#2\t \u0085\nb.jpg#1\t\ufeff\n",
        "a.jpg\t0\tA dog\na.jpg\t1\t\nb.jpg\t0\tA cat\na.jpg\t2\t \nb.jpg\t1\t\n",
    ],
    ids=["csv", "tokens", "numbers"],
)
def test_empty_captions_are_counted(table, text) -> None:
    behind = "lists that count captions count those that are left"
    assert table(text).notes == [
        f"split train: left out 2 empty captions, the first of a.jpg; {behind}",
        f"split dev: left out 1 empty captions, the first of b.jpg; {behind}",
    ]


@pytest.mark.parametrize("form", ["NFC", "NFD"])
@pytest.mark.parametrize(
    "name", ["caf\u00e9 \ud55c.jpg", "Screenshot 9.41\u202fAM.jpg", "\u3000x\u00a0y.jpg", "a#1.jpg"]
)
def test_a_name_is_found_in_either_form_of_unicode(name, form, run, save_image, write_json, tmp_path) -> None:
    other = {"NFC": "NFD", "NFD": "NFC"}[form]
    save_image(tmp_path / "images" / unicodedata.normalize(form, name))
    save_image(tmp_path / "images" / "b.jpg")
    name = unicodedata.normalize(other, name)
    (tmp_path / "captions.csv").write_text(f"image,caption\n{name},A dog\nb.jpg,A cat\n")
    (tmp_path / "tokens.txt").write_text(f"{name}#0\tA dog\nb.jpg#0\tA cat\n")
    (tmp_path / "train.txt").write_text(f"{name}\n")
    (tmp_path / "val.txt").write_text("b.jpg\n")
    write_json(tmp_path / "dataset.json", {"images": [
        {"split": split, "filename": each, "sentences": [{"raw": "A dog"}]}
        for split, each in (("train", name), ("val", "b.jpg"))
    ]})
    of_table = {
        "layout": "caption_table", "images": [str(tmp_path / "images")],
        "lists": {split: str(tmp_path / f"{split}.txt") for split in ("train", "val")},
    }
    for number, source in enumerate([
        {**of_table, "captions": str(tmp_path / "captions.csv")},
        {**of_table, "captions": str(tmp_path / "tokens.txt")},
        {"layout": "karpathy", "captions": str(tmp_path / "dataset.json"), "images": str(tmp_path / "images")},
    ]):
        output = str(tmp_path / f"out{number}")
        run(IngestRecipe.model_validate({
            "name": "names", "output": output, "source": source, "features": {"extractor": "pixels", "grid": 1},
        }))
        assert verify(output) == []
        dataset = Dataset.open(output)
        ((_, record),) = split_records(dataset, "train")
        assert composed(record.image_id) == composed(name)
        (tmp_path / "relevant.csv").write_bytes(f"\ufeffimage,caption_image,caption\r\n{name},{name},0\r\n".encode())
        assert relevant_pairs(dataset, "train", tmp_path / "relevant.csv").tolist() == [[0, 0]]


def test_captions_outside_the_lists_and_bare_images_are_counted(table, tmp_path):
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "bare.jpg").write_bytes(b"")
    raw = table(CSV + "c.jpg,Not listed .\n", train="a.jpg\nbare.jpg\n")
    assert raw.notes == [
        "split train: left out 1 images without a caption, the first is bare.jpg",
        "captions: 1 images with captions are in no split list, e.g. c.jpg",
    ]


def test_two_images_of_one_name_are_refused_unless_they_are_equal(table, tmp_path, save_image):
    save_image(tmp_path / "folder" / "2024" / "a.jpg")
    save_image(tmp_path / "folder" / "not_listed" / "c.jpg", 1)
    save_image(tmp_path / "folder" / "not_listed" / "small" / "c.jpg", 2)
    assert ids(table(CSV)) == {"train": ["a.jpg"], "dev": ["b.jpg"]}
    save_image(tmp_path / "folder" / "2024" / "a.jpg", 8)
    with refused("VSE-D056", image="a.jpg", one=tmp_path / "folder/2024/a.jpg"):
        table(CSV)


def test_an_image_that_trains_and_validates_is_told(table: Callable[..., RawDataset]) -> None:
    assert table(CSV, train="a.jpg\nb.jpg\n").notes == [
        "1 images stand in the splits train and dev, the first is b.jpg: what is measured on them is no test",
    ]


def test_a_missing_place_is_named_with_its_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with refused("VSE-D001", file=tmp_path / "none.csv"):
        read(layout="caption_table", captions=str(tmp_path / "none.csv"), images=["x"], lists={"train": "t"})
    with refused("VSE-D048", key="source.images", found="nothing"):
        read(layout="karpathy", captions="x", images=str(tmp_path / "none"))
    monkeypatch.delenv("VSETUNE_NOWHERE", raising=False)
    with pytest.raises(ConfigError, match=r"VSETUNE_NOWHERE"):
        read(layout="caption_table", captions="${VSETUNE_NOWHERE}/c.csv", images=["x"], lists={"train": "t"})


def test_a_tar_cut_short_is_named(table: Callable[..., RawDataset], tmp_path: Path) -> None:
    table(CSV)
    archive = tmp_path / "images-0.tar"
    archive.write_bytes(archive.read_bytes()[:700])
    with refused("VSE-D058", archive=archive):
        read(
            layout="caption_table", captions=str(tmp_path / "captions"), images=[str(archive)],
            lists={"dev": str(tmp_path / "dev.txt")},
        )


@pytest.fixture
def feature_folder(tmp_path: Path) -> Callable[..., RawDataset]:
    """Writes train_ims.npy and train_caps.txt and reads them. texts: further files, or others in place of these."""

    def make(
        features: np.ndarray, captions: int, boxes: np.ndarray | None = None, texts: dict[str, str] | None = None,
        **keys: Any,
    ) -> RawDataset:
        np.save(tmp_path / "train_ims.npy", features)
        (tmp_path / "train_caps.txt").write_text("".join(f"caption {number}\n" for number in range(captions)))
        if boxes is not None:
            np.save(tmp_path / "train_boxes.npy", boxes)
        for name, text in (texts or {}).items():
            (tmp_path / name).write_text(text)
        return read(layout="feature_folder", folder=str(tmp_path), **keys)

    return make


def features(images: int, *shape: int) -> np.ndarray:
    return np.random.default_rng(0).normal(size=(images, *shape)).astype(np.float32)


def test_rows_per_image_take_their_share_of_captions(feature_folder: Callable[..., RawDataset]) -> None:
    split = feature_folder(features(3, 4, 6), 15).splits["train"]
    assert [image.feature_row for image in split.images] == [0, 1, 2]
    assert split.images[1].captions == tuple(f"caption {number}" for number in range(5, 10))


@pytest.mark.parametrize("times", [2, 3, 4, 5, 6, 7, 10])
def test_rows_repeated_any_number_of_times_are_kept_once(feature_folder, times) -> None:
    array = features(30, 6)
    array[1] = array[0]  # two images that are equal
    raw = feature_folder(array.repeat(times, axis=0), 30 * times)
    split = raw.splits["train"]
    assert [image.feature_row for image in split.images] == [*range(0, 30 * times, times)]
    assert split.arrays.features.shape == (30 * times, 1, 6)
    assert {len(image.captions) for image in split.images} == {times}
    assert raw.notes[0].startswith("split train: features stood once per caption; kept every ")


def test_rows_that_are_repeated_unevenly_are_refused_until_the_recipe_says_what_they_are(feature_folder) -> None:
    array = features(12, 6).repeat([5, 6, 4] * 4, axis=0)
    with refused("VSE-D024", found="60 rows of features for as many captions, some the same as the row before"):
        feature_folder(array, 60)
    assert len(feature_folder(array, 60, captions_per_image=1).splits["train"].images) == 60


def test_one_caption_per_image_is_told_from_repeated_rows(feature_folder: Callable[..., RawDataset]) -> None:
    split = feature_folder(features(15, 6), 15).splits["train"]
    assert len(split.images) == 15
    assert split.images[14].captions == ("caption 14",)


def test_an_id_may_have_spaces(feature_folder: Callable[..., RawDataset]) -> None:
    texts = {"train_ids.txt": "my photo 1.jpg\nfoto \u00e4 2.jpg\n\n"}
    assert ids(feature_folder(features(2, 3, 4), 10, texts=texts)) == {"train": ["my photo 1.jpg", "foto \u00e4 2.jpg"]}



def test_boxes_that_only_some_splits_have_are_left_out_and_told(feature_folder, tmp_path):
    np.save(tmp_path / "dev_ims.npy", features(2, 4, 6))
    (tmp_path / "dev_caps.txt").write_text("a\nb\n")
    raw = feature_folder(features(3, 4, 6), 15, boxes=np.tile([0.0, 0.0, 0.5, 1.0], (3, 4, 1)))
    assert raw.notes == ["boxes are left out: the split dev has none (dev_boxes.npy)"]


def precomputed(folder: Path) -> IngestRecipe:
    return IngestRecipe.model_validate({
        "name": "ready", "output": str(folder / "out"), "vocabulary_min_count": 1,
        "source": {"layout": "feature_folder", "folder": str(folder)}, "features": {"extractor": "precomputed"},
    })


def test_a_feature_folder_is_ingested_with_boxes_as_float16(feature_folder, run, tmp_path):
    array = features(3, 4, 6)
    feature_folder(array, 15, boxes=np.sort(np.random.default_rng(1).random((3, 4, 2, 2)), axis=2).reshape(3, 4, 4))
    manifest = run(precomputed(tmp_path))
    assert manifest.features.boxes
    assert not manifest.images_stored
    assert verify(str(tmp_path / "out")) == []
    with tarfile.open(tmp_path / "out" / "train-000000.tar") as tar:
        file = tar.extractfile("000000001.features.npy")
        assert file is not None
        assert np.array_equal(np.load(io.BytesIO(file.read())), array[1].astype(np.float16))


@pytest.mark.parametrize("change", ["cut short", "written anew", "removed"])
def test_an_array_that_changes_while_it_is_read_is_told(feature_folder, tmp_path, change):
    """One that is cut short would end the process without a word, for it is mapped."""
    feature_folder(features(300, 40, 64), 300)
    path = tmp_path / "train_ims.npy"

    class Changing(SilentProgress):
        def advance(self, count: int) -> None:
            if change == "cut short":
                os.truncate(path, 1000)
            elif change == "written anew":
                os.utime(path, ns=(0, 0))
            else:
                path.unlink()

    with refused("VSE-D005", file=path):
        ingest(precomputed(tmp_path), progress=Changing())
    assert not (tmp_path / "out" / "manifest.json").exists()


def test_features_beyond_float16_are_refused(feature_folder, run, tmp_path):
    array = features(3, 4, 6)
    array[1, 2, 3] = 1e6
    feature_folder(array, 15)
    with refused("VSE-D024", where=f"{tmp_path / 'train_ims.npy'} row 1", found="a feature of 1e+06"):
        run(precomputed(tmp_path))


ENG = """<DOC>
<DOCNO>annotations/{id}.eng</DOCNO>
<TITLE>T</TITLE>
<DESCRIPTION>{text}</DESCRIPTION>
<IMAGE>images/{id}.jpg</IMAGE>
</DOC>
"""


@pytest.fixture
def iapr(tmp_path: Path, save_image: Save) -> Callable[..., RawDataset]:
    """Ten annotated images 00/0 ... 00/9, the last one without a description. train: lines of its list. odd: the image
    of an eleventh annotation."""

    def make(train: str | None = None, odd: str | None = None, **keys: Any) -> RawDataset:
        for number in range(10):
            save_image(tmp_path / "images" / "00" / f"{number}.jpg")
            path = tmp_path / "annotations" / "00" / f"{number}.eng"
            path.parent.mkdir(parents=True, exist_ok=True)
            text = "" if number == 9 else f"a caf\u00e9 {number};\na man"
            path.write_text(ENG.format(id=f"00/{number}", text=text), encoding="latin-1")
        if train is not None:
            (tmp_path / "train.txt").write_text(train)
            keys["lists"] = {"train": str(tmp_path / "train.txt")}
        if odd is not None:
            annotation = ENG.replace("images/{id}.jpg", odd).format(id="x", text="a text")
            (tmp_path / "annotations" / "01.eng").write_text(annotation)
        return read(
            layout="iapr", annotations=str(tmp_path / "annotations"), images=str(tmp_path / "images"), **keys
        )

    return make


def test_an_iapr_description_is_one_latin_1_caption(iapr: Callable[..., RawDataset]) -> None:
    raw = iapr("00/3\nimages/00/1.jpg\n00/9\n")
    assert ids(raw) == {"train": ["00/3", "00/1"]}
    assert raw.splits["train"].images[0].captions == ("a caf\u00e9 3; a man",)
    assert raw.notes == [
        "7 annotated images are in no split list, e.g. 00/0",
        "split train: left out 1 images without a caption, the first is 00/9",
    ]


def test_an_iapr_description_in_utf_8_keeps_its_accents(iapr: Callable[..., RawDataset], tmp_path: Path) -> None:
    iapr("00/3\n")
    file = tmp_path / "annotations" / "00" / "3.eng"
    file.write_text(file.read_text(encoding="latin-1"), encoding="utf-8-sig")
    assert parse_annotation(file) == ("images/00/3.jpg", "a caf\u00e9 3; a man")


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


def test_a_source_that_is_no_regular_file_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "captions.json")
    with refused("VSE-D007", kind="a FIFO"):
        read(layout="karpathy", captions=str(tmp_path / "captions.json"), images=str(tmp_path))
    with refused("VSE-D007", file="/dev/zero", kind="a device"):
        read(layout="karpathy", captions="/dev/zero", images=str(tmp_path))


ENTRY = {"split": "train", "filename": "0.jpg", "sentences": [{"raw": "a dog"}]}
SHARES = {"validation": 0.2, "test": 0.2}


def boxes(*, changed: float = 0.4, columns: slice = slice(None)) -> np.ndarray:
    """Four boxes of each of three images. changed: the lower end of one."""
    made = np.tile([0.1, 0.1, 0.3, 0.4], (3, 4, 1))
    made[1, 2, 3] = changed
    return made[..., columns]


REFUSED: list[tuple[str, dict[str, Any], str, dict[str, Any]]] = [
    *(("karpathy", {"entries": [ENTRY | changed]}, code, fields) for changed, code, fields in (
        ({"filename": "none.jpg"}, "VSE-D057", {"missing": 1, "listed": 1}),
        ({"sentences": ["a dog"]}, "VSE-D059", {"key": "sentences.0", "found": "'a dog'"}),
        ({"sentences": {"raw": "a dog"}}, "VSE-D059", {"key": "sentences", "found": "{'raw': 'a dog'}"}),
        ({"sentences": None}, "VSE-D059", {"key": "sentences", "found": "None"}),
        ({"sentences": [{"raw": "a"}, {"tokens": ["a"]}]}, "VSE-D059", {"key": "raw", "found": "missing"}),
        ({"sentences": [{"raw": None}]}, "VSE-D059", {"key": "raw", "found": "None", "need": "text"}),
        ({"split": ["train"]}, "VSE-D059", {"key": "split", "found": "['train']"}),
        ({"filename": ""}, "VSE-D059", {"key": "filename", "found": "''"}),
        ({"filepath": ["val2014"]}, "VSE-D059", {"key": "filepath", "found": "['val2014']"}),
        ({"filename": "../../etc/passwd"}, "VSE-D008", {}), ({"filename": "/etc/passwd"}, "VSE-D008", {}),
        ({"filename": "..\\..\\secret.jpg"}, "VSE-D008", {}),
        ({"filename": "\\\\server\\share\\x.jpg"}, "VSE-D008", {}),
        ({"filepath": "C:\\data", "filename": "x.jpg"}, "VSE-D057", {}),
        ({"filepath": "..", "filename": "x.jpg"}, "VSE-D008", {}),
    )),
    ("karpathy", {"entries": []}, "VSE-D051", {"need": "list `images`"}),
    ("karpathy", {"entries": [{"filename": "a.jpg"}]}, "VSE-D059", {"key": "split"}),
    ("karpathy", {"entries": ["x"]}, "VSE-D059", {"key": "entry"}),
    *(("table", {"text": text, **lists}, code, fields) for text, lists, code, fields in (
        ("one two three", {}, "VSE-D052", {"line": 1}),
        ("image,caption\na.jpg,A dog, running", {}, "VSE-D052", {"line": 2, "found": "3 fields"}),
        ("a.jpg#0\tA dog\nb.jpg A cat", {}, "VSE-D052", {"line": 2, "found": "no tab"}),
        ("a.jpg\t0\tA dog\nb.jpg\tA cat", {}, "VSE-D052", {"line": 2, "found": "2 fields"}),
        ("a.jpg#0\tA dog\nb.jpg#0\tA cat\ten", {}, "VSE-D052", {"line": 2, "found": "3 fields"}),
        ("a.jpg#0\tA dog\nb.jpg#0\t5\tdogs", {}, "VSE-D052", {"line": 2, "found": "3 fields"}),
        ("a\0.\0j\0p\0g\0\t\0A\0", {}, "VSE-D050", {"byte": 1}),
        (CSV, {"train": "a.jpg\nz.jpg\n"}, "VSE-D057", {"missing": 1, "listed": 2, "first": "z.jpg"}),
        (CSV, {"train": "folder/a.jpg\n"}, "VSE-D057", {"first": "folder/a.jpg"}),
        ('image,caption\na.jpg,A dog .\na.jpg,"A\nb.jpg,A cat .\n', {}, "VSE-D052", {"line": 3}),
        ('image,caption\na.jpg,"A dog" runs .\n', {}, "VSE-D052", {"line": 2}),
        (CSV, {"train": "\n"}, "VSE-D051", {"need": "image names"}),
        (CSV, {"train": "a.jpg\na.jpg\n"}, "VSE-D019", {"name": "a.jpg"}),
    )),
    *(("feature_folder", {"features": features(rows, 6), "captions": captions, **keys}, "VSE-D024",
       {"found": f"{rows} rows of features and {captions} captions"}) for rows, captions, keys in (
        (3, 16, {}), (15, 15, {"captions_per_image": 5}), (3, 15, {"captions_per_image": 3}),
    )),
    *(("feature_folder", {"features": features(3, 4, 6), "captions": 15, "texts": {file: text}}, code, fields)
      for file, text, code, fields in (
        ("train_ids.txt", "a\nb\na\n", "VSE-D019", {"name": "a"}),
        ("train_caps.txt", "one\n\nthree\n", "VSE-D052", {"line": 2, "found": "an empty line"}),
        ("train_caps.txt", "one\ntwo\nthree\n \n", "VSE-D052", {"line": 4, "found": "an empty line"}),
        ("train_caps.txt", "", "VSE-D052", {"line": 1, "found": "an empty line"}),
    )),
    *(("feature_folder", {"features": array, "captions": 15, "boxes": of_array}, code, fields)
      for array, of_array, code, fields in (
        (np.ones((3, 4), np.int64), None, "VSE-D024", {"found": "int64 (3, 4)"}),
        (np.array([{"a": 1}], object), None, "VSE-D011", {}),
        (features(3, 4, 6), boxes(columns=slice(None, None, -1)), "VSE-D060", {"row": 0, "region": 0}),
        (features(3, 4, 6), features(3, 5, 4), "VSE-D024", {"need": "floats (3, 4, 4)"}),
        (features(3, 4, 6), boxes(changed=480), "VSE-D024", {"found": "boxes from 0.1 to 480"}),
        (features(3, 4, 6), boxes(changed=np.nan), "VSE-D024", {"found": "boxes from nan to nan"}),
    )),
    *(("iapr", {"train": lines}, code, fields) for lines, code, fields in (
        ("00/3\n00/4\nimages/00/3.jpg\n", "VSE-D019", {"name": "00/3"}),
        ("00/3\n00/4\n00/3.jpg\n", "VSE-D019", {"name": "00/3"}), ("00/3\n00/3\n", "VSE-D019", {"name": "00/3"}),
        ("00/3\n41/1\n", "VSE-D057", {"need": "annotation", "missing": 1, "first": "41/1"}),
    )),
    *(("iapr", {"odd": image, "shares": SHARES}, code, {}) for image, code in (
        ("images/", "VSE-D051"), ("images/.", "VSE-D051"), ("images/00/33", "VSE-D057"),
        ("images/00/3.jpg", "VSE-D019"), ("../x.jpg", "VSE-D008"),
    )),
]


@pytest.mark.parametrize(("reader", "given", "code", "fields"), REFUSED)
def test_a_source_that_does_not_fit_is_refused(
    request: pytest.FixtureRequest, reader: str, given: dict[str, Any], code: str, fields: dict[str, Any]
) -> None:
    with refused(code, **fields) as caught:
        request.getfixturevalue(reader)(**given)
    assert all(file in str(caught.value) for file in given.get("texts", ()))
