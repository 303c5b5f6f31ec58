"""VSE-infinity equals plain loops over regions, words, gates and sorted values: both towers, forward and gradient."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from vsetune.networks.inputs import CaptionInputs, ImageInputs
from vsetune.networks.network_base import Network
from vsetune.networks.network_building import build_network
from vsetune.networks.vse_infinity.network import GeneralisedPooling, positional_encoding, sum_of_sorted
from vsetune.networks.vse_infinity.spec import VseInfinitySpec

REGIONS, WIDTH, WORDS, VOCABULARY = 6, 7, 8, 30
SMALL: dict[str, Any] = {"embedding_size": 6, "word_size": 5, "pooling_size": 4, "augment": False}


def make(**settings: Any) -> Network:
    torch.manual_seed(0)
    sizes = {"regions": REGIONS, "width": WIDTH, "vocabulary_size": VOCABULARY}
    return build_network(VseInfinitySpec(**(SMALL | settings)), **sizes).double()


def draw() -> tuple[ImageInputs, CaptionInputs]:
    generator = torch.Generator().manual_seed(0)
    features = torch.randn(4, REGIONS, WIDTH, generator=generator, dtype=torch.float64)
    tokens, lengths = torch.randint(1, VOCABULARY, (4, WORDS), generator=generator), torch.tensor([3, 8, 1, 3])
    tokens = tokens.masked_fill(torch.arange(WORDS) >= lengths[:, None], 0)
    return ImageInputs(features, torch.tensor([6, 2, 6, 1])), CaptionInputs(tokens, lengths)


def loop_gru(gru: Any, suffix: str, vectors: list[Tensor]) -> list[Tensor]:
    input_weight, weight, input_bias, bias = (
        getattr(gru, f"{name}_{suffix}") for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
    )
    state, states = weight.new_zeros(gru.hidden_size), []
    for vector in vectors:
        inner = (input_weight @ vector + input_bias).chunk(3)
        outer = (weight @ state + bias).chunk(3)
        reset, update = (inner[0] + outer[0]).sigmoid(), (inner[1] + outer[1]).sigmoid()
        state = (1 - update) * (inner[2] + reset * outer[2]).tanh() + update * state
        states.append(state)
    return states


def loop_both_ways(gru: Any, vectors: list[Tensor]) -> list[Tensor]:
    forward, backward = loop_gru(gru, "l0", vectors), loop_gru(gru, "l0_reverse", vectors[::-1])[::-1]
    return [(one + other) / 2 for one, other in zip(forward, backward, strict=True)]


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
    marks = [pooling.score.weight[0] @ state / 0.1 for state in loop_both_ways(pooling.gru, encodings)]
    total = sum(mark.exp() for mark in marks)
    pooled = torch.stack([
        sum(mark.exp() / total * value for mark, value in zip(
            marks, sorted((vector[dimension] for vector in vectors), key=Tensor.item, reverse=True), strict=True))
        for dimension in range(len(vectors[0]))
    ])
    return pooled / pooled.square().sum().sqrt()


def loop_images(network: Any, images: ImageInputs) -> Tensor:
    rows = [
        [features[region] for region in range(count)]
        for features, count in zip(images.features, images.counts.tolist(), strict=True)
    ]
    mapped = [[network.region_map.weight @ x + network.region_map.bias for x in image] for image in rows]
    if network.region_mlp is not None:
        mlp, norm = network.region_mlp, network.region_mlp.norm
        hidden = [[mlp.inner.weight @ x + mlp.inner.bias for x in image] for image in rows]
        every = [h for image in hidden for h in image]
        mean, variance = norm.running_mean, norm.running_var
        if network.training:
            mean = sum(every) / len(every)
            variance = sum((h - mean).square() for h in every) / len(every)
        scale = norm.weight / (variance + norm.eps).sqrt()
        mapped = [
            [x + mlp.outer.weight @ ((h - mean) * scale + norm.bias).relu() + mlp.outer.bias
             for x, h in zip(*image, strict=True)]
            for image in zip(mapped, hidden, strict=True)
        ]
    return torch.stack([loop_pooled(network.image_pooling, image) for image in mapped])


def loop_captions(network: Any, captions: CaptionInputs) -> Tensor:
    return torch.stack([
        loop_pooled(network.caption_pooling, loop_both_ways(network.gru, [network.words.weight[i] for i in ids[:n]]))
        for ids, n in zip(captions.tokens, captions.lengths.tolist(), strict=True)
    ])


@pytest.mark.parametrize("image_mlp", [True, False])
@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-9), (torch.float32, 1e-4)])
def test_embeddings_and_gradients_equal_plain_loops(
    image_mlp: bool, training: bool, dtype: torch.dtype, tolerance: float
) -> None:
    network, (images, captions) = make(image_mlp=image_mlp).to(dtype).train(training), draw()
    images = ImageInputs(images.features.to(dtype), images.counts)
    slow = loop_images(network, images), loop_captions(network, captions)
    fast = network.encode_images(images).vectors, network.encode_captions(captions).vectors
    torch.manual_seed(1)
    weights = torch.randn(2, 4, 6, dtype=dtype)
    gradients = []
    for found in (fast, slow):
        total = sum((weight * side).sum() for weight, side in zip(weights, found, strict=True))
        gradients.append(torch.autograd.grad(total, list(network.parameters())))
    for one, other in zip((*fast, *gradients[0]), (*slow, *gradients[1]), strict=True):
        torch.testing.assert_close(one, other, rtol=tolerance, atol=tolerance)


def test_the_weights_of_pooling_are_computed_once_per_distinct_number_of_regions(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    network, (images, _), asked = make(), draw(), []
    pooling: Any = network.image_pooling
    weights = pooling.weights
    monkeypatch.setattr(pooling, "weights", lambda sizes: asked.append(sizes.tolist()) or weights(sizes))
    network.encode_images(images)
    assert asked == [[1, 2, 6]]


def test_augmented_items_are_finite_unit_vectors_with_finite_gradients() -> None:
    network, (images, captions) = make(augment=True, region_dropout=0.9, word_dropout=0.9).train(), draw()
    for seed in range(20):
        torch.manual_seed(seed)
        found = [network.encode_images(images).vectors, network.encode_captions(captions).vectors]
        network.zero_grad()
        torch.cat(found).cos().sum().backward()
        for vectors in found:
            torch.testing.assert_close(vectors.norm(dim=1), torch.ones(4).double())
        gradients = [value.grad for value in network.parameters() if value.grad is not None]
        assert all(torch.isfinite(gradient).all() for gradient in gradients)


@pytest.fixture
def pooling():
    torch.manual_seed(0)
    return GeneralisedPooling(4).double()


def test_weights_sum_to_one_and_are_zero_behind_the_size(pooling):
    sizes = torch.tensor([1, 2, 5])
    weights = pooling.weights(sizes)
    torch.testing.assert_close(weights.sum(dim=1), torch.ones(3, dtype=torch.float64))
    assert (weights >= 0).all()
    assert (weights[torch.arange(5) >= sizes[:, None]] == 0).all()


def test_weights_depend_on_the_size_alone(pooling):
    torch.testing.assert_close(pooling.weights(torch.tensor([2, 5]))[0, :2], pooling.weights(torch.tensor([2]))[0])


def test_a_set_of_one_is_returned_as_it_is(pooling):
    features = torch.randn(3, 4, 2, dtype=torch.float64)
    mask = torch.arange(4) == torch.tensor([0, 2, 3])[:, None]
    torch.testing.assert_close(pooling(features, mask), features[[0, 1, 2], [0, 2, 3]])


def test_real_elements_may_stand_anywhere(pooling):
    features = torch.randn(1, 5, 3, dtype=torch.float64)
    mask = torch.tensor([[True, False, True, True, False]])
    packed = pooling(features[:, [0, 2, 3]], torch.ones(1, 3, dtype=torch.bool))
    torch.testing.assert_close(pooling(features, mask), packed)


def test_all_weight_on_the_first_is_max_pooling_and_equal_weights_are_the_mean():
    features = torch.randn(2, 4, 3) - 5  # negative, so that a padding of 0 would win
    mask = torch.tensor([[True] * 4, [True, True, False, False]])
    largest = sum_of_sorted(features, mask, torch.tensor([[1.0, 0, 0, 0]] * 2))
    torch.testing.assert_close(largest, torch.stack([features[0].amax(dim=0), features[1, :2].amax(dim=0)]))
    mean = sum_of_sorted(features, mask, torch.tensor([[0.25] * 4, [0.5, 0.5, 0, 0]]))
    torch.testing.assert_close(mean, torch.stack([features[0].mean(dim=0), features[1, :2].mean(dim=0)]))


def test_one_value_that_is_no_number_is_not_hidden(pooling):
    features = torch.randn(2, 3, 2, dtype=torch.float64)
    features[0, 1, 0] = float("nan")
    pooled = pooling(features, torch.ones(2, 3, dtype=torch.bool))
    assert pooled[0, 0].isnan()
    assert torch.isfinite(pooled[1]).all()


def test_positions_are_encoded_by_sine_and_cosine_in_turn():
    encoding = positional_encoding(3, 4)
    torch.testing.assert_close(encoding[0], torch.tensor([0.0, 1.0, 0.0, 1.0], dtype=torch.float64))
    expected = [math.sin(2), math.cos(2), math.sin(0.02), math.cos(0.02)]
    torch.testing.assert_close(encoding[2], torch.tensor(expected, dtype=torch.float64))
