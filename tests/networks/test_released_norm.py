"""`norm: released` where it differs from `guarded`: short vectors, and zero (decision 0030).

The formulas are written out as in the released code; loops over whole networks stand beside those of `guarded`.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from vsetune.config.component_specs import NETWORKS
from vsetune.networks.cgmn.network import Cgmn, node_matching_scores, released_weights
from vsetune.networks.cgmn.spec import CgmnSpec
from vsetune.networks.inputs import ImageInputs
from vsetune.networks.network_base import divided_by_length, unit_length
from vsetune.networks.parts.cross_attention import Attention
from vsetune.networks.parts.region_graph import normalized_regions

ADDED = 1e-8
lengths = pytest.mark.parametrize("length", [1e-9, 1e-8, 3e-7, 1.0])


def released_unit(vectors: Tensor, dim: int = -1) -> Tensor:
    """SCAN, SGRAF."""
    return vectors / (vectors.pow(2).sum(dim=dim, keepdim=True).sqrt() + ADDED)


def released_attention(products: Tensor, scale: float) -> Tensor:
    """(L, R) of one pair: words are queries."""
    clipped = torch.where(products > 0, products, 0.1 * products)
    return (scale * released_unit(clipped, dim=0)).softmax(dim=1)


def assert_same(ours: Tensor, released: Tensor, leaf: Tensor) -> None:
    """Values and gradients, each relative to the largest."""
    torch.manual_seed(1)
    weights = torch.randn_like(released)
    gradients = [torch.autograd.grad((weights * each).sum(), leaf, retain_graph=True)[0] for each in (ours, released)]
    for one, other in [(ours, released), gradients]:
        torch.testing.assert_close(one, other, rtol=1e-12, atol=1e-12 * other.abs().max().item())


@lengths
def test_short_vectors_are_divided_by_their_length_and_1e_8(length: float) -> None:
    torch.manual_seed(0)
    vectors = (length * torch.randn(5, 4, dtype=torch.float64)).requires_grad_()
    assert_same(unit_length(vectors, added=ADDED), released_unit(vectors), vectors)


@lengths
def test_short_attention_is_divided_by_its_length_and_1e_8(length: float) -> None:
    torch.manual_seed(0)
    products = (length * torch.randn(6, 5, dtype=torch.float64)).requires_grad_()
    is_word = torch.ones(1, 6, dtype=torch.bool)
    ours = Attention(9.0, added=ADDED).of_words(products[None, :, None], is_word, None)[0, :, 0]
    assert_same(ours, released_attention(products, 9.0), products)
    guarded = Attention(9.0).of_words(products[None, :, None], is_word, None)[0, :, 0]
    assert ((guarded - ours).abs().max() > 0.01) == (length < 1)


@lengths
def test_cgmn_divides_short_vectors_as_its_released_code_does(length: float) -> None:
    torch.manual_seed(0)
    nodes = (length * torch.randn(2, 5, 4, dtype=torch.float64)).requires_grad_()
    channels = nodes / nodes.pow(2).sum(dim=1, keepdim=True).sqrt()
    assert_same(normalized_regions(nodes, "channel_over_regions", divided_by_length), channels, nodes)
    norms = nodes.norm(dim=2).clamp(min=1e-8)
    edges = nodes @ nodes.mT / norms[:, None] / norms[:, None]
    assert_same(released_weights(nodes, is_guarded=False), edges, nodes)
    regions, words = nodes[:1], nodes[1:]
    cosines = words[0] @ regions[0].T / norms[1][:, None] / norms[0]
    are_real = torch.ones(1, 5, dtype=torch.bool)
    found = node_matching_scores(
        regions, are_real, words, are_real, lambda vectors: divided_by_length(vectors, least=1e-8)
    )
    assert_same(found.flatten(), cosines.max(dim=1).values.sum()[None], nodes)


def test_of_a_channel_without_numbers_cgmn_makes_nan_as_released_and_zero_when_guarded() -> None:
    for norm, is_finite in (("guarded", True), ("released", False)):
        torch.manual_seed(0)
        network = Cgmn(CgmnSpec(embedding_size=6, word_size=5, norm=norm), width=7, vocabulary_size=9).eval()
        images = ImageInputs(torch.zeros(1, 3, 7), torch.tensor([3]))  # and a map without bias
        assert bool(network.encode_images(images).vectors.isfinite().all()) == is_finite


def test_of_nodes_of_infinite_length_released_weights_are_nan() -> None:
    nodes = torch.tensor([[[0.0, 0.0], [1e20, 1.0], [1.0, 1.0]]])
    assert released_weights(nodes)[0, 2].isnan().tolist() == [False, True, False]


@pytest.mark.parametrize("name", ["scan", "sgraf_saf", "sgraf_sgr", "cgmn"])
def test_the_norm_is_part_of_what_a_spec_says_unless_it_is_the_one_of_before(name: str) -> None:
    spec: Any = NETWORKS[name]
    assert "norm" not in spec().to_plain()
    released = spec(norm="released")
    assert released.to_plain()["norm"] == "released"
    assert spec.model_validate(released.to_plain()) == released
    assert spec.model_validate(spec().to_plain()).norm == "guarded"
