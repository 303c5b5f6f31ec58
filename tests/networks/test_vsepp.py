"""VSE++: both towers and the order similarity equal plain loops."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from plain_networks import assert_same_with_gradients, draw, encode, linear, loop_gru, make, unit

from vsetune.networks.vsepp.network import order_similarity
from vsetune.networks.vsepp.spec import VseppSpec

SMALL = {"embedding_size": 8, "word_size": 5}


def loop_caption(network, tokens):
    return unit(loop_gru(network.gru, [network.words.weight[token] for token in tokens])[-1])


def loop_image(network, features, count, spec):
    if spec.image_input == "global":
        vector = features[0]
    elif spec.image_input == "mean":
        vector = sum(features[region] for region in range(count)) / count
    else:
        vector = torch.cat(list(features))
    mapped = linear(network.image_map, vector)
    return unit(mapped) if spec.normalize_images else mapped


@pytest.mark.parametrize("settings", [
    {"image_input": "global"}, {"image_input": "mean"}, {"image_input": "flatten"}, {"absolute": True},
    {"normalize_images": False},
], ids=str)
def test_embeddings_and_gradients_equal_plain_loops(settings):
    spec, (images, captions) = VseppSpec(**SMALL, **settings), draw(4)
    if spec.image_input != "mean":
        images = replace(images, features=images.features[:, :1] if spec.image_input == "global" else images.features,
                         counts=torch.full((4,), 1 if spec.image_input == "global" else 6))
    network = make(spec, regions=images.features.shape[1])
    slow = [
        torch.stack([loop_image(network, row, int(count), spec)
                     for row, count in zip(images.features, images.counts, strict=True)]),
        torch.stack([loop_caption(network, row[:length])
                     for row, length in zip(captions.tokens, captions.lengths, strict=True)]),
    ]
    if spec.absolute:
        slow = [vectors.abs() for vectors in slow]
    assert_same_with_gradients(network, [items.vectors for items in encode(network, (images, captions))], slow)


def plain(images: torch.Tensor, captions: torch.Tensor) -> list[list[float]]:
    def violation(image: list[float], caption: list[float]) -> float:
        return sum(max(0.0, t - v) ** 2 for v, t in zip(image, caption, strict=True)) ** 0.5

    return [[-violation(image, caption) for caption in captions.tolist()] for image in images.tolist()]


def test_order_similarity_is_the_plain_formula() -> None:
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
