"""Order similarity: equal to the plain formula, forward and backward, whatever the block size."""

from __future__ import annotations

import pytest
import torch

from vsetune.networks.encoded import Encoded
from vsetune.networks.inputs import CaptionInputs, ImageInputs
from vsetune.networks.network_building import build_network
from vsetune.networks.vsepp import network as order
from vsetune.networks.vsepp.network import order_similarity
from vsetune.networks.vsepp.spec import VseppSpec


def image_vectors(network, features, counts):
    return network.encode_images(ImageInputs(features, counts)).vectors


def caption_vectors(network, tokens, lengths):
    return network.encode_captions(CaptionInputs(tokens, lengths)).vectors


def plain(images: torch.Tensor, captions: torch.Tensor) -> list[list[float]]:
    def violation(image: list[float], caption: list[float]) -> float:
        return sum(max(0.0, t - v) ** 2 for v, t in zip(image, caption, strict=True)) ** 0.5

    return [[-violation(image, caption) for caption in captions.tolist()] for image in images.tolist()]


@pytest.mark.parametrize("numbers_per_block", [1, 40, 10**6])
def test_order_similarity_is_the_plain_formula_in_any_block_size(
    numbers_per_block: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(order, "_NUMBERS_PER_BLOCK", numbers_per_block)
    images, captions = torch.randn(7, 5, dtype=torch.float64), torch.randn(4, 5, dtype=torch.float64)
    expected = torch.tensor(plain(images, captions), dtype=torch.float64)
    torch.testing.assert_close(order_similarity(images, captions), expected, atol=1e-9, rtol=0)
    images.requires_grad_()
    captions.requires_grad_()
    assert torch.autograd.gradcheck(order_similarity, (images, captions))


def test_a_caption_below_its_image_in_every_coordinate_is_a_perfect_match_without_gradient() -> None:
    images = torch.tensor([[0.5, 0.5]], requires_grad=True)
    captions = torch.tensor([[0.2, 0.5]], requires_grad=True)
    similarity = order_similarity(images, captions)
    similarity.sum().backward()
    assert similarity.item() == 0
    assert images.grad is not None
    assert torch.equal(images.grad, torch.zeros(1, 2))


def test_vsepp_with_order_similarity_ranks_by_it() -> None:
    network = build_network(
        VseppSpec(embedding_size=6, word_size=4, absolute=True, similarity="order"), regions=1, width=3,
        vocabulary_size=9,
    )
    images = image_vectors(network, torch.randn(2, 1, 3), torch.ones(2, dtype=torch.int64))
    captions = caption_vectors(network, torch.tensor([[1, 5, 2]]), torch.tensor([3]))
    similarity = network.similarity(Encoded(images), Encoded(captions))
    torch.testing.assert_close(similarity, torch.tensor(plain(images, captions)))


def test_order_similarity_without_absolute_embeddings_is_refused() -> None:
    with pytest.raises(ValueError, match="absolute: true"):
        VseppSpec(similarity="order")
