"""Networks for other people's loops: the network of a study, by its class or its name."""

from __future__ import annotations

import pickle

import pytest
import torch

import vsetune
from vsetune.config.component_specs import NETWORKS
from vsetune.networks.network_building import build_network

SIZES = {"regions": 3, "width": 6, "vocabulary_size": 9}
NAMES = [name for name in dir(vsetune.networks) if name != "named"]


@pytest.mark.parametrize("name", NAMES)
def test_a_class_builds_the_network_of_a_study(name: str) -> None:
    found = getattr(vsetune.networks, name)
    with torch.device("meta"):  # shapes without memory
        ours, theirs = found(**SIZES), build_network(NETWORKS[found.component](), **SIZES)
    assert isinstance(ours, type(theirs))
    assert {name: value.shape for name, value in ours.state_dict().items()} == {
        name: value.shape for name, value in theirs.state_dict().items()
    }


def test_a_seed_gives_the_same_weights_by_class_and_by_name_and_they_are_kept_by_pickle() -> None:
    torch.manual_seed(0)
    ours = vsetune.networks.VSEpp(embedding_size=4, word_size=5, **SIZES)
    torch.manual_seed(0)
    theirs = vsetune.networks.named("vsepp", embedding_size=4, word_size=5, **SIZES)
    images = vsetune.ImageInputs(torch.rand(2, 3, 6), torch.tensor([3, 2]))
    expected = theirs.encode_images(images).vectors
    assert expected.shape == (2, 4)
    for network in (ours, pickle.loads(pickle.dumps(ours))):
        assert torch.equal(network.encode_images(images).vectors, expected)
