"""What all networks share. What must hold of each of them stands in test_every_network.py."""

from __future__ import annotations

import torch

from vsetune.networks.cgmn.network import released_weights
from vsetune.networks.encoded import Encoded
from vsetune.networks.network_base import region_mask, unit_length
from vsetune.networks.network_building import build_network
from vsetune.networks.vsepp.spec import VseppSpec


def test_similarity_is_the_dot_product_with_images_in_rows_and_captions_in_columns() -> None:
    network = build_network(VseppSpec(embedding_size=3, word_size=2), regions=1, width=4, vocabulary_size=9)
    images, captions = torch.randn(2, 3), torch.randn(5, 3)
    similarity = network.similarity(Encoded(images), Encoded(captions))
    assert similarity.shape == (2, 5)
    torch.testing.assert_close(similarity[1, 3], images[1] @ captions[3])
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.equal(network.similarity(Encoded(images), Encoded(captions)), similarity)


def test_a_zero_vector_stays_zero_and_gets_no_gradient() -> None:
    vectors = torch.tensor([[0.0, 0.0], [3.0, 4.0]], requires_grad=True)
    unit = unit_length(vectors)
    torch.testing.assert_close(unit, torch.tensor([[0.0, 0.0], [0.6, 0.8]]))
    unit.sum().backward()
    assert vectors.grad is not None
    assert torch.equal(vectors.grad[0], torch.zeros(2))
    # d/dx of x/|x| summed over both coordinates: (1 - (0.6 + 0.8) * x_hat) / 5
    torch.testing.assert_close(vectors.grad[1], torch.tensor([(1 - 1.4 * 0.6) / 5, (1 - 1.4 * 0.8) / 5]))


def test_an_image_without_regions_has_one_of_zeros() -> None:
    assert region_mask(torch.tensor([2, 0]), 3).tolist() == [[True, True, False], [True, False, False]]


def test_a_vector_of_infinite_length_is_none_of_length_zero() -> None:
    """A network that a learning rate of 1e12 had blown up scored 0 everywhere, and ended as a finished trial of 0 %."""
    vectors = torch.ones(3, 4)
    vectors[0], vectors[1, 2] = 0.0, 1e20
    for unit in (unit_length(vectors), unit_length(vectors.requires_grad_())):
        assert unit.isnan().all(dim=-1).tolist() == [False, True, False]
        assert torch.equal(unit[[0, 2]], torch.tensor([[0.0] * 4, [0.5] * 4]))
    assert released_weights(vectors.detach()[None])[0, 2].isnan().tolist() == [False, True, False]
