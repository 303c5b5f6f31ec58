"""Photographs to the pixels that networks read: crops, resized to a square, perhaps mirrored.

Resizing is Pillow's bilinear filter, antialiased, from the crop of the decoded photograph straight to the square, or
the preprocessor of a model of `transformers`.
Random values come from generators that the caller seeds; the global ones are never touched.
"""

from __future__ import annotations

import math
from random import Random

import numpy as np
from PIL import Image

from vsetune.config.sources.trial_inputs import PixelInput
from vsetune.data.batches.image_processors import processed
from vsetune.data.stored.dataset import Dataset
from vsetune.data.stored.photographs import rgb_image
from vsetune.data.stored.plain_files import Flaw
from vsetune.data.stored.shards import Photograph
from vsetune.errors import DataError

Box = tuple[float, float, float, float]
"""x1, y1, x2, y2 in pixels of the photograph."""

_ASPECTS = (3 / 4, 4 / 3)
"""Ratio of width to height of the windows of `random_resized`."""
_TRIES = 10
_SHORTER_SIDE = 256 / 224
"""Shorter side of an image whose centre is cropped, in sides of the square."""


def require_photographs(dataset: Dataset) -> None:
    """DataError with the fix for a data set that was ingested without its images."""
    if not dataset.manifest.images_stored:
        raise DataError(
            "VSE-D028", "{folder}: has no photographs in its shards; ingest it again with store_images: true (in "
            "another folder).", folder=dataset.path,
        )


def training_pixels(photograph: Photograph, wanted: PixelInput, draw: Random) -> tuple[np.ndarray, bool]:
    """((1, 3, S, S) uint8 RGB, whether it is mirrored). DataError in one line for a photograph that cannot be decoded.
    """
    is_mirrored = draw.random() < wanted.flip
    image = decoded(photograph)
    pixels = _squared(image, training_crop(wanted, image.size, draw), wanted)
    return (pixels[:, :, ::-1] if is_mirrored else pixels)[None], is_mirrored


def evaluation_pixels(photograph: Photograph, wanted: PixelInput, draw: Random) -> np.ndarray:
    """(crops, 3, S, S) uint8 RGB. draw: for `evaluation_crops`, with the same seed every time. DataError as above."""
    image = decoded(photograph)
    if wanted.evaluation_crops:
        boxes = [training_crop(wanted, image.size, draw) for _ in range(wanted.evaluation_crops)]
    elif wanted.processor is None and wanted.evaluation == "centre_crop":
        boxes = [_centre_crop(image.size)]
    else:
        boxes = [(0.0, 0.0, *image.size)]
    return np.stack([_squared(image, box, wanted) for box in boxes])


def training_crop(wanted: PixelInput, size: tuple[int, int], draw: Random) -> Box:
    """The window of an image of this width and height that becomes the square, in whole pixels."""
    if wanted.crop == "random_resized":
        return _random_resized(wanted, size, draw)
    if wanted.crop == "square_window":
        share = draw.uniform(wanted.crop_low, wanted.crop_high)
        width, height = (max(1, round(share * side)) for side in size)
        return _placed(width, height, size, draw)
    return 0.0, 0.0, *size


def decoded(photograph: Photograph) -> Image.Image:
    """The whole photograph as RGB. DataError in one line if it cannot be decoded."""
    try:
        return rgb_image(photograph.content)
    except Flaw as error:
        raise DataError(
            "VSE-D029", "{where}: its photograph cannot be decoded ({reason}); ingest the data set again.",
            where=photograph.place, reason=error,
        ) from error


def _random_resized(wanted: PixelInput, size: tuple[int, int], draw: Random) -> Box:
    """As torchvision's RandomResizedCrop: a share of the area, log-uniform aspect; after ten misfits the centre."""
    width, height = size
    for _ in range(_TRIES):
        area = width * height * draw.uniform(wanted.crop_low, wanted.crop_high)
        aspect = math.exp(draw.uniform(*map(math.log, _ASPECTS)))
        w, h = round(math.sqrt(area * aspect)), round(math.sqrt(area / aspect))
        if 0 < w <= width and 0 < h <= height:
            return _placed(w, h, size, draw)
    narrowest, widest = _ASPECTS
    w, h = min(width, max(1, round(height * widest))), min(height, max(1, round(width / narrowest)))
    left, top = (width - w) // 2, (height - h) // 2
    return left, top, left + w, top + h


def _placed(width: int, height: int, size: tuple[int, int], draw: Random) -> Box:
    left, top = draw.randint(0, size[0] - width), draw.randint(0, size[1] - height)
    return left, top, left + width, top + height


def _centre_crop(size: tuple[int, int]) -> Box:
    """The box that a resize of the shorter side to S * 256 / 224, then a crop of S x S from the centre, would retain.
    """
    side = min(size) / _SHORTER_SIDE
    left, top = (size[0] - side) / 2, (size[1] - side) / 2
    return left, top, left + side, top + side


def _squared(image: Image.Image, box: Box, wanted: PixelInput) -> np.ndarray:
    """(3, S, S) uint8."""
    if wanted.processor is None:
        return _resized(image, box, wanted.size)
    window = image if box == (0.0, 0.0, *image.size) else image.crop(tuple(map(round, box)))  # type: ignore[arg-type]
    return processed(window, wanted.processor, size=wanted.size)


def _resized(image: Image.Image, box: Box, size: int) -> np.ndarray:
    """(3, S, S) uint8."""
    square = image.resize((size, size), Image.Resampling.BILINEAR, box=box)
    return np.asarray(square).transpose(2, 0, 1)
