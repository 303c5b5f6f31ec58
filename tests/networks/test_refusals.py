"""What networks refuse: data that they cannot read, and settings that contradict each other."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from refusals import refused
from refused_settings import refused_settings

from vsetune.config.component_specs import NETWORKS
from vsetune.errors import Message, UsageError
from vsetune.networks.inputs import CaptionInputs, ImageInputs
from vsetune.networks.network_base import Network
from vsetune.networks.network_building import build_network
from vsetune.networks.parts.network_fields import BackboneSpec

SIZES = {"regions": 6, "width": 7, "vocabulary_size": 20}


def make(name: str, **settings: Any) -> Network:
    shape = {"size": "tiny"} if name == "tags" else {"embedding_size": 8, "word_size": 5}
    small = {"blocks": 2, "kernels": 2, "hidden_size": 4} if name == "gsmn" else {}
    return build_network(NETWORKS[name](**{**shape, **small, **settings}), **SIZES)


def images(*, regions: int = 6, counts: int = 6) -> ImageInputs:
    return ImageInputs(torch.ones(2, regions, 7), torch.full((2,), counts))


@pytest.mark.parametrize(("name", "settings", "batch", "message", "fields"), [
    ("vsepp", {"image_input": "flatten"}, images(counts=5), "VSE-N003", {"need": 6, "got": 5}),
    ("sgraf_saf", {}, images(regions=7), "VSE-N004", {"most": 6, "got": 7}),
    ("gsmn", {}, images(regions=5, counts=5), "VSE-N005", {"where": "network gsmn", "regions": 5}),
    ("tags", {}, images(regions=3, counts=3), "VSE-N005", {"where": "network tags", "regions": 3}),
    ("cgmn", {"spatial_graph": True}, images(), "VSE-N005", {"where": "network.spatial_graph", "regions": 6}),
    ("vse_infinity", {"image_input": "pixels", "image_mlp": False, "backbone": {"model": "random"}}, images(),
     "VSE-N001", {}),
])
def test_images_that_a_network_cannot_read(
    name: str, settings: dict[str, Any], batch: ImageInputs, message: str, fields: dict[str, Any]
) -> None:
    with refused(message, **fields):
        make(name, **settings).encode_images(batch)


@pytest.mark.parametrize(("name", "settings", "length", "message", "fields"), [
    ("gsmn", {"text_graph": "sparse"}, 3, "VSE-N006", {"key": "text_graph"}),
    ("cgmn", {}, 3, "VSE-N006", {"key": "caption_graph"}),
    ("tags", {}, 513, "VSE-N007", {"most": 512, "got": 513}),
])
def test_captions_that_a_network_cannot_read(
    name: str, settings: dict[str, Any], length: int, message: str, fields: dict[str, Any]
) -> None:
    captions = CaptionInputs(torch.ones(2, length, dtype=torch.int64), torch.full((2,), length))
    with refused(message, **fields):
        make(name, **settings).encode_captions(captions)


@pytest.mark.parametrize(("settings", "sizes", "message"), [
    ({"image_input": "global"}, {"regions": 36}, "VSE-N002"), ({}, {"width": 0}, "VSE-N008"),
])
def test_data_of_sizes_that_a_network_cannot_have(
    settings: dict[str, Any], sizes: dict[str, int], message: Message
) -> None:
    with refused(message):
        build_network(NETWORKS["vsepp"](**settings), **{**SIZES, **sizes})


@pytest.mark.parametrize(("spec", "settings", "message", "fields"), [
    ("vsepp", {"similarity": "order"}, "VSE-N023", {}),
    ("vse_infinity", {"image_input": "pixels"}, "VSE-N022", {}),
    ("gsmn", {"embedding_size": 10, "blocks": 4}, "VSE-N024", {"name": "embedding_size", "count": 4}),
    ("gsmn", {"hidden_size": 10, "kernels": 4}, "VSE-N024", {"name": "hidden_size", "count": 4}),
    ("tags", {"embedding_size": 100}, "VSE-N024", {"name": "embedding_size", "count": 12}),
    ("cgmn", {"norm": "released", "region_normalization": "feature"}, "VSE-N025", {}),
    ("backbone", {"model": "vgg19"}, "VSE-N019", {}),
    ("backbone", {"weights": "vgg19.pth"}, "VSE-N019", {}),
    ("backbone", {"model": "random", "depths": (1,)}, "VSE-N020", {"depths": 1, "widths": 2}),
    ("backbone", {"model": "random", "depths": (), "widths": ()}, "VSE-N020", {"depths": 0}),
    ("backbone", {"model": "random", "depths": (1, 0)}, "VSE-N021", {"name": "depths", "stage": 1, "got": 0}),
    ("backbone", {"model": "random", "depths": (1,), "widths": (-3,)}, "VSE-N021", {"name": "widths", "got": -3}),
])
def test_settings_that_contradict_each_other(
    spec: str, settings: dict[str, Any], message: str, fields: dict[str, Any]
) -> None:
    with refused_settings(message, **fields):
        ({"backbone": BackboneSpec} | dict(NETWORKS))[spec](**settings)


def test_typical_errors_in_words(snapshot: Any) -> None:
    lines = []
    for make_error in (
        lambda: make("vsepp", image_input="flatten").encode_images(images(counts=5)),
        lambda: make("cgmn", spatial_graph=True).encode_images(images()),
        lambda: make("gsmn").encode_images(images(regions=5, counts=5)),
        lambda: build_network(NETWORKS["vsepp"](image_input="global"), **{**SIZES, "regions": 36}),
    ):
        with pytest.raises(UsageError) as caught:
            make_error()
        lines.append(str(caught.value))
    assert lines == snapshot
