"""Preprocessors of models of `transformers`: the pixels that the library itself would make of a photograph."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import Any, cast

import numpy as np
from PIL import Image

from vsetune.config.sources.pretrained_models import (
    find_model,
    loading_failures,
    one_line,
    quiet_transformers,
    require_square_images,
    require_transformers,
)
from vsetune.config.sources.trial_inputs import ImageProcessor
from vsetune.errors import ConfigError


def processed(image: Image.Image, processor: ImageProcessor, *, size: int) -> np.ndarray:
    """(3, size, size) uint8 RGB: resized and cropped as by the library, before it rescales and normalises.

    ConfigError for a preprocessor that cannot be read, or that makes patches or images of another size.
    """
    made = _loaded(processor)(images=image, do_rescale=False, do_normalize=False, return_tensors="np")
    pixels: np.ndarray = np.asarray(made["pixel_values"])[0]
    require_square_images(processor.name, key=processor.key, reads_patches=pixels.ndim == 2)
    if pixels.shape != (3, size, size):
        shape = " x ".join(map(str, pixels.shape))
        raise ConfigError(
            "VSE-D119", "{key}: {model}: its preprocessor makes images of {got}, need 3 x {need} x {need}; set "
            "network.image_size to the size that it makes, or name a model of square images", key=processor.key,
            model=processor.name, got=shape, need=size,
        )
    return np.asarray(pixels, np.uint8)


def require_processor(processor: ImageProcessor, *, size: int) -> None:
    """The errors of `processed`, before any photograph is read."""
    processed(Image.new("RGB", (64, 48)), processor, size=size)


def save_processor(processor: ImageProcessor, folder: Path) -> None:
    """Write its preprocessor_config.json into a folder. ConfigError as of `processed`."""
    _loaded(processor).save_pretrained(folder)


@lru_cache(maxsize=4)
def _loaded(processor: ImageProcessor) -> Any:
    """The library's preprocessor that needs Pillow alone: the others need torchvision, and resize a little differently.
    """
    key = processor.key
    require_transformers(key)
    from transformers import AutoImageProcessor

    found = find_model(processor.name, processor.revision, key=key)
    try:
        with quiet_transformers(is_local=found.commit is None):
            return cast(Any, AutoImageProcessor).from_pretrained(
                found.place, revision=found.commit, use_fast=False, trust_remote_code=False
            )
    except loading_failures() as error:
        raise ConfigError(
            "VSE-D062", "{key}: {model}: cannot load ({reason}); need {need} of `transformers` and safetensors weights",
            key=key, model=f"{found.place}: preprocessor", reason=one_line(error),
            need="a model of images with its preprocessor_config.json",
        ) from error
