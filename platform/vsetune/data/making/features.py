"""From images to region features: (regions, width) float16 per image, in raster order of the cells."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
from PIL import Image

from vsetune.config.sources.recipe import (
    AnyFeatures,
    EfficientNetLite0Spec,
    PixelsSpec,
    PrecomputedSpec,
    TransformersSpec,
)
from vsetune.errors import DataError

_FLOAT16_LARGEST = float(np.finfo(np.float16).max)


class Extractor(Protocol):
    """Images in, grid features out. The same images in the same batches give the same bytes."""

    regions: int
    width: int
    batch_size: int

    def recipe(self) -> dict[str, Any]:
        """The recipe of the features, for the manifest."""

    def extract(self, images: Sequence[Image.Image]) -> np.ndarray:
        """RGB images to (images, regions, width) float32 or float16. At most batch_size images."""


def build_extractor(spec: AnyFeatures) -> Extractor | None:
    """The extractor that a recipe names; None for precomputed features. ConfigError when its extra is not installed."""
    match spec:
        case PrecomputedSpec():
            return None
        case PixelsSpec():
            from vsetune.data.making.pixel_features import PixelExtractor

            return PixelExtractor(spec)
        case EfficientNetLite0Spec():
            from vsetune.data.making.cnn_features import EfficientNetExtractor

            return EfficientNetExtractor(spec)
        case TransformersSpec():
            from vsetune.data.making.cnn_features import TransformersExtractor

            return TransformersExtractor(spec)


def to_float16(features: np.ndarray, *, place: str) -> np.ndarray:
    """The features of one image as float16. DataError when a value is not finite or beyond the range of float16."""
    largest = float(np.abs(features).max(initial=0.0))
    if not largest <= _FLOAT16_LARGEST:
        raise DataError(
            f"{place}: a feature is {largest:g}, need finite values up to {_FLOAT16_LARGEST:g}; "
            "check the extractor's weights, or rescale the features."
        )
    return np.ascontiguousarray(features, dtype=np.float16)
