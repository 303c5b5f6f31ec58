"""VGG19 (Simonyan and Zisserman 2015), with the parameter names of torchvision's weights."""

from __future__ import annotations

import zipfile
from collections.abc import Mapping
from pathlib import Path

import safetensors.torch
import torch
from safetensors import safe_open
from torch import Tensor, nn

from vsetune.config.sources.recipe import expand_path
from vsetune.errors import ConfigError
from vsetune.networks.parts.damaged import DAMAGED
from vsetune.storage.paths import on_this_node

_BLOCKS = ((2, 64), (2, 128), (4, 256), (4, 512), (4, 512))
"""Convolutions and channels between two poolings."""
_CELLS, _HIDDEN = 7, 4096
_UNUSED = "classifier.6."
"""The layer of the 1,000 ImageNet classes."""


class Vgg19(nn.Module):
    """The last map (n, 512, S / 32, S / 32); or, `as_vector`, the second 4096-unit layer as a map (n, 4096, 1, 1).

    That vector is taken after its ReLU and its dropout, as VSE++ does; maps of other sizes are averaged to 7 x 7 first.
    """

    def __init__(self, *, as_vector: bool) -> None:
        super().__init__()
        self.width = _HIDDEN if as_vector else _BLOCKS[-1][1]
        self.features = nn.Sequential(*_convolutions())
        self.average = nn.AdaptiveAvgPool2d(_CELLS)
        self.classifier = nn.Sequential(
            nn.Linear(_BLOCKS[-1][1] * _CELLS**2, _HIDDEN), nn.ReLU(), nn.Dropout(),
            nn.Linear(_HIDDEN, _HIDDEN), nn.ReLU(), nn.Dropout(),
        ) if as_vector else None

    def forward(self, images: Tensor) -> Tensor:
        """images: (n, 3, S, S), normalised."""
        cells: Tensor = self.features(images)
        if self.classifier is None:
            return cells
        vectors: Tensor = self.classifier(self.average(cells).flatten(1))
        return vectors[:, :, None, None]

    def load(self, weights: str, *, key: str) -> None:
        """Load the weights of a file. ConfigError in one line if it is missing, damaged or not VGG19's."""
        path = Path(on_this_node(expand_path(weights, key=key)))
        tensors = _tensors(path, key, shapes_only=False)
        self._require_same_shapes(tensors, path, key)
        self.load_state_dict({name: tensors[name] for name in self.state_dict()})

    def check(self, weights: str, *, key: str) -> None:
        """The errors of `load`; of the weights only names and shapes are read, where the format allows it."""
        path = Path(on_this_node(expand_path(weights, key=key)))
        self._require_same_shapes(_tensors(path, key, shapes_only=True), path, key)

    def _require_same_shapes(self, tensors: Mapping[str, Tensor], path: Path, key: str) -> None:
        used = "features." if self.classifier is None else ""
        found = {
            name: value.shape for name, value in tensors.items()
            if name.startswith(used) and not name.startswith(_UNUSED)
        }
        wanted = {name: value.shape for name, value in self.state_dict().items()}
        differ = sorted(found.keys() ^ wanted.keys()) or [
            name for name, shape in wanted.items() if found[name] != shape
        ]
        if differ:
            raise ConfigError(
                f"{key}: {path}: not the weights of torchvision's vgg19: {len(differ)} names or shapes differ, the "
                f"first is {differ[0]}; get vgg19 (without batch normalisation)"
            )


def _convolutions() -> list[nn.Module]:
    layers: list[nn.Module] = []
    channels = 3
    for count, width in _BLOCKS:
        for _ in range(count):
            layers += [nn.Conv2d(channels, width, 3, padding=1), nn.ReLU()]
            channels = width
        layers.append(nn.MaxPool2d(2))
    return layers


def _tensors(path: Path, key: str, *, shapes_only: bool) -> dict[str, Tensor]:
    """By name, on the CPU; shapes_only: perhaps without values, on the meta device."""
    if not path.is_file():
        raise ConfigError(f"{key}: {path}: no such file; need vgg19 weights with torchvision's names, check the path")
    try:
        if path.suffix == ".safetensors":
            return _safetensors_shapes(path) if shapes_only else safetensors.torch.load_file(path, device="cpu")
        mapped = shapes_only and zipfile.is_zipfile(path)  # files of torch before 1.6 are no archives
        content = torch.load(path, map_location="cpu", weights_only=True, mmap=mapped)
        return {str(name): value for name, value in content.items() if isinstance(value, Tensor)}
    except DAMAGED as error:
        raise ConfigError(
            f"{key}: {path}: cannot be read as weights ({type(error).__name__}); download the file again"
        ) from error


def _safetensors_shapes(path: Path) -> dict[str, Tensor]:
    with safe_open(path, framework="pt", device="cpu") as content:
        names = content.keys()
        return {name: torch.empty(content.get_slice(name).get_shape(), device="meta") for name in names}
