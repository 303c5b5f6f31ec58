"""VSE-infinity from photographs: grid mode, trained end to end."""

from __future__ import annotations

from typing import Any

import torch

from vsetune.networks.network_base import Network
from vsetune.networks.network_building import build_network
from vsetune.networks.vse_infinity.spec import VseInfinitySpec

RANDOM = {"model": "random", "widths": (4, 6)}
GRID = {"image_input": "pixels", "image_mlp": False, "embedding_size": 8, "word_size": 5, "pooling_size": 4}


def make(backbone: dict[str, Any] | None = None, **settings: Any) -> Network:
    torch.manual_seed(0)
    spec = VseInfinitySpec(**{**GRID, "backbone": RANDOM | (backbone or {})} | settings)
    return build_network(spec, regions=1, width=7, vocabulary_size=20).double().eval()


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


def test_both_towers_may_be_pre_trained(bert: str, resnet: str, photographs: Any) -> None:
    network = make({"model": resnet, "widths": (16, 32)}, text_tower="bert", text_model=bert)
    assert [group.factor for group in network.parameter_groups()] == [1.0, 0.01, 0.1]
    assert network.encode_images(photographs(2)).vectors.shape == (2, 8)
