"""MSE** and Malali and Keller's network: one vector of a CNN per image, a GRU per caption."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from plain_networks import assert_same_with_gradients, draw, linear, loop_gru, unit
from torch import Tensor

from vsetune.config.component_specs import NetworkSpec
from vsetune.networks.inputs import CaptionInputs, ImageInputs
from vsetune.networks.malali_keller.spec import MalaliKellerSpec
from vsetune.networks.mse.spec import MseSpec
from vsetune.networks.network_base import Network
from vsetune.networks.network_building import build_network

RANDOM = {"model": "random", "widths": (4, 6)}
SPECS: dict[str, Any] = {"mse": MseSpec, "malali_keller": MalaliKellerSpec}


def make(name: str, image_input: str = "pixels", **settings: Any) -> Network:
    torch.manual_seed(0)
    spec: NetworkSpec = SPECS[name](
        image_input=image_input, embedding_size=8, word_size=5, **{"backbone": RANDOM} | settings
    )
    return build_network(spec, regions=6, width=7, vocabulary_size=30).double().eval()


@pytest.fixture(params=SPECS)
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def loop_words(network: Any, captions: CaptionInputs) -> list[Tensor]:
    return [
        torch.stack([network.words.weight[token] for token in row[:length]])
        for row, length in zip(captions.tokens.tolist(), captions.lengths.tolist(), strict=True)
    ]


@pytest.mark.parametrize("training", [False, True])
def test_an_image_is_the_mapped_unit_average_of_the_last_map(name: str, training: bool, photographs: Any) -> None:
    frozen = RANDOM | {"batch_norm": "frozen"}  # so that the CNN may read photographs one by one in training too
    network, images = make(name, backbone=frozen).train(training), photographs(3)
    tower, slow = network.image_vectors, []
    for pixels in images.pixels:
        cells = tower.backbone(pixels)[0].flatten(start_dim=1).unbind(dim=1)
        slow.append(unit(linear(tower.image_map, unit(sum(cells) / len(cells)))))
    assert_same_with_gradients(network, [network.encode_images(images).vectors], [torch.stack(slow)])


def test_stored_regions_stand_for_the_cnn_by_their_mean(name: str) -> None:
    network, (images, _) = make(name, "features"), draw(3)
    tower, slow = network.image_vectors, []
    assert tower.backbone is None
    for image, count in zip(images.features, images.counts.tolist(), strict=True):
        average = sum(image[region] for region in range(count)) / count
        slow.append(unit(linear(tower.image_map, unit(average))))
    assert_same_with_gradients(network, [network.encode_images(images).vectors], [torch.stack(slow)])


def last(gru: Any, words: Tensor) -> Tensor:
    return loop_gru(gru, words)[-1]


def last_backwards(gru: Any, words: Tensor) -> Tensor:
    return loop_gru(gru, words.flip(0), "_l0_reverse")[-1]


@pytest.mark.parametrize(("of", "settings", "size", "read"), [
    ("mse", {}, 8, last),
    ("mse", {"text": "bi_sum"}, 8, lambda gru, words: last(gru, words) + last_backwards(gru, words)),
    ("malali_keller", {}, 4, lambda gru, words: torch.cat((last(gru, words), last_backwards(gru, words)))),
], ids=["last state", "sum of both end states", "both end states side by side"])
def test_a_caption_is_what_its_gru_ends_with(of: str, settings: dict[str, Any], size: int, read: Any) -> None:
    network, (_, captions) = make(of, **settings), draw(4)
    assert network.gru.hidden_size == size
    slow = torch.stack([unit(read(network.gru, words)) for words in loop_words(network, captions)])
    assert_same_with_gradients(network, [network.encode_captions(captions).vectors], [slow])


def test_mse_reads_captions_in_one_direction_and_says_so_as_before() -> None:
    assert MseSpec().text == "gru"
    assert "text" not in MseSpec().to_plain()
    assert MseSpec.model_validate(MseSpec(text="bi_sum").to_plain()).text == "bi_sum"


@torch.no_grad()
def test_several_crops_give_the_mean_of_their_embeddings_normalised_again(name: str, photographs: Any) -> None:
    network, images = make(name), photographs(3, crops=4)
    nothing, counts = images.features, images.counts
    each = [
        network.encode_images(ImageInputs(nothing, counts, pixels=images.pixels[:, crop : crop + 1])).vectors
        for crop in range(4)
    ]
    mean = torch.stack(each).mean(dim=0)
    found = network.encode_images(images).vectors
    torch.testing.assert_close(found, mean / mean.norm(dim=1, keepdim=True), rtol=1e-9, atol=1e-9)


def test_word_embeddings_of_mse_start_as_in_the_paper_or_as_in_its_code() -> None:
    for start, mean in (("paper", 0.0), ("released", 1.0)):
        torch.manual_seed(0)
        spec = MseSpec(embedding_size=2, embedding_start=start)
        words = build_network(spec, regions=1, width=2, vocabulary_size=400).words.weight.detach()
        assert words.mean() == pytest.approx(mean, abs=0.001)
        assert words.std() == pytest.approx(math.sqrt(1 / 300), rel=0.01)
