"""`vsetune trial embed`: what it writes is what the evaluation compares."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import pyarrow.parquet
import pytest

from vsetune.data.stored.dataset import Dataset
from vsetune.data.stored.shards import split_records
from vsetune.records.studies import Studies

SMALL = {"embedding_size": 16, "word_size": 8}


def rows(file: Path) -> list[dict[str, str]]:
    with open(file, encoding="utf-8", newline="") as stream:
        return list(csv.DictReader(stream))


def read(folder: Path, kind: str) -> tuple[np.ndarray, np.ndarray, list[str], list[int]]:
    """(images, captions, texts, rows of their images)."""
    if kind == "npy":
        texts = rows(folder / "captions.csv")
        arrays = (np.load(folder / f"{name}.npy", allow_pickle=False) for name in ("images", "captions"))
        return *arrays, [row["caption"] for row in texts], [int(row["image_row"]) for row in texts]
    tables = [pyarrow.parquet.read_table(folder / f"{name}.parquet").to_pydict() for name in ("images", "captions")]
    arrays = (np.array(table["embedding"], np.float32) for table in tables)
    return *arrays, tables[1]["caption"], tables[1]["image_row"]


@pytest.mark.parametrize("kind", ["npy", "parquet"])
def test_recall_of_the_files_is_that_of_the_evaluation(vsetune, record, home, kind) -> None:
    run = record()
    said = vsetune("trial", "embed", "tiny/vsepp.lmh-c000-s0", "--format", kind)
    assert said.code == 0, said.err
    folder = home / "embeddings" / "tiny" / "vsepp.lmh-c000-s0-test"
    assert {Path(line).parent for line in said.out.split()} == {folder}
    images, captions, texts, owner = read(folder, kind)
    assert images.dtype == captions.dtype == np.float32
    assert len(captions) == len(texts) == len(owner) == 5 * len(images)
    np.testing.assert_allclose(np.linalg.norm(images, axis=1), 1, rtol=1e-5)
    first = (images @ captions.T).argmax(axis=0)
    recall = 100 * float(np.mean(first == np.array(owner)))
    summary = next(found for found in Studies().attempts("tiny") if found.attempt_id == run).summary
    assert recall == pytest.approx(summary["test_t2i_r1"])
    dataset = Dataset.open(str(home / "data" / "scenes"))
    assert texts == [caption for _, each in split_records(dataset, "test") for caption in each.captions]


def test_several_embeddings_of_an_item_keep_their_axis(vsetune, record, tmp_path) -> None:
    run = record({"name": "pvse", "fixed": {**SMALL, "embeddings": 2}})
    for kind in ("npy", "parquet"):
        assert vsetune("trial", "embed", run, "--format", kind, "--output", str(tmp_path / kind)).code == 0
    images, *_ = read(tmp_path / "npy", "npy")
    assert images.shape[1:] == (2, 16)
    np.testing.assert_array_equal(images, read(tmp_path / "parquet", "parquet")[0])


def test_a_network_that_scores_pairs_has_no_embeddings(vsetune, record) -> None:
    run = record({"name": "scan", "fixed": SMALL})
    assert vsetune("trial", "embed", run).refused("scan", "VSE-X052")
