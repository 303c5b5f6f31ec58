"""The attention that networks show is the attention that their scores use."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from vsetune.config.component_specs import NETWORKS
from vsetune.networks.encoded import Encoded
from vsetune.networks.inputs import CaptionInputs, ImageInputs
from vsetune.networks.network_base import Network
from vsetune.networks.network_building import build_network

REGIONS, WIDTH, VOCABULARY = 4, 7, 20
COUNTS, LENGTHS = torch.tensor([4, 1, 3]), torch.tensor([5, 1, 3, 6])
SMALL: dict[str, dict[str, Any]] = {
    "scan": {}, "sgraf_saf": {"similarity_size": 6}, "sgraf_sgr": {"similarity_size": 6},
    "gsmn": {"blocks": 2, "kernels": 2, "hidden_size": 4, "attention_scale": 6.0},
}


def make(name: str, **settings: Any) -> Network:
    torch.manual_seed(0)
    spec = NETWORKS[name](embedding_size=8, word_size=5, **settings)
    return build_network(spec, regions=REGIONS, width=WIDTH, vocabulary_size=VOCABULARY).double().eval()


def encoded(network: Network) -> tuple[Encoded, Encoded]:
    """Three images of 4, 1 and 3 regions, four captions of 5, 1, 3 and 6 words."""
    generator = torch.Generator().manual_seed(0)
    is_real = torch.arange(REGIONS) < COUNTS[:, None]
    features = torch.randn(3, REGIONS, WIDTH, generator=generator, dtype=torch.float64) * is_real[..., None]
    tokens = torch.randint(1, VOCABULARY, (4, 6), generator=generator).masked_fill(
        torch.arange(6) >= LENGTHS[:, None], 0
    )
    images = network.encode_images(ImageInputs(features, COUNTS))
    return images, network.encode_captions(CaptionInputs(tokens, LENGTHS))


def unit(vectors: Tensor) -> Tensor:
    return vectors / vectors.norm(dim=-1, keepdim=True)


@pytest.mark.parametrize("pooling", ["lse", "mean"])
def test_scan_scores_the_vectors_that_its_attention_gathers(pooling: str) -> None:
    network = make("scan", pooling=pooling)
    images, captions = encoded(network)
    weights, scores = network.attention(images, captions), network.similarity(images, captions)
    for image in range(3):
        for caption, length in enumerate(LENGTHS.tolist()):
            gathered = weights[image, caption, :length] @ images.vectors[image]
            cosines = (unit(gathered) * unit(captions.vectors[caption, :length])).sum(dim=1)
            pooled = (6.0 * cosines).logsumexp(dim=0) / 6.0 if pooling == "lse" else cosines.mean()
            torch.testing.assert_close(scores[image, caption], pooled, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("name", ["sgraf_saf", "sgraf_sgr"])
def test_sgraf_scores_the_vectors_that_its_attention_gathers(name: str) -> None:
    network = make(name, **SMALL[name])
    images, captions = encoded(network)
    weights, scores = network.attention(images, captions), network.similarity(images, captions)
    for image in range(3):
        for caption, length in enumerate(LENGTHS.tolist()):
            gathered = unit(weights[image, caption, :length] @ images.vectors[image])
            local = network.local_map((gathered - captions.vectors[caption, :length]).square())
            whole = network.global_map((images.whole[image] - captions.whole[caption]).square())
            nodes = unit(torch.cat((whole[None], local)))[None, None]
            (pooled,) = network.reasoning.columns([(nodes, torch.ones(1, length + 1, dtype=torch.bool))])
            torch.testing.assert_close(scores[image, caption], pooled[0, 0], rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize("propagation", ["paper", "released"])
def test_gsmn_attends_as_in_the_loops_that_its_scores_equal(propagation: str) -> None:
    """`test_gsmn_loops` has the scores by this very equation (Liu et al. 2020, Eqs. 6 and 7; lambda is 6 here)."""
    network = make("gsmn", propagation=propagation, **SMALL["gsmn"])
    images, captions = encoded(network)
    weights = network.attention(images, captions)
    for image, count in enumerate(COUNTS.tolist()):
        for caption, length in enumerate(LENGTHS.tolist()):
            words = captions.vectors[caption, :length].detach()
            regions = images.vectors[image, :count].detach()
            leaky = [[max(float(v @ w), 0.1 * float(v @ w)) for w in words] for v in regions]
            lengths = [sum(value**2 for value in row) ** 0.5 for row in leaky]
            for word in range(length):
                exponents = torch.tensor(
                    [6.0 * row[word] / size for row, size in zip(leaky, lengths, strict=True)], dtype=torch.float64
                )
                torch.testing.assert_close(weights[image, caption, word, :count], exponents.softmax(dim=0), rtol=1e-6,
                                           atol=1e-9)


def test_networks_in_which_words_do_not_attend_say_so() -> None:
    for name, settings in (("scan", {"direction": "image_to_text"}), ("vsepp", {}), ("pvse", {})):
        network = make(name, **settings)
        assert network.attention(*encoded(network)) is None
