"""VSE-infinity from photographs: grid mode, trained end to end."""

from __future__ import annotations

from typing import Any

import torch

from vsetune.config.sources.trial_inputs import PixelInput
from vsetune.networks.inputs import CaptionInputs
from vsetune.networks.network_base import Network
from vsetune.networks.network_building import build_network
from vsetune.networks.vse_infinity.spec import VseInfinitySpec

RANDOM = {"model": "random", "widths": (4, 6)}
GRID = {"image_input": "pixels", "image_mlp": False, "embedding_size": 8, "word_size": 5, "pooling_size": 4}


def make(backbone: dict[str, Any] | None = None, **settings: Any) -> Network:
    torch.manual_seed(0)
    spec = VseInfinitySpec(**{**GRID, "backbone": RANDOM | (backbone or {})} | settings)
    return build_network(spec, regions=1, width=7, vocabulary_size=20).double().eval()


def some_captions() -> CaptionInputs:
    return CaptionInputs(torch.tensor([[1, 5, 2], [1, 6, 2]]), torch.tensor([3, 3]))


@torch.no_grad()
def test_an_image_is_the_pooled_map_of_the_cells_of_the_cnn(photographs: Any) -> None:
    network, images = make(), photographs(3)
    found = network.encode_images(images).vectors
    assert network.region_mlp is None
    for row in range(3):
        mapped = network.region_map(network.backbone.cells(images.pixels[row])[0])
        theta = network.image_pooling.weights(torch.tensor([len(mapped)]))[0]
        pooled = (mapped.sort(dim=0, descending=True).values * theta[:, None]).sum(dim=0)
        torch.testing.assert_close(found[row], pooled / pooled.norm(), rtol=1e-9, atol=1e-9)


def test_photographs_are_cropped_and_mirrored_as_published() -> None:
    spec = VseInfinitySpec(image_input="pixels", image_mlp=False)
    expected = PixelInput(size=512, crop="square_window", crop_low=0.6, crop_high=1.0, flip=0.5)
    assert spec.reads.pixels == expected
    assert (expected.swaps_sides, expected.evaluation, expected.evaluation_crops) == (False, "square", 0)
    plain = spec.model_copy(update={"augment": False}).reads.pixels
    assert plain is not None
    assert (plain.crop, plain.flip) == ("none", 0.0)
    assert VseInfinitySpec().reads.pixels is None


def test_the_cnn_trains_from_epoch_1_at_a_hundredth_of_the_rate(photographs: Any) -> None:
    network, images = make().train(), photographs(2)
    rest, backbone = network.parameter_groups()
    assert (rest.factor, rest.start_epoch, backbone.factor, backbone.start_epoch) == (1.0, 0.0, 0.01, 1.0)
    for epoch, learns in ((0.0, False), (0.99, False), (1.0, True), (7.5, True)):
        network.set_epoch(epoch)
        network.zero_grad(set_to_none=True)
        scores = network.similarity(network.encode_images(images), network.encode_captions(some_captions()))
        scores.square().sum().backward()
        assert all((parameter.grad is not None) is learns for parameter in backbone.parameters)
        assert all(parameter.grad is not None for parameter in rest.parameters)


def test_both_towers_may_be_pre_trained(bert: str, resnet: str, photographs: Any) -> None:
    network = make({"model": resnet, "widths": (16, 32)}, text_tower="bert", text_model=bert)
    assert [group.factor for group in network.parameter_groups()] == [1.0, 0.01, 0.1]
    assert network.encode_images(photographs(2)).vectors.shape == (2, 8)
