"""Of every network with a CNN: from which epoch the CNN learns, and how photographs are cropped."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from vsetune.config.component_specs import NETWORKS
from vsetune.config.sources.trial_inputs import PixelInput
from vsetune.networks.inputs import CaptionInputs
from vsetune.networks.network_building import build_network

STARTS = {"vsepp": (1.0, 30.0), "mse": (1.0, 150.0), "malali_keller": (1.0, 45.0), "vse_infinity": (0.01, 1.0)}
"""Factor of the CNN's learning rate, and the epoch from which it learns."""
WITHOUT_MLP = {"image_mlp": False}
CENTRE = {"size": 224, "flip": 0.5, "evaluation": "centre_crop"}


def test_these_are_all_networks_with_a_cnn() -> None:
    assert set(STARTS) == {name for name, spec in NETWORKS.items() if "backbone" in spec.model_fields}


@pytest.mark.parametrize("name", STARTS)
def test_the_cnn_is_frozen_until_its_epoch_and_all_else_learns(name: str, photographs: Any) -> None:
    settings: dict[str, Any] = WITHOUT_MLP if name == "vse_infinity" else {}
    sizes = {"embedding_size": 8, "word_size": 5, "backbone": {"model": "random", "widths": (4, 6)}}
    network = build_network(
        NETWORKS[name](image_input="pixels", **sizes, **settings), regions=1, width=7, vocabulary_size=20
    ).double().train()
    captions = CaptionInputs(torch.tensor([[1, 5, 2], [1, 6, 2]]), torch.tensor([3, 3]))
    rest, backbone = network.parameter_groups()
    start = STARTS[name][1]
    assert (rest.factor, rest.start_epoch, backbone.factor, backbone.start_epoch) == (1.0, 0.0, *STARTS[name])
    for epoch, learns in ((0.0, False), (start - 0.01, False), (start, True), (start + 6.5, True)):
        network.set_epoch(epoch)
        network.zero_grad(set_to_none=True)
        scores = network.similarity(network.encode_images(photographs(2)), network.encode_captions(captions))
        scores.square().sum().backward()
        assert all((parameter.grad is not None) is learns for parameter in backbone.parameters)
        assert all(parameter.grad is not None for parameter in rest.parameters)
    assert len(build_network(NETWORKS[name](), regions=1, width=7, vocabulary_size=20).parameter_groups()) == 1


@pytest.mark.parametrize(("name", "settings", "expected"), [
    ("vsepp", {}, PixelInput(crop="random_resized", crop_low=0.08, crop_high=1.0, **CENTRE)),
    ("mse", {}, PixelInput(crop="random_resized", crop_low=0.33, crop_high=1.0, swaps_sides=True, **CENTRE)),
    ("mse", {"crop": "square_window"},
     PixelInput(crop="square_window", crop_low=0.875, crop_high=0.875, swaps_sides=True, **CENTRE)),
    ("malali_keller", {}, PixelInput(
        crop="square_window", crop_low=0.8, crop_high=1.0, swaps_sides=False, evaluation_crops=20, **CENTRE
    )),
    ("vse_infinity", WITHOUT_MLP, PixelInput(
        size=512, crop="square_window", crop_low=0.6, crop_high=1.0, flip=0.5, swaps_sides=False, evaluation="square",
        evaluation_crops=0,
    )),
])
def test_photographs_are_cropped_and_mirrored_as_published(
    name: str, settings: dict[str, Any], expected: PixelInput
) -> None:
    spec = NETWORKS[name](image_input="pixels", **settings)
    assert spec.reads.pixels == expected
    assert NETWORKS[name]().reads.pixels is None
    if "augment" in type(spec).model_fields:
        plain = spec.model_copy(update={"augment": False}).reads.pixels
        assert (plain.crop, plain.flip) == ("none", 0.0)
