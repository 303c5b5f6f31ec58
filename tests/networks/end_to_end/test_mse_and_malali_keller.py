"""MSE** and Malali and Keller's network: one vector of a CNN per image, a GRU per caption."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from vsetune.config.component_specs import NetworkSpec
from vsetune.config.sources.trial_inputs import PixelInput
from vsetune.networks.inputs import CaptionInputs, ImageInputs
from vsetune.networks.malali_keller.spec import MalaliKellerSpec
from vsetune.networks.mse.spec import MseSpec
from vsetune.networks.network_base import Network
from vsetune.networks.network_building import build_network

RANDOM = {"model": "random", "widths": (4, 6)}
SPECS: dict[str, Any] = {"mse": MseSpec, "malali_keller": MalaliKellerSpec}
START = {"mse": 150.0, "malali_keller": 45.0}


def make(name: str, image_input: str = "pixels", **settings: Any) -> Network:
    torch.manual_seed(0)
    spec: NetworkSpec = SPECS[name](
        image_input=image_input, embedding_size=8, word_size=5, **{"backbone": RANDOM} | settings
    )
    return build_network(spec, regions=6, width=7, vocabulary_size=30).double().eval()


def unit(vector: Tensor) -> Tensor:
    return vector / vector.norm()


@pytest.fixture(params=SPECS)
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def captions(inputs: Any) -> CaptionInputs:
    drawn = inputs(5)
    return CaptionInputs(drawn["tokens"], drawn["lengths"])


def assert_same_with_gradients(network: Network, fast: Tensor, slow: list[Tensor], tolerance: float) -> None:
    """Values, and gradients of every parameter through a random weighting of them."""
    expected = torch.stack(slow)
    torch.testing.assert_close(fast, expected, rtol=tolerance, atol=tolerance)
    torch.manual_seed(1)
    weights = torch.randn_like(expected)
    found, wanted = (
        torch.autograd.grad((weights * each).sum(), list(network.parameters()), materialize_grads=True)
        for each in (fast, expected)
    )
    assert any(gradient.abs().max() > 0.01 for gradient in wanted)
    for one, other in zip(found, wanted, strict=True):
        torch.testing.assert_close(one, other, rtol=tolerance, atol=tolerance)


def loop_gru(gru: Any, suffix: str, words: Tensor) -> Tensor:
    """State after the last of these words, gate by gate."""
    input_weight, weight, input_bias, bias = (
        getattr(gru, f"{name}_{suffix}") for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
    )
    state = weight.new_zeros(gru.hidden_size)
    for word in words:
        inner, outer = (input_weight @ word + input_bias).chunk(3), (weight @ state + bias).chunk(3)
        reset, update = (inner[0] + outer[0]).sigmoid(), (inner[1] + outer[1]).sigmoid()
        state = (1 - update) * (inner[2] + reset * outer[2]).tanh() + update * state
    return state


def loop_words(network: Any, captions: CaptionInputs) -> list[Tensor]:
    return [
        torch.stack([network.words.weight[token] for token in row[:length]])
        for row, length in zip(captions.tokens.tolist(), captions.lengths.tolist(), strict=True)
    ]


both_dtypes = pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-9), (torch.float32, 1e-4)])
both_modes = pytest.mark.parametrize("training", [False, True])


@both_dtypes
@both_modes
def test_an_image_is_the_mapped_unit_average_of_the_last_map(
    name: str, training: bool, dtype: torch.dtype, tolerance: float, photographs: Any
) -> None:
    frozen = RANDOM | {"batch_norm": "frozen"}  # so that the CNN may read photographs one by one in training too
    network, images = make(name, backbone=frozen).to(dtype).train(training), photographs(3)
    tower, slow = network.image_vectors, []
    for pixels in images.pixels:
        cells = tower.backbone(pixels)[0].flatten(start_dim=1).unbind(dim=1)
        slow.append(unit(tower.image_map.weight @ unit(sum(cells) / len(cells)) + tower.image_map.bias))
    assert_same_with_gradients(network, network.encode_images(images).vectors, slow, tolerance)


@both_dtypes
@both_modes
def test_stored_regions_stand_for_the_cnn_by_their_mean(
    name: str, training: bool, dtype: torch.dtype, tolerance: float, inputs: Any
) -> None:
    network, features = make(name, "features").to(dtype).train(training), inputs(3)["features"].to(dtype)
    tower, slow = network.image_vectors, []
    assert tower.backbone is None
    for image, count in zip(features, (6, 2, 1), strict=True):
        average = sum(image[region] for region in range(count)) / count
        slow.append(unit(tower.image_map.weight @ unit(average) + tower.image_map.bias))
    fast = network.encode_images(ImageInputs(features, torch.tensor([6, 2, 1]))).vectors
    assert_same_with_gradients(network, fast, slow, tolerance)


@both_dtypes
@both_modes
def test_a_caption_of_mse_is_the_last_state_of_its_gru(
    training: bool, dtype: torch.dtype, tolerance: float, captions: CaptionInputs
) -> None:
    network = make("mse").to(dtype).train(training)
    slow = [unit(loop_gru(network.gru, "l0", words)) for words in loop_words(network, captions)]
    assert_same_with_gradients(network, network.encode_captions(captions).vectors, slow, tolerance)


@both_dtypes
@both_modes
def test_a_caption_of_mse_with_both_directions_is_the_sum_of_their_end_states(
    training: bool, dtype: torch.dtype, tolerance: float, captions: CaptionInputs
) -> None:
    network = make("mse", text="bi_sum").to(dtype).train(training)
    assert network.gru.hidden_size == 8
    slow = [
        unit(loop_gru(network.gru, "l0", words) + loop_gru(network.gru, "l0_reverse", words.flip(0)))
        for words in loop_words(network, captions)
    ]
    assert_same_with_gradients(network, network.encode_captions(captions).vectors, slow, tolerance)


def test_mse_reads_captions_in_one_direction_and_says_so_as_before() -> None:
    assert MseSpec().text == "gru"
    assert "text" not in MseSpec().to_plain()
    assert MseSpec.model_validate(MseSpec(text="bi_sum").to_plain()).text == "bi_sum"


@both_dtypes
@both_modes
def test_a_caption_of_malali_and_keller_is_both_end_states_side_by_side(
    training: bool, dtype: torch.dtype, tolerance: float, captions: CaptionInputs
) -> None:
    network = make("malali_keller").to(dtype).train(training)
    assert network.gru.hidden_size == 4
    slow = [
        unit(torch.cat((loop_gru(network.gru, "l0", words), loop_gru(network.gru, "l0_reverse", words.flip(0)))))
        for words in loop_words(network, captions)
    ]
    assert_same_with_gradients(network, network.encode_captions(captions).vectors, slow, tolerance)


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


def test_the_cnn_is_frozen_at_first_and_its_map_is_not(name: str, photographs: Any) -> None:
    network, images = make(name).train(), photographs(2)
    rest, backbone = network.parameter_groups()
    assert (rest.factor, rest.start_epoch) == (1.0, 0.0)
    assert (backbone.factor, backbone.start_epoch) == (1.0, START[name])
    assert any(parameter is network.image_vectors.image_map.weight for parameter in rest.parameters)
    for epoch, learns in ((0.0, False), (START[name] - 0.01, False), (START[name], True)):
        network.set_epoch(epoch)
        network.zero_grad(set_to_none=True)
        network.encode_images(images).vectors[:, 0].sum().backward()
        assert network.image_vectors.image_map.weight.grad.abs().sum() > 0
        assert all((parameter.grad is not None) is learns for parameter in backbone.parameters)
    assert len(make(name, "features").parameter_groups()) == 1


def test_word_embeddings_of_mse_start_as_in_the_paper_or_as_in_its_code() -> None:
    for start, mean in (("paper", 0.0), ("released", 1.0)):
        torch.manual_seed(0)
        spec = MseSpec(embedding_size=2, embedding_start=start)
        words = build_network(spec, regions=1, width=2, vocabulary_size=400).words.weight.detach()
        assert words.mean() == pytest.approx(mean, abs=0.001)
        assert words.std() == pytest.approx(math.sqrt(1 / 300), rel=0.01)


def test_photographs_are_cropped_and_mirrored_as_published() -> None:
    common = {"size": 224, "flip": 0.5, "evaluation": "centre_crop"}
    assert MseSpec(image_input="pixels").reads.pixels == PixelInput(
        crop="random_resized", crop_low=0.33, crop_high=1.0, swaps_sides=True, **common
    )
    assert MseSpec(image_input="pixels", crop="square_window").reads.pixels == PixelInput(
        crop="square_window", crop_low=0.875, crop_high=0.875, swaps_sides=True, **common
    )
    assert MalaliKellerSpec(image_input="pixels").reads.pixels == PixelInput(
        crop="square_window", crop_low=0.8, crop_high=1.0, swaps_sides=False, evaluation_crops=20, **common
    )
    assert MseSpec().reads.pixels is MalaliKellerSpec().reads.pixels is None
