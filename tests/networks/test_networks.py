"""What all networks share. What must hold of each of them stands in test_every_network.py."""

from __future__ import annotations

import torch

from vsetune.networks.encoded import Encoded
from vsetune.networks.network_base import region_mask
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


def test_an_image_without_regions_has_one_of_zeros() -> None:
    assert region_mask(torch.tensor([2, 0]), 3).tolist() == [[True, True, False], [True, False, False]]
