"""From a spec to its network, and encoded items."""

from __future__ import annotations

import pytest
import torch

from vsetune.cli.components import count_parameters
from vsetune.config.component_specs import NETWORKS, NetworkSpec
from vsetune.errors import ConfigError
from vsetune.networks.encoded import Encoded, joined
from vsetune.networks.network_base import Network
from vsetune.networks.network_building import build_network, register
from vsetune.networks.vsepp.network import Vsepp
from vsetune.networks.vsepp.spec import VseppSpec

SIZES = {"regions": 36, "width": 16, "vocabulary_size": 20}


@pytest.mark.parametrize("name", NETWORKS)
def test_every_spec_has_a_network_that_says_what_its_spec_says(name: str) -> None:
    spec = NETWORKS[name]()
    with torch.device("meta"):
        network = build_network(spec, **SIZES)
    assert isinstance(network, Network)
    assert (network.kind, network.embedding_size) == (spec.kind, spec.embedding_size)
    assert all(parameter.device.type == "meta" for parameter in network.parameters())


@pytest.mark.parametrize("name", NETWORKS)
def test_the_parameters_that_lists_print_are_those_of_the_network(name: str) -> None:
    assert vars(NETWORKS[name])["default_parameters"] == count_parameters(NETWORKS[name]())


@pytest.mark.parametrize("name", NETWORKS)
def test_every_network_is_built_for_the_smallest_data(name: str) -> None:
    """Checks of a study build a network of ours only where it reads files or needs one region: no other refuses."""
    with torch.device("meta"):
        build_network(NETWORKS[name](), regions=1, width=1, vocabulary_size=1)


def test_a_spec_has_one_network() -> None:
    with pytest.raises(ValueError, match="VseppSpec is already registered"):
        register(VseppSpec)(Vsepp)


def test_a_spec_without_a_network_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"got a NetworkSpec, which no network is built from; need a class with @reg"):
        build_network(NetworkSpec(), **SIZES)


def test_joined_items_are_padded_to_the_longest_and_stay_themselves() -> None:
    groups = [
        Encoded(torch.randn(n, parts, 3), torch.full((n,), parts), whole=torch.randn(n, 3),
                links=torch.randn(n, parts, parts))
        for n, parts in ((2, 4), (1, 6))
    ]
    both = joined(groups)
    assert (len(both), both.vectors.shape, both.links.shape) == (3, (3, 6, 3), (3, 6, 6))
    assert torch.equal(both.vectors[:2, :4], groups[0].vectors)
    assert torch.equal(both.links[:2, :4, :4], groups[0].links)
    assert not both.vectors[:2, 4:].any()
    assert not both.links[:2, 4:].any()
    assert torch.equal(both[torch.tensor([2])].vectors, groups[1].vectors)
    assert both[:1].whole.shape == (1, 3)
    wide = both.to(torch.float64)
    assert (wide.vectors.dtype, wide.whole.dtype, wide.lengths.dtype) == (torch.float64, torch.float64, torch.int64)
