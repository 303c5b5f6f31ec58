"""Small models with the module names of the released implementations, and the files their training scripts write."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from vsetune.networks.importing.imported import Imported, network_of
from vsetune.networks.importing.released_models import import_released
from vsetune.networks.inputs import CaptionInputs, ImageInputs

LENGTHS = [5, 3, 2]
IMAGES, REGIONS, WIDTH, WORDS = 2, 4, 6, 12


def holder(**children: Any) -> nn.Module:
    """A module with these children and parameters, all numbers drawn anew, running statistics too."""
    module = nn.Module()
    for name, child in children.items():
        setattr(module, name, child)
    for name, value in module.state_dict().items():
        if value.is_floating_point():
            value.copy_(torch.rand_like(value) + 0.5 if name.endswith("running_var") else torch.randn_like(value) * 0.4)
    return module.eval()


@pytest.fixture(autouse=True)
def _seeded() -> None:
    torch.manual_seed(0)


@pytest.fixture
def released() -> Callable[..., nn.Module]:
    return holder


@pytest.fixture
def features() -> Tensor:
    return torch.randn(IMAGES, REGIONS, WIDTH)


@pytest.fixture
def tokens() -> Tensor:
    drawn = torch.randint(1, WORDS, (len(LENGTHS), max(LENGTHS)))
    return drawn.masked_fill(torch.arange(max(LENGTHS)) >= torch.tensor(LENGTHS)[:, None], 0)


@pytest.fixture
def captions(tokens: Tensor) -> list[Tensor]:
    """The same ids, one caption after the other, without padding."""
    return [ids[:length] for ids, length in zip(tokens, LENGTHS, strict=True)]


@pytest.fixture
def checkpoint(tmp_path: Path) -> Callable[..., Path]:
    """checkpoint(image, text, ..., setting=value): what the training scripts save."""

    def save(*parts: nn.Module, **settings: Any) -> Path:
        path = tmp_path / "model_best.pth.tar"
        states = [part.state_dict() for part in parts]
        opt = argparse.Namespace(data_name="f30k_precomp", **settings)
        torch.save({"epoch": 3, "model": states, "best_rsum": 412.5, "opt": opt, "Eiters": 900}, path)
        return path

    return save


@pytest.fixture
def bring(tmp_path: Path) -> Callable[[Path, str], tuple[Imported, nn.Module]]:
    """bring(path, source): what was imported, and the network read back from the file it makes."""

    def run(path: Path, source: str) -> tuple[Imported, nn.Module]:
        imported = import_released(path, source)
        file = tmp_path / "weights.safetensors"
        file.write_bytes(imported.to_safetensors())
        return imported, network_of(file)

    return run


@pytest.fixture
def encode(features: Tensor, tokens: Tensor) -> Callable[..., tuple[Any, Any]]:
    """encode(network, boxes=None): images and captions as the network encodes them."""

    def run(network: Any, *, boxes: Tensor | None = None) -> tuple[Any, Any]:
        counts = torch.full((IMAGES,), REGIONS)
        lengths = torch.tensor(LENGTHS)
        with torch.no_grad():
            images = network.encode_images(ImageInputs(features, counts, boxes))
            return images, network.encode_captions(CaptionInputs(tokens, lengths))

    return run


@pytest.fixture
def scores(encode: Callable[..., tuple[Any, Any]]) -> Callable[..., Tensor]:
    """scores(network, boxes=None): images in rows, captions in columns."""

    def run(network: Any, *, boxes: Tensor | None = None) -> Tensor:
        with torch.no_grad():
            similarity: Tensor = network.similarity(*encode(network, boxes=boxes))
            return similarity

    return run
