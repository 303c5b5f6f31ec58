"""VSE++ with a CNN that reads photographs."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from vsetune.networks.network_base import Network
from vsetune.networks.network_building import build_network
from vsetune.networks.vsepp.spec import VseppSpec


@pytest.fixture
def network() -> Network:
    torch.manual_seed(0)
    spec = VseppSpec(
        image_input="pixels", embedding_size=8, word_size=5, backbone={"model": "random", "widths": (4, 6)}
    )
    return build_network(spec, regions=6, width=7, vocabulary_size=30).double().eval()


@torch.no_grad()
def test_an_image_is_the_mapped_unit_vector_of_the_cnn(network: Any, photographs: Any) -> None:
    images = photographs(3)
    for row, found in enumerate(network.encode_images(images).vectors):
        average = network.backbone(images.pixels[row])[0].mean(dim=(1, 2))
        mapped = network.image_map.weight @ (average / average.norm()) + network.image_map.bias
        torch.testing.assert_close(found, mapped / mapped.norm(), rtol=1e-9, atol=1e-9)
