"""PCME: equal to loops written from the equations; what holds of its Gaussians beside test_every_network.py."""

from __future__ import annotations

import math

import pytest
import torch
from plain_networks import assert_same_with_gradients, draw, encode, make

from vsetune.losses.loss_base import Items
from vsetune.losses.pcme_pp.loss import closed_form_distances
from vsetune.networks.encoded import Encoded
from vsetune.networks.pcme.network import match_log_odds
from vsetune.networks.pcme.spec import PcmeNetworkSpec

SMALL = {"embedding_size": 8, "word_size": 5, "samples": 3}


def loop_attended(attention, items):
    scores = [(attention.outer.weight @ torch.tanh(attention.inner.weight @ item))[0].exp() for item in items]
    return sum(score / sum(scores) * item for score, item in zip(scores, items, strict=True))


def loop_mean(head, whole, items):
    residual = torch.sigmoid(head.local_map.weight @ loop_attended(head.attention, items) + head.local_map.bias)
    added = whole + residual
    spread = ((added - added.mean()) ** 2).mean()
    normed = (added - added.mean()) / (spread + 1e-5).sqrt() * head.norm.weight + head.norm.bias
    return normed / normed.norm()


def loop_log_scale(spread, whole, items):
    return spread.local_map.weight @ loop_attended(spread.attention, items) + spread.local_map.bias + whole


def loop_image(network, features):
    regions = list(features)
    pooled = sum(regions) / len(regions)
    mean = loop_mean(network.image_head, network.image_map.weight @ pooled + network.image_map.bias, regions)
    whole = network.image_spread_map.weight @ pooled + network.image_spread_map.bias
    return mean, loop_log_scale(network.image_spread, whole, regions)


def loop_caption(network, tokens, end_state):
    words, ends = network.words(tokens), []
    for gru in (network.gru, network.spread_gru):
        states, final = gru(words[None])
        ends.append(states[0, -1] if end_state == "legacy" else torch.cat((final[0, 0], final[1, 0])))
    mean = loop_mean(network.caption_head, ends[0], list(words))
    return mean, loop_log_scale(network.caption_spread, ends[1], list(words))


def loop_encoded(network, images, captions, end_state):
    found = [loop_image(network, row[:count]) for row, count in zip(images.features, images.counts, strict=True)]
    texts = [
        loop_caption(network, row[:length], end_state)
        for row, length in zip(captions.tokens, captions.lengths, strict=True)
    ]
    return [
        Encoded(torch.stack([mean for mean, _ in some]), log_scales=torch.stack([scale for _, scale in some]))
        for some in (found, texts)
    ]


def loop_score(network, image, caption, similarity):
    """One entry from the samples of one image (mean, log scale) and one caption."""
    if similarity == "mean":
        return image[0] @ caption[0]
    drawn = [image[0] + image[1].exp() * noise for noise in network.image_noise]
    others = [caption[0] + caption[1].exp() * noise for noise in network.caption_noise]
    if similarity == "matmul":
        return sum(x @ y for x in drawn for y in others)
    a, b = network.match_scale, network.match_shift
    logits = [b - a * (((x - y) ** 2).sum() + 1e-6).sqrt() for x in drawn for y in others]
    match = sum(logit.exp() / (logit.exp() + (-logit).exp()) for logit in logits) / len(logits)
    mismatch = sum((-logit).exp() / (logit.exp() + (-logit).exp()) for logit in logits) / len(logits)
    return match.log() - mismatch.log()


def loop_similarity(network, images, captions, similarity):
    return torch.stack([
        torch.stack([
            loop_score(network, image, caption, similarity)
            for caption in zip(captions.vectors, captions.log_scales, strict=True)
        ])
        for image in zip(images.vectors, images.log_scales, strict=True)
    ])


@pytest.mark.parametrize(("end_state", "similarity"), [
    ("legacy", "matmul"), ("final", "matmul"), ("legacy", "match_probability"), ("final", "mean"),
])
def test_gaussians_similarities_and_gradients_equal_plain_loops(end_state, similarity):
    spec = PcmeNetworkSpec(**SMALL, end_state=end_state, similarity=similarity, match_scale=1.5, match_shift=2.0)
    network, drawn = make(spec), draw(4)
    fast, slow = encode(network, drawn), loop_encoded(network, *drawn, end_state)
    scores = network.similarity(*fast), loop_similarity(network, *slow, similarity)
    assert_same_with_gradients(network, *(
        [score, *(part for item in items for part in (item.vectors, item.log_scales))]
        for score, items in zip(scores, (fast, slow), strict=True)
    ))


