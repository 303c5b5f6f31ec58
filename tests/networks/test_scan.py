"""SCAN: the vectorised Gram path equals plain loops over images, captions, words and regions."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from plain_networks import assert_same_with_gradients
from torch import Tensor
from torch.nn.functional import cosine_similarity

from vsetune.networks.encoded import Encoded
from vsetune.networks.inputs import CaptionInputs, ImageInputs
from vsetune.networks.scan.network import Scan
from vsetune.networks.scan.spec import ScanSpec

SMALL: dict[str, Any] = {"embedding_size": 8, "word_size": 5}
DIRECTIONS = ["text_to_image", "image_to_text"]
COUNTS = torch.tensor([6, 1, 4])
LENGTHS = torch.tensor([4, 9, 1, 3, 6])


def make(seed: int = 0, **options: Any) -> Scan:
    torch.manual_seed(seed)
    return Scan(ScanSpec(**SMALL | options), width=7, vocabulary_size=30).double().eval()


def batch() -> tuple[ImageInputs, CaptionInputs]:
    generator = torch.Generator().manual_seed(0)
    features = torch.randn(3, 6, 7, generator=generator, dtype=torch.float64)
    tokens = torch.randint(1, 30, (5, 9), generator=generator)
    return ImageInputs(features, COUNTS), CaptionInputs(tokens, LENGTHS)


def scores(network: Scan, images: ImageInputs, captions: CaptionInputs) -> Tensor:
    return network.similarity(network.encode_images(images), network.encode_captions(captions))


def added_to_lengths(spec: ScanSpec) -> float:
    return 1e-8 if spec.norm == "released" else 0.0


def unit(vectors: Tensor, added: float) -> Tensor:
    return vectors / (vectors.square().sum(dim=-1, keepdim=True).sqrt() + added)


def loop_encoders(network: Scan, images: ImageInputs, captions: CaptionInputs) -> tuple[list[Tensor], list[Tensor]]:
    added = added_to_lengths(network._spec)
    mapped = [network.image_map(row[:count]) for row, count in zip(images.features, images.counts, strict=True)]
    words = []
    for row, length in zip(captions.tokens, captions.lengths, strict=True):
        states, _ = network.gru(network.words(row[:length])[None])
        words.append(unit((states[0, :, :8] + states[0, :, 8:]) / 2, added))
    return [unit(regions, added) for regions in mapped], words


def loop_strengths(products: Tensor, spec: ScanSpec) -> Tensor:
    """u. products: (contexts, queries)."""
    clipped = torch.where(products > 0, products, spec.leak * products)
    if spec.attention_normalization == "clipped":
        return clipped
    if spec.attention_normalization == "none":
        return products
    if spec.attention_normalization == "softmax":
        return torch.stack([row.exp() / row.exp().sum() for row in products])
    if spec.attention_normalization == "l2":
        clipped = products
    return torch.stack([unit(row, added_to_lengths(spec)) if row.any() else row for row in clipped])


def loop_score(regions: Tensor, words: Tensor, spec: ScanSpec) -> Tensor:
    """One pair: k_a = sum_b softmax_b(lambda u_ba) c_b for every query a, then pooled cosines of a and k_a."""
    queries, contexts = (words, regions) if spec.direction == "text_to_image" else (regions, words)
    strengths = loop_strengths(contexts @ queries.T, spec)
    cosines = []
    for column, query in zip(strengths.T, queries, strict=True):
        weights = (spec.attention_scale * column).softmax(dim=0)
        attended = sum(weight * context for weight, context in zip(weights, contexts, strict=True))
        cosines.append(cosine_similarity(query, attended, dim=0, eps=1e-8))
    found = torch.stack(cosines)
    if spec.pooling == "lse":
        return (spec.pooling_scale * found).exp().sum().log() / spec.pooling_scale
    return {"mean": found.mean(), "sum": found.sum(), "max": found.max()}[spec.pooling]


@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize("options", [
    {}, {"pooling": "mean"}, {"pooling": "max"}, {"pooling": "sum"}, {"leak": 0.0, "weight_norm": True},
    *({"attention_normalization": name} for name in ("clipped", "l2", "softmax", "none")),
    {"norm": "released"}, {"norm": "released", "attention_normalization": "l2", "pooling": "mean"},
], ids=str)
def test_scores_and_gradients_equal_plain_loops(direction: str, options: dict[str, Any]) -> None:
    network, (images, captions) = make(direction=direction, **options), batch()
    images.features.requires_grad_()
    regions, words = loop_encoders(network, images, captions)
    slow = torch.stack([torch.stack([loop_score(v, w, network._spec) for w in words]) for v in regions])
    leaves = [images.features, *network.parameters()]
    assert_same_with_gradients(leaves, [scores(network, images, captions)], [slow])


@pytest.mark.parametrize("direction", DIRECTIONS)
def test_a_case_worked_by_hand(direction: str) -> None:
    """Regions (1, 0), (0, 1); words (1, 0), (0.6, 0.8).

    With lambda near 0 all weights are 1/2. Words attend to k = (0.5, 0.5): cosines 1 / sqrt 2 and 1.4 / sqrt 2, mean
    0.84853. Regions attend to k = (0.8, 0.4), of length 0.8944: cosines 0.8944 and 0.4472, mean 0.67082.
    """
    network = make(direction=direction, pooling="mean", attention_scale=1e-12)
    regions = Encoded(torch.eye(2, dtype=torch.float64)[None], torch.tensor([2]))
    words = Encoded(torch.tensor([[[1, 0], [0.6, 0.8]]], dtype=torch.float64), torch.tensor([2]))
    expected = 2.4 / math.sqrt(2) / 2 if direction == "text_to_image" else 0.6 / math.sqrt(0.8)
    assert network.similarity(regions, words).item() == pytest.approx(expected, abs=1e-9)


def test_weight_normalisation_has_one_length_for_the_whole_matrix() -> None:
    network = make(weight_norm=True)
    assert dict(network.named_parameters())["image_map.parametrizations.weight.original0"].numel() == 1


def test_scales_not_given_are_those_of_the_direction() -> None:
    assert (ScanSpec().attention_scale, ScanSpec().pooling_scale) == (9, 6)
    other = ScanSpec(direction="image_to_text")
    assert (other.attention_scale, other.pooling_scale) == (4, 5)
    assert ScanSpec(direction="image_to_text", attention_scale=7).attention_scale == 7
    assert ScanSpec.model_validate(other.to_plain()) == other
    assert ScanSpec().score == "unbounded"
    assert ScanSpec(pooling="mean").score == "cosine"
