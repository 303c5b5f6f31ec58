"""VSE-infinity equals plain loops over regions, words, gates and sorted values: both towers, forward and gradient."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from plain_networks import (
    assert_same_with_gradients,
    draw,
    encode,
    linear,
    loop_batch_norm,
    loop_both_ways,
    make,
    unit,
)
from torch import Tensor

from vsetune.networks.inputs import CaptionInputs, ImageInputs
from vsetune.networks.vse_infinity.network import GeneralisedPooling
from vsetune.networks.vse_infinity.spec import VseInfinitySpec

SMALL: dict[str, Any] = {"embedding_size": 6, "word_size": 5, "pooling_size": 4, "augment": False}


def mean_of_both_ways(gru: Any, vectors: list[Tensor]) -> list[Tensor]:
    return [(one + other) / 2 for one, other in zip(*loop_both_ways(gru, vectors), strict=True)]


def loop_pooled(pooling: Any, vectors: list[Tensor]) -> Tensor:
    """Each dimension sorted, largest first, summed with the weights of so many vectors; then unit length."""
    size = pooling.gru.input_size
    encodings = [
        vectors[0].new_tensor([
            function(position / 10_000 ** (pair / size)) for pair in range(0, size, 2)
            for function in (math.sin, math.cos)
        ])
        for position in range(len(vectors))
    ]
    marks = [pooling.score.weight[0] @ state / 0.1 for state in mean_of_both_ways(pooling.gru, encodings)]
    total = sum(mark.exp() for mark in marks)
    pooled = torch.stack([
        sum(mark.exp() / total * value for mark, value in zip(
            marks, sorted((vector[dimension] for vector in vectors), key=Tensor.item, reverse=True), strict=True))
        for dimension in range(len(vectors[0]))
    ])
    return unit(pooled)


def loop_images(network: Any, images: ImageInputs) -> Tensor:
    rows = [
        [features[region] for region in range(count)]
        for features, count in zip(images.features, images.counts.tolist(), strict=True)
    ]
    mapped = [[linear(network.region_map, x) for x in image] for image in rows]
    if network.region_mlp is not None:
        mlp = network.region_mlp
        hidden = loop_batch_norm(mlp.norm, [linear(mlp.inner, x) for image in rows for x in image],
                                 training=network.training)
        following = iter(hidden)
        mapped = [[x + linear(mlp.outer, next(following).relu()) for x in image] for image in mapped]
    return torch.stack([loop_pooled(network.image_pooling, image) for image in mapped])


def loop_captions(network: Any, captions: CaptionInputs) -> Tensor:
    return torch.stack([
        loop_pooled(network.caption_pooling, mean_of_both_ways(network.gru, [network.words.weight[i] for i in ids[:n]]))
        for ids, n in zip(captions.tokens, captions.lengths.tolist(), strict=True)
    ])


@pytest.mark.parametrize(("image_mlp", "training"), [(True, True), (True, False), (False, False)])
def test_embeddings_and_gradients_equal_plain_loops(image_mlp: bool, training: bool) -> None:
    network, (images, captions) = make(VseInfinitySpec(**SMALL, image_mlp=image_mlp)).train(training), draw(4)
    fast = [items.vectors for items in encode(network, (images, captions))]
    assert_same_with_gradients(network, fast, [loop_images(network, images), loop_captions(network, captions)])


def test_the_weights_of_pooling_are_computed_once_per_distinct_number_of_regions(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    network, (images, _), asked = make(VseInfinitySpec(**SMALL)), draw(4), []
    pooling: Any = network.image_pooling
    weights = pooling.weights
    monkeypatch.setattr(pooling, "weights", lambda sizes: asked.append(sizes.tolist()) or weights(sizes))
    network.encode_images(images)
    assert asked == [sorted(set(images.counts.tolist()))]


@pytest.fixture
def pooling():
    torch.manual_seed(0)
    return GeneralisedPooling(4).double()


def test_real_elements_may_stand_anywhere(pooling):
    features = torch.randn(1, 5, 3, dtype=torch.float64)
    mask = torch.tensor([[True, False, True, True, False]])
    packed = pooling(features[:, [0, 2, 3]], torch.ones(1, 3, dtype=torch.bool))
    torch.testing.assert_close(pooling(features, mask), packed)
