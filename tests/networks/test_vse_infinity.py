from __future__ import annotations

import pytest
import torch

from vsetune.data.stored.vocabulary import MASK
from vsetune.networks.inputs import ImageInputs
from vsetune.networks.vse_infinity.network import drop_cells, drop_regions, drop_words
from vsetune.networks.vse_infinity.spec import VseInfinitySpec

SPEC = VseInfinitySpec(embedding_size=8, word_size=5, pooling_size=4, augment=False)


def image_vectors(network, features, counts):
    return network.encode_images(ImageInputs(features, counts)).vectors


@pytest.mark.parametrize("training", [True, False])
def test_the_released_batch_norm_counts_the_zeros_behind_shorter_images(network, inputs, training):
    released = SPEC.model_copy(update={"mlp_statistics": "padded"})
    built, drawn, counts = network(released).train(training), inputs(4), torch.tensor([4, 2, 3, 1])
    mlp = built.region_mlp
    # as released: rectangular, zeros where an image has no region, as long as the longest of the batch
    padded = drawn["features"][:, :4] * (torch.arange(4) < counts[:, None])[..., None]
    hidden = [[mlp.inner.weight @ region + mlp.inner.bias for region in image] for image in padded]
    column = torch.stack([region for image in hidden for region in image])
    mean, variance = mlp.norm.running_mean.clone(), mlp.norm.running_var.clone()
    if training:
        mean, variance = column.mean(dim=0), ((column - column.mean(dim=0)) ** 2).mean(dim=0)
    expected = []
    for image, some, count in zip(padded, hidden, counts, strict=True):
        rows = []
        for region, value in list(zip(image, some, strict=True))[:count]:
            normal = (value - mean) / (variance + 1e-5).sqrt() * mlp.norm.weight + mlp.norm.bias
            outer = mlp.outer.weight @ normal.relu() + mlp.outer.bias
            rows.append(built.region_map.weight @ region + built.region_map.bias + outer)
        pooled = built.image_pooling(torch.stack(rows)[None], torch.ones(1, len(rows), dtype=torch.bool))[0]
        expected.append(pooled / pooled.norm())
    found = image_vectors(built, drawn["features"], counts)
    torch.testing.assert_close(found, torch.stack(expected), rtol=1e-9, atol=1e-12)
    if training:
        torch.testing.assert_close(mlp.norm.running_mean, 0.1 * mean)
        torch.testing.assert_close(mlp.norm.running_var, 0.9 + 0.1 * column.var(dim=0))
        plain = network(SPEC).train()
        assert not torch.allclose(image_vectors(plain, drawn["features"], counts), found, atol=1e-6)


def test_regions_are_dropped_at_the_given_rate_and_never_all():
    torch.manual_seed(0)
    mask = torch.arange(10) < torch.tensor([10, 4, 1]).repeat(3000)[:, None]
    kept = drop_regions(mask, 0.3)
    assert not (kept & ~mask).any()
    assert kept.any(dim=1).all()
    assert kept[0::3].float().mean() == pytest.approx(0.7, abs=0.01)
    assert kept[2::3, 0].all()
    assert drop_regions(mask, 0.999).any(dim=1).all()
    assert torch.equal(drop_regions(mask, 0.0), mask)


def test_the_grid_rule_spares_a_fifth_of_the_images():
    torch.manual_seed(0)
    kept = drop_cells(torch.ones(20_000, 50, dtype=torch.bool), 0.2)
    # rho below 0.2 spares all; above, 0.2 rho of the cells: 0.2 * (1 - 0.2^2) / 2 = 0.096 on the whole
    assert (~kept).float().mean() == pytest.approx(0.096, abs=0.002)
    # at rho = 0.2, 50 cells survive untouched with 0.96^50 = 0.13; so clearly more than a fifth, far below half
    assert 0.2 < kept.all(dim=1).float().mean() < 0.3


def test_words_are_masked_replaced_or_deleted_in_the_published_shares():
    torch.manual_seed(0)
    tokens = torch.full((4000, 20), 9)
    changed, lengths = drop_words(tokens, torch.full((4000,), 20), probability=0.2, vocabulary_size=1000)
    total = tokens.numel()
    real = changed[torch.arange(20) < lengths[:, None]]
    assert (total - len(real)) / total == pytest.approx(0.2 * 0.4, abs=0.005)
    assert (real == MASK).sum() / total == pytest.approx(0.2 * 0.5, abs=0.005)
    assert ((real != MASK) & (real != 9)).sum() / total == pytest.approx(0.2 * 0.1, abs=0.003)
    assert (real > 0).all()
    assert (changed[torch.arange(20) >= lengths[:, None]] == 0).all()


def test_at_least_one_word_of_a_caption_stays():
    torch.manual_seed(0)
    _, lengths = drop_words(torch.full((2000, 2), 9), torch.tensor([1, 2] * 1000), probability=0.999,
                            vocabulary_size=50)
    assert lengths.min() == 1
