from __future__ import annotations

import math

import pytest
import torch

from vsetune.networks.vse_infinity.network import GeneralisedPooling, positional_encoding, sum_of_sorted


@pytest.fixture
def pooling():
    torch.manual_seed(0)
    return GeneralisedPooling(4).double()


def loop_gru(weights, suffix, inputs):
    state, states = inputs[0].new_zeros(4), []
    for vector in inputs:
        inner = weights[f"gru.weight_ih_{suffix}"] @ vector + weights[f"gru.bias_ih_{suffix}"]
        outer = weights[f"gru.weight_hh_{suffix}"] @ state + weights[f"gru.bias_hh_{suffix}"]
        reset, update = (inner[:8] + outer[:8]).sigmoid().chunk(2)
        state = (1 - update) * (inner[8:] + reset * outer[8:]).tanh() + update * state
        states.append(state)
    return states


def loop_pooling(pooling, vectors):
    """One set, step by step as the definition says."""
    weights = dict(pooling.named_parameters())
    encodings = []
    for position in range(len(vectors)):
        angles = [position / 10_000 ** (pair / 4) for pair in (0, 2)]
        encodings.append(vectors.new_tensor([f(a) for a in angles for f in (math.sin, math.cos)]))
    forward = loop_gru(weights, "l0", encodings)
    backward = loop_gru(weights, "l0_reverse", encodings[::-1])[::-1]
    scores = [pooling.score.weight[0] @ (one + other) / 2 for one, other in zip(forward, backward, strict=True)]
    theta = (torch.stack(scores) / 0.1).softmax(dim=0)
    pooled = []
    for dimension in range(vectors.shape[1]):
        ordered = sorted(vectors[:, dimension], key=lambda value: value.item(), reverse=True)
        pooled.append(sum(theta[k] * value for k, value in enumerate(ordered)))
    return torch.stack(pooled)


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-9), (torch.float32, 1e-4)])
def test_values_and_gradients_equal_plain_loops(pooling, dtype, tolerance):
    pooling = pooling.to(dtype)
    features = torch.randn(5, 6, 3, dtype=dtype, requires_grad=True)
    sizes = [6, 1, 3, 6, 2]
    mask = torch.arange(6) < torch.tensor(sizes)[:, None]
    fast = pooling(features, mask)
    slow = torch.stack([loop_pooling(pooling, features[row, :size]) for row, size in enumerate(sizes)])
    torch.testing.assert_close(fast, slow, rtol=tolerance, atol=tolerance)
    weight = torch.randn_like(fast)
    leaves = [features, *pooling.parameters()]
    fast_gradients = torch.autograd.grad((weight * fast).sum(), leaves)
    slow_gradients = torch.autograd.grad((weight * slow).sum(), leaves)
    for one, other in zip(fast_gradients, slow_gradients, strict=True):
        torch.testing.assert_close(one, other, rtol=tolerance, atol=tolerance)


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


def test_pooled_values_lie_between_the_least_and_the_greatest(pooling):
    features = torch.randn(6, 5, 3, dtype=torch.float64)
    pooled = pooling(features, torch.ones(6, 5, dtype=torch.bool))
    assert (pooled <= features.amax(dim=1) + 1e-12).all()
    assert (pooled >= features.amin(dim=1) - 1e-12).all()


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


def test_pooling_works_in_float32_under_autocast():
    torch.manual_seed(0)
    pooling = GeneralisedPooling(4)
    features, mask = torch.randn(3, 4, 2), torch.ones(3, 4, dtype=torch.bool)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        inside = pooling(features, mask)
    assert torch.equal(inside, pooling(features, mask))