def gaussians(batch, *, seed=0):
    generator = torch.Generator().manual_seed(seed)
    means, log_scales = torch.randn(2, batch, 8, generator=generator, dtype=torch.float64)
    return Encoded(means / means.norm(dim=1, keepdim=True), log_scales=0.3 * log_scales - 1)


def test_evaluation_repeats_its_noise_and_another_seed_draws_other_noise():
    items = gaussians(4), gaussians(5, seed=1)
    first, again, other = (make(PcmeNetworkSpec(**SMALL, sample_seed=seed)) for seed in (3, 3, 4))
    torch.manual_seed(11)
    scores = first.similarity(*items)
    assert torch.equal(first.similarity(*items), scores)
    assert torch.equal(again.similarity(*items), scores)
    assert not torch.allclose(other.similarity(*items), scores)
    assert not torch.equal(first.image_noise, first.caption_noise)


def test_a_seed_of_samples_leaves_the_parameters_alone():
    one, other = (make(PcmeNetworkSpec(**SMALL, sample_seed=seed)).state_dict() for seed in (3, 4))
    assert all(torch.equal(one[name], other[name]) for name in one)
    assert not any("noise" in name for name in one)


@pytest.mark.parametrize("similarity", ["matmul", "match_probability"])
def test_training_draws_new_noise_for_every_item_from_the_global_generator(similarity):
    network = make(PcmeNetworkSpec(**SMALL, similarity=similarity)).train()
    twice = gaussians(1)[torch.tensor([0, 0])]

    def scores(seed):
        torch.manual_seed(seed)
        return network.similarity(twice, gaussians(3, seed=1))

    assert torch.equal(scores(1), scores(1))
    assert not torch.allclose(scores(1), scores(2))
    assert not torch.allclose(scores(1)[0], scores(1)[1])


def test_good_matches_stay_apart_where_float32_rounds_their_probability_to_one():
    point = torch.zeros(1, 1, 2)
    others = torch.tensor([[[0.01, 0.0]], [[0.02, 0.0]], [[0.3, 0.0]]])
    scores = match_log_odds(point, others, scale=torch.tensor(15.0), shift=torch.tensor(15.0))[0]
    assert scores[:2].sigmoid().tolist() == [1.0, 1.0]
    assert scores[0] > scores[1] > scores[2]
    # one sample each: the log-odds are twice the logit
    assert scores[2].item() == pytest.approx(2 * (15 - 15 * math.sqrt(0.09 + 1e-6)), rel=1e-5)


@pytest.mark.parametrize("shift", [-50.0, 50.0])
def test_extreme_logits_stay_finite_in_float32(shift):
    drawn = torch.randn(3, 2, 8, requires_grad=True)
    scores = match_log_odds(drawn, torch.randn(4, 2, 8), scale=torch.tensor(15.0), shift=torch.tensor(shift))
    scores.sum().backward()
    assert torch.isfinite(scores).all()
    assert torch.isfinite(drawn.grad).all()


def test_the_loss_hands_its_parameters_over_and_they_are_saved():
    network = make(PcmeNetworkSpec(**SMALL, similarity="match_probability"))
    items = gaussians(3), gaussians(3, seed=1)
    before = network.similarity(*items)
    learned = {"match_scale": 7.0, "match_shift": 3.0}
    network.take_loss_parameters({name: torch.nn.Parameter(torch.tensor(value)) for name, value in learned.items()})
    assert not torch.allclose(network.similarity(*items), before)
    assert network.state_dict()["match_scale"].item() == 7
    assert not network.match_shift.requires_grad


def test_the_closed_form_is_minus_the_distance_that_pcme_pp_learns():
    images, captions = gaussians(3), gaussians(4, seed=1)
    network = make(PcmeNetworkSpec(embedding_size=images.vectors.shape[1], similarity="csd"))
    items = [Items(each.vectors, each.log_scales) for each in (images, captions)]
    found = network.similarity(images, captions)
    torch.testing.assert_close(found, -closed_form_distances(*items))
    for row in range(3):
        for column in range(4):
            distance = (images.vectors[row] - captions.vectors[column]).square().sum()
            spreads = [(2 * each.log_scales[at]).exp().sum() for each, at in ((images, row), (captions, column))]
            assert found[row, column].item() == pytest.approx(-float(distance + sum(spreads)))
