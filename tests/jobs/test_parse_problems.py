"""Networks that read dependency parses, on data without them."""

from __future__ import annotations

import numpy as np
import pytest

from vsetune.config.data import IngestRecipe, PixelsSpec, ScenesSource
from vsetune.config.networks import NetworkSpec, VseppSpec
from vsetune.config.networks.cgmn import CgmnSpec
from vsetune.config.networks.gsmn import GsmnSpec
from vsetune.config.training import DataSpec, TrialSpec
from vsetune.data.dataset import Dataset
from vsetune.data.ingest import ingest
from vsetune.data.parses import parse_dataset
from vsetune.data.progress import SilentProgress
from vsetune.jobs.fitting import _parse_problems


class NoWords:
    """Stands in for a spaCy pipeline: no word depends on another."""

    version = "1"

    def heads(self, captions):
        return (np.full(len(words), -1, np.int16) for words in captions)


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
    return list(_parse_problems(trial, dataset, "study.yaml: cell x"))


@pytest.mark.parametrize("network", [GsmnSpec(text_graph="sparse"), CgmnSpec()], ids=lambda network: network.name)
def test_data_without_parses_is_refused_with_the_command_that_adds_them(scenes, network, monkeypatch) -> None:
    expected = (
        f"study.yaml: cell x: network {network.name} reads dependency parses; {scenes.path}: has no parses of its "
        f"captions; add them: vsetune data parse {scenes.path}"
    )
    assert set(problems(network, scenes)) == {expected}
    monkeypatch.setattr("vsetune.data.parses.load_parser", lambda pipeline: NoWords())
    parse_dataset(scenes.path, "none", progress=SilentProgress())
    assert problems(network, scenes) == []


@pytest.mark.parametrize("network", [GsmnSpec(), CgmnSpec(caption_graph="dense"), VseppSpec()])
def test_networks_without_parses_run_on_any_data(scenes, network) -> None:
    assert problems(network, scenes) == []
