"""Networks that read dependency parses or phrases, on data without them."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

from vsetune.config.component_specs import NetworkSpec
from vsetune.config.sources.recipe import IngestRecipe, PixelsSpec, ScenesSource
from vsetune.config.sources.trial_inputs import DataSpec, NetworkReads
from vsetune.config.study.training import TrialSpec
from vsetune.data.captions.parses import PARSES_FILE, parse_dataset
from vsetune.data.making.ingest import ingest
from vsetune.data.progress import SilentProgress
from vsetune.data.stored.dataset import Dataset
from vsetune.networks.cgmn.spec import CgmnSpec
from vsetune.networks.gsmn.spec import GsmnSpec
from vsetune.networks.vsepp.spec import VseppSpec
from vsetune.study.fitting import _reading_problems
from vsetune.study.preparation import _report_lacking_phrases


class NoWords:
    """Stands in for a spaCy pipeline: no word depends on another."""

    version = "1"

    def heads(self, captions):
        return (np.full(len(words), -1, np.int16) for words in captions)

    def phrases(self, captions):
        return ([] for _ in captions)


class MaskingSpec(VseppSpec):
    """A network that masks phrases."""

    @property
    def reads(self) -> NetworkReads:
        return NetworkReads(phrases=True)


@pytest.fixture
def scenes(tmp_path) -> Dataset:
    source = ScenesSource(train=4, validation=2, test=2)
    recipe = IngestRecipe(
        name="scenes", output=str(tmp_path), source=source, features=PixelsSpec(grid=1, width=8)
    )
    ingest(recipe, progress=SilentProgress())
    return Dataset.open(str(tmp_path))


def problems(network: NetworkSpec, dataset: Dataset) -> list[str]:
    trial = TrialSpec.model_construct(network=network, data=DataSpec(path=dataset.path))
    return list(_reading_problems(trial, dataset, "study.yaml: cell x", is_trained=True))


@pytest.mark.parametrize("network", [GsmnSpec(text_graph="sparse"), CgmnSpec()], ids=lambda network: network.name)
def test_data_without_parses_is_refused_with_the_command_that_adds_them(scenes, network, monkeypatch) -> None:
    (problem,) = set(problems(network, scenes))
    assert problem.startswith(f"study.yaml: cell x: network {network.name} reads dependency parses: {scenes.path}: ")
    assert problem.endswith(f"vsetune data parse {scenes.path}")
    monkeypatch.setattr("vsetune.data.captions.parses.load_parser", lambda pipeline: NoWords())
    parse_dataset(scenes.path, "none", progress=SilentProgress())
    assert problems(network, scenes) == []


@pytest.mark.parametrize(("kind", "network"), [("parses", CgmnSpec()), ("phrases", MaskingSpec())])
def test_an_array_that_was_changed_is_told_before_anything_trains(scenes, monkeypatch, kind, network) -> None:
    for loads in ("load_parser", "load_phrase_finder"):
        monkeypatch.setattr(f"vsetune.data.captions.parses.{loads}", lambda pipeline: NoWords())
    parse_dataset(scenes.path, "none", phrases=True, progress=SilentProgress())
    (file,) = Path(scenes.path).glob(f"{kind}-train-*.npy")
    content = bytearray(file.read_bytes())
    content[-2] ^= 1
    file.write_bytes(content)
    (problem,) = problems(network, scenes)
    assert f": {file}: " in problem
    assert "SHA-256" in problem


@pytest.mark.parametrize("network", [GsmnSpec(), CgmnSpec(caption_graph="dense"), VseppSpec()])
def test_networks_without_parses_run_on_any_data(scenes, network) -> None:
    assert problems(network, scenes) == []


def told(trial: TrialSpec, dataset: Dataset) -> list[str]:
    console = Console(file=io.StringIO(), width=40)
    _report_lacking_phrases([trial, trial], dataset, console)
    return console.file.getvalue().splitlines()


def test_that_single_words_are_masked_is_told_once_for_a_study(scenes, monkeypatch) -> None:
    data = DataSpec(path=scenes.path)
    masking, other = (TrialSpec.model_construct(network=network(), data=data) for network in (MaskingSpec, VseppSpec))
    assert told(masking, scenes) == [
        f"{scenes.path}: has no phrases of its captions, single words are masked instead; add them: vsetune data parse "
        f"{scenes.path} --phrases"
    ]
    assert told(other, scenes) == problems(MaskingSpec(), scenes) == []
    for loads in ("load_parser", "load_phrase_finder"):
        monkeypatch.setattr(f"vsetune.data.captions.parses.{loads}", lambda pipeline: NoWords())
    parse_dataset(scenes.path, "none", phrases=True, progress=SilentProgress())
    assert told(masking, scenes) == []
    listed = Path(scenes.path) / PARSES_FILE
    listed.write_text(listed.read_text().replace('"captions_fingerprint": "', '"captions_fingerprint": "0'))
    (problem,) = problems(MaskingSpec(), scenes)
    assert problem.startswith("study.yaml: cell x: network vsepp reads phrases of captions: ")
