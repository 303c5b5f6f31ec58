"""VGG19 with torchvision's names."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch
from refusals import refused
from torch.nn.functional import conv2d, max_pool2d

from vsetune.networks.parts.backbone import Backbone, Vgg19
from vsetune.networks.parts.network_fields import BackboneSpec
from vsetune.networks.parts.text_transformer import weights_follow

CONVOLUTIONS = (0, 2, 5, 7, 10, 12, 14, 16, 19, 21, 23, 25, 28, 30, 32, 34)


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two convolutions, each followed by pooling, and layers of 8 units instead of 4,096."""
    monkeypatch.setattr("vsetune.networks.parts.backbone._BLOCKS", ((1, 4), (1, 5)))
    monkeypatch.setattr("vsetune.networks.parts.backbone._HIDDEN", 8)
    monkeypatch.setattr("vsetune.networks.parts.backbone._CELLS", 2)


@pytest.fixture
def weights(small: None, tmp_path: Path) -> str:
    torch.manual_seed(0)
    classes = {"classifier.6.weight": torch.randn(1000, 8), "classifier.6.bias": torch.randn(1000)}
    path = tmp_path / "vgg19.pth"
    torch.save(Vgg19(as_vector=True).state_dict() | classes, path)
    return str(path)


def test_names_and_size_are_those_of_torchvision() -> None:
    with torch.device("meta"):
        vgg = Vgg19(as_vector=True)
    layers = [f"features.{number}" for number in CONVOLUTIONS] + ["classifier.0", "classifier.3"]
    assert list(vgg.state_dict()) == [f"{layer}.{part}" for layer in layers for part in ("weight", "bias")]
    assert sum(parameter.numel() for parameter in vgg.parameters()) == 143_667_240 - 1000 * 4097
    assert vgg(torch.zeros(2, 3, 224, 224, device="meta")).shape == (2, 4096, 1, 1)


@torch.no_grad()
def test_the_vector_is_the_second_layer_after_its_relu(weights: str, photographs: Any) -> None:
    spec = BackboneSpec(model="vgg19", weights=weights)
    backbone, pixels = Backbone(spec, gives="vector").eval(), photographs(2, size=8).pixels[:, 0]
    state = torch.load(weights, weights_only=True)
    mean, deviation = torch.tensor([0.485, 0.456, 0.406]), torch.tensor([0.229, 0.224, 0.225])
    hidden = (pixels / 255 - mean[:, None, None]) / deviation[:, None, None]
    for layer in (0, 3):
        hidden = conv2d(hidden, state[f"features.{layer}.weight"], state[f"features.{layer}.bias"], padding=1).relu()
        hidden = max_pool2d(hidden, 2)
    torch.testing.assert_close(Backbone(spec, gives="cells").eval()(pixels), hidden)
    hidden = hidden.flatten(1)  # 2 x 2 cells already
    for layer in (0, 3):
        hidden = (hidden @ state[f"classifier.{layer}.weight"].T + state[f"classifier.{layer}.bias"]).relu()
    torch.testing.assert_close(backbone.vectors(pixels), hidden)


def test_dropout_acts_while_the_cnn_trains_and_rests_while_it_is_frozen(weights: str, photographs: Any) -> None:
    backbone = Backbone(BackboneSpec(model="vgg19", weights=weights), gives="vector").train()
    pixels = photographs(40, size=8).pixels[:, 0]
    assert not torch.equal(backbone.vectors(pixels), backbone.vectors(pixels))
    backbone.requires_grad_(False)
    assert torch.equal(backbone.vectors(pixels), backbone.vectors(pixels))


def test_safetensors_are_read_too(weights: str, tmp_path: Path) -> None:
    tensors = torch.load(weights, weights_only=True)
    other = tmp_path / "vgg19.safetensors"
    safetensors.torch.save_file(tensors, other)
    backbone = Backbone(BackboneSpec(model="vgg19", weights=str(other)), gives="vector")
    assert torch.equal(backbone.body.features[0].weight, tensors["features.0.weight"])


@pytest.mark.parametrize("damage", ["gone", "empty", "text", "partial", "foreign", "misshapen"])
def test_a_file_that_is_not_vgg19_is_refused_in_one_line(damage: str, weights: str, tmp_path: Path) -> None:
    path = Path(weights)
    state = torch.load(path, weights_only=True)
    if damage == "gone":
        path.unlink()
    elif damage in ("empty", "text"):
        path.write_bytes(b"" if damage == "empty" else b"not a pickle")
    else:
        if damage == "partial":
            del state["features.3.bias"]
        elif damage == "foreign":
            state["features.1.running_mean"] = torch.zeros(4)
        else:
            state["classifier.3.weight"] = torch.zeros(8, 9)
        torch.save(state, path)
    named = {"partial": "features.3.bias", "foreign": "features.1.running_mean", "misshapen": "classifier.3.weight"}
    message = {"gone": "VSE-N033", "empty": "VSE-N034", "text": "VSE-N034"}.get(damage)
    fields = {"path": path} | ({} if message else {"first": named[damage]})
    for device in ("cpu", "meta"):  # as `study validate`, which wants shapes alone
        with refused(message or "VSE-N017", **fields) as caught, torch.device(device):
            Backbone(BackboneSpec(model="vgg19", weights=weights), gives="vector")
        assert str(caught.value).startswith("network.backbone.weights: ")
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize("form", ["archive", "before_1_6", "safetensors"])
def test_where_only_shapes_are_wanted_the_file_is_checked_and_no_weight_gets_memory(
    form: str, weights: str, tmp_path: Path
) -> None:
    tensors = torch.load(weights, weights_only=True)
    path = tmp_path / f"{form}.{'safetensors' if form == 'safetensors' else 'pth'}"
    if form == "safetensors":
        safetensors.torch.save_file(tensors, path)
    else:
        torch.save(tensors, path, _use_new_zipfile_serialization=form == "archive")
    with torch.device("meta"):
        backbone = Backbone(BackboneSpec(model="vgg19", weights=str(path)), gives="vector")
    assert all(parameter.device.type == "meta" for parameter in backbone.parameters())
    del tensors["features.0.weight"]
    (safetensors.torch.save_file if form == "safetensors" else torch.save)(tensors, path)
    with refused("VSE-N017", first="features.0.weight"), torch.device("meta"):
        Backbone(BackboneSpec(model="vgg19", weights=str(path)), gives="vector")


def test_a_network_whose_weights_follow_needs_no_file() -> None:
    with weights_follow(), torch.device("meta"):
        Backbone(BackboneSpec(model="vgg19", weights="/nowhere/vgg19.pth"), gives="cells")
