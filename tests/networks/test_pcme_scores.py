"""PCME's scores of Gaussians: seeded samples, the sum of samples, the match probability."""

from __future__ import annotations

import math

import pytest
import torch

from vsetune.networks.encoded import Encoded
from vsetune.networks.pcme import network as pcme
from vsetune.networks.pcme.network import Pcme, match_log_odds, samples, sums_of_samples
from vsetune.networks.pcme.spec import PcmeNetworkSpec

WIDTH, WORDS = 7, 30
SMALL = {"embedding_size": 8, "word_size": 5, "samples": 3}


def make(spec, *, seed=0):
    torch.manual_seed(seed)
    network = Pcme(spec, width=WIDTH, vocabulary_size=WORDS).double()
    with torch.no_grad():  # LayerNorm and biases away from their start
        for value in network.parameters():
            value.add_(torch.rand_like(value) * 0.3)
    return network.eval()


def gaussians(batch, *, seed=0):
    generator = torch.Generator().manual_seed(seed)
    means, log_scales = torch.randn(2, batch, 8, generator=generator, dtype=torch.float64)
    return Encoded(means / means.norm(dim=1, keepdim=True), log_scales=0.3 * log_scales - 1)


def test_without_spread_all_samples_are_the_mean_and_matmul_is_their_number_squared_times_the_cosine():
    network = make(PcmeNetworkSpec(**SMALL))
    images, captions = gaussians(4), gaussians(5, seed=1)
    narrow = [Encoded(item.vectors, log_scales=torch.full_like(item.vectors, -50)) for item in (images, captions)]
    torch.testing.assert_close(network.similarity(*narrow), 9 * images.vectors @ captions.vectors.T)


def test_the_sum_of_the_samples_is_the_one_of_the_drawn_samples():
    items = gaussians(4)
    for noise in (torch.randn(3, 8).double(), torch.randn(4, 3, 8).double()):
        drawn = samples(items.vectors, items.log_scales, noise).sum(dim=1)
        torch.testing.assert_close(sums_of_samples(items.vectors, items.log_scales, noise), drawn, rtol=0, atol=1e-12)


def test_evaluation_repeats_its_noise_and_another_seed_draws_other_noise():
    items = gaussians(4), gaussians(5, seed=1)
    first, again, other = (make(PcmeNetworkSpec(**SMALL, sample_seed=seed), seed=seed) for seed in (3, 3, 4))
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


def test_the_score_by_match_probability_has_the_order_of_the_probability():
    images, captions = (torch.randn(4, 3, 8, generator=torch.Generator().manual_seed(s)).double() for s in (0, 1))
    scale, shift = torch.tensor(2.0).double(), torch.tensor(6.0).double()
    logits = shift - scale * (torch.cdist(images.flatten(0, 1), captions.flatten(0, 1)).square() + 1e-6).sqrt()
    probability = (2 * logits).sigmoid().view(4, 3, 4, 3).mean(dim=(1, 3))
    odds = match_log_odds(images, captions, scale=scale, shift=shift)
    torch.testing.assert_close(odds.sigmoid(), probability)


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


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("numbers", [1, 40, 200])
def test_the_size_of_the_blocks_does_not_matter(numbers, training, monkeypatch):
    network = make(PcmeNetworkSpec(**SMALL, similarity="match_probability")).train(training)
    items = gaussians(5), gaussians(7, seed=1)
    torch.manual_seed(0)
    whole = network.similarity(*items)
    monkeypatch.setattr(pcme, "_NUMBERS_PER_BLOCK", numbers)
    monkeypatch.setattr(pcme, "_CAPTIONS_PER_BLOCK", 3)
    torch.manual_seed(0)
    torch.testing.assert_close(network.similarity(*items), whole, rtol=1e-12, atol=1e-10)


def test_the_loss_hands_its_parameters_over_and_they_are_saved():
    network = make(PcmeNetworkSpec(**SMALL, similarity="match_probability"))
    items = gaussians(3), gaussians(3, seed=1)
    before = network.similarity(*items)
    learned = {"match_scale": 7.0, "match_shift": 3.0}
    network.take_loss_parameters({name: torch.nn.Parameter(torch.tensor(value)) for name, value in learned.items()})
    assert not torch.allclose(network.similarity(*items), before)
    assert network.state_dict()["match_scale"].item() == 7
    assert not network.match_shift.requires_grad
